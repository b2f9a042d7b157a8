"""Filters over personal properties, wherever a person asks: compared with the values themselves, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from crossdock.administration.service import Administration, Selection
from crossdock.cli.app import app
from crossdock.errors import NotAllowedError, UsageError
from crossdock.messagebox.agent import Agent
from express import publish, rows
from people import THEIRS, User, roles, user

__all__ = ["roles", "user"]  # fixtures

SECRET, OTHER = "kept-away", "somebody-else"
TOKEN = "BTS.EpmRRCorrelationToken"
MATCHING_MASKS = [
    f"Customer != '{SECRET}' AND Region = 'Theirs'",
    "Customer = '***'",
    "NOT Customer LIKE 'Q%'",
    "Region = 'Mine' OR Customer = '***'",
    f"{TOKEN} = '***'",
]
NOT_FOR_YOU = r"Property '[\w.]+' is personal: to search by it takes the right bodies"


@pytest.fixture
def box(agent: Agent, user: User) -> Agent:  # noqa: ARG001
    """Two suspended messages and two instances, each of another person. `user` deploys the applications."""
    agent.subscriptions.stop("Theirs")
    for customer in (SECRET, OTHER):
        publish(agent, {**THEIRS, "Customer": customer, TOKEN: "a-token"})
        publish(agent, {"Region": "IN", "BTS.MessageType": "Order", "Customer": customer})
    return agent


def service(agent: Agent) -> Administration:
    return Administration(agent, text_limit=256)


def asked(database: str, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--database", database, "-o", "json"])


def searches(agent: Agent) -> list[str]:
    return [row.target for row in agent.audit.list(action="search") if row.outcome == "done"]


def suspended(agent: Agent) -> int:
    return len(agent.suspended.messages())


@pytest.mark.parametrize("where", MATCHING_MASKS)
@pytest.mark.parametrize("agreed", [(), ("--personal",)])
def test_nothing_is_listed_or_done_by_values_that_are_masked(
    box: Agent, user: User, tmp_path: Path, where: str, agreed: tuple[str, ...]
) -> None:
    operator = user(("operator", None), ("bodies", "mine"))
    before = suspended(box)

    for words in (
        ("get", "suspended"),
        ("get", "instances"),
        ("resume", "--yes"),
        ("terminate", "--yes"),
        ("save", "--to", str(tmp_path)),
    ):
        done = asked(operator, *words, "--where", where, *agreed)

        assert (done.exit_code, done.stdout) == (1, ""), words
        assert isinstance(done.exception, NotAllowedError), (words, done.exception)
        assert done.exception.exit_code == 2
        assert "is personal: to search by it takes the right bodies" in str(done.exception), words
    assert suspended(box) == before
    assert not list(tmp_path.iterdir())
    assert not any(SECRET in repr(row) for row in box.audit.list())


@pytest.mark.parametrize("where", MATCHING_MASKS)
def test_no_page_is_listed_by_values_that_are_masked(box: Agent, user: User, where: str) -> None:
    with Agent(user(("operator", None))) as own:
        for look in (
            lambda: service(own).suspended_page(Selection(where=where)),
            lambda: service(own).instance_page(where=where),
            lambda: service(own).messages(where=where),
        ):
            with pytest.raises(NotAllowedError, match=NOT_FOR_YOU):
                look()
    assert searches(box) == []


@pytest.mark.parametrize("words", [("suspended",), ("instances",), ("messages",)])
def test_search_by_a_personal_property_has_to_be_agreed_and_is_recorded(
    box: Agent, user: User, words: tuple[str, ...]
) -> None:
    of = {"suspended": "suspended messages"}.get(words[0], words[0])
    for number, database in enumerate((user(("bodies", None)), box.database), start=1):
        where = ("--where", f"Customer = '{SECRET}'")
        refused = asked(database, "get", *words, *where)
        found: list[Any] = json.loads(asked(database, "get", *words, *where, "--personal").stdout)

        assert isinstance(refused.exception, UsageError)
        assert "To search by it, which is recorded, add: --personal" in str(refused.exception)
        assert len(found) == (2 if words == ("messages",) else 1)
        assert searches(box) == [f"{of} by Customer"] * number
    assert not any(SECRET in repr(row) for row in box.audit.list())


@pytest.mark.parametrize("verb", ["resume", "terminate", "save"])
def test_acts_by_a_personal_property_mean_the_values_themselves(
    box: Agent, user: User, tmp_path: Path, verb: str
) -> None:
    both = user(("operator", None), ("bodies", None))
    words = (verb, "--where", f"Customer != '{SECRET}'", *(("--to", str(tmp_path)) if verb == "save" else ("--yes",)))
    refused = asked(both, *words)
    ids = {str(row.id) for row in box.suspended.messages() if (row.promoted or {}).get("Customer") == OTHER}
    done = asked(both, *words, "--personal")

    assert isinstance(refused.exception, UsageError)
    assert "add: --personal" in str(refused.exception)
    assert done.exit_code == 0, done.exception
    assert {row["id"] for row in json.loads(done.stdout)} == ids
    assert searches(box) == ["suspended messages by Customer"]
    assert not any(OTHER in repr(row) or SECRET in repr(row) for row in box.audit.list())


def test_filter_on_other_properties_asks_for_nothing_and_is_not_recorded(box: Agent, user: User) -> None:
    viewer = user(("viewer", None))

    for what in ("suspended", "instances"):
        assert asked(viewer, "get", what, "--where", "Region = 'Theirs' OR Region = 'IN'").exit_code == 0
    assert searches(box) == []


def test_whoever_may_not_search_so_is_recorded_as_refused(box: Agent, user: User) -> None:
    viewer = user(("viewer", None))
    for what in ("suspended", "instances"):
        asked(viewer, "get", what, "--where", f"Customer = '{SECRET}'", "--personal")

    refused = [row.target for row in box.audit.list(action="search") if row.outcome == "refused"]
    assert refused == ["instances by personal properties", "suspended messages by personal properties"]


@pytest.mark.parametrize("words", [("get", "suspended", "--personal"), ("terminate", "--yes")])
def test_filter_that_cannot_be_read_is_not_quoted_in_the_audit(box: Agent, words: tuple[str, ...]) -> None:
    refused = asked(box.database, *words, "--where", f"Customer = '{SECRET}' AND")

    assert isinstance(refused.exception, UsageError)
    assert SECRET in str(refused.exception)
    assert [row.after["reason"] for row in box.audit.list(limit=1)] == ["a condition that cannot be read"]
    assert not any(SECRET in repr(row) for row in box.audit.list())


def test_count_of_what_would_be_erased_is_recorded_as_a_search(box: Agent) -> None:
    service(box).erase(f"Customer = '{SECRET}'", preview=True)

    assert searches(box) == ["messages by Customer"]


def test_view_with_a_filter_on_a_personal_property_is_not_kept(box: Agent) -> None:
    with pytest.raises(UsageError, match="by personal properties is not kept"):
        service(box).views.save("mine", f"q=Customer+%3D+'{SECRET}'")

    assert service(box).views.save("others", "q=Region+%3D+'NO'").query
    assert rows(box.database, "SELECT count(*) FROM saved_view") == [(1,)]
