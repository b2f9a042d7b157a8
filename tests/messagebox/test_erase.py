"""`erase`: what is tracked of the content of messages is gone for every reader at once, and then from the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from box import deployment
from crossdock.administration.messages import DescribedMessage
from crossdock.administration.service import Administration
from crossdock.errors import NotAllowedError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.settle import Complete
from express import a_message, claim, living, publish, rows
from roles import Roles

SECRET, OTHER = "Eva-Nordmann", "Ole-Hansen"


@pytest.fixture
def service(agent: Agent) -> Administration:
    return Administration(agent, text_limit=256)


@pytest.fixture
def roles(agent: Agent) -> Iterator[Roles]:
    made = Roles(agent)
    agent.subscriptions.deploy(deployment("other", Z="Amount < 0"))
    made.create()
    yield made
    made.drop()


@pytest.fixture
def ids(agent: Agent) -> list[str]:
    """Two messages of one person and one of another, delivered. Who they are about is personal."""
    agent.subscriptions.deploy(replace(deployment(A="Amount > 0"), personal=["Region"]))
    messages = [
        a_message(agent, {"BTS.MessageType": "Order", "Region": name, "Amount": Decimal(n)}, written={"BTS.SourceParty": name})
        for n, name in enumerate([SECRET, SECRET, OTHER], start=1)
    ]  # fmt: skip
    publish(agent, *messages[:2])
    publish(agent, messages[2])
    with living(agent) as life:
        agent.settle(life.instance, [Complete(each) for each in claim(agent, life)])
    return [str(message.id) for message in messages]


def shown(service: Administration, id_: str) -> DescribedMessage:
    described = service.describe(id_)
    assert isinstance(described, DescribedMessage)
    return described


def kept(agent: Agent) -> str:
    """Everything that the track has, in the clear."""
    found = agent.track.search(None, personal=True).messages
    few = rows(agent.database, "SELECT contexts::text FROM track_few")
    return repr([each.context for each in found]) + repr(few)


@pytest.mark.parametrize("packed", [False, True])
def test_erased_is_gone_for_readers_at_once_and_then_from_the_tables(
    agent: Agent, service: Administration, ids: list[str], packed: bool
) -> None:
    if packed:
        agent.cleanup.pack_track()
    assert SECRET in kept(agent)

    counted = service.erase(f"Region = '{SECRET}'")
    erased = service.erase(f"Region = '{SECRET}'", preview=False)
    after = shown(service, ids[0])
    again = service.erase(f"Region = '{SECRET}'", preview=False)

    assert (counted.found, counted.erased) == (2, 0)
    assert (erased.found, erased.erased, again.found) == (2, 2, 0)
    assert (after.type, after.promoted) == ("Order", {"BTS.MessageType": "Order"})
    assert after.copies[0].state == "delivered"
    agent.cleanup.pack_track()
    agent.cleanup.rewrite_erased()
    assert rows(agent.database, "SELECT count(*) FROM erased_message") == [(0,)]
    assert SECRET not in kept(agent)
    assert OTHER in kept(agent)
    assert [each.id for each in service.messages(where="Amount > 0").messages] == [ids[2]]
    assert [each.id for each in service.messages(where=f"Region = '{OTHER}'", personal=True).messages] == [ids[2]]


def test_explain_says_that_properties_were_erased_and_what_was_decided_then(
    service: Administration, ids: list[str]
) -> None:
    before = service.explain(ids[0])
    service.erase(f"Region = '{SECRET}'", preview=False)
    after = service.explain(ids[0])

    assert (before.erased, after.erased) == (False, True)
    [row] = after.subscriptions
    assert (row.name, row.matched, row.state, row.failed) == ("A", True, "delivered", [])
    assert [each.actual for group in row.groups for each in group] == ["(erased)"]
    assert after.nearest == []


def test_erasing_and_searching_are_recorded_without_the_values(
    agent: Agent, service: Administration, ids: list[str]
) -> None:
    assert ids
    service.erase(f"Region = '{SECRET}'", preview=False)
    with pytest.raises(UsageError, match="Property 'Region' is personal"):
        service.messages(where=f"Region = '{OTHER}'")
    service.messages(where=f"Region = '{OTHER}'", personal=True)

    acts = agent.audit.list()
    assert [(each.action, each.target) for each in acts if each.action in ("erase", "search")] == [
        ("search", "messages by Region"), ("erase", "messages by Region"),
    ]  # fmt: skip
    assert SECRET not in repr(acts)


def test_viewer_is_told_who_got_it_and_reads_no_personal_value(agent: Agent, ids: list[str], roles: Roles) -> None:
    agent.subscriptions.deploy(
        replace(deployment(A=f"Region = '{SECRET}'", B=f"Region = '{OTHER}'"), personal=["Region"])
    )
    message = a_message(agent, {"BTS.MessageType": "Order", "Region": SECRET})
    publish(agent, message)
    agent.cleanup.pack_track()
    user = f"{roles.names['Default']}_ann"
    with psycopg.connect(agent.database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'".encode())
    agent.access.grant("viewer", user, None)

    with Agent(make_conninfo(agent.database, user=user, password="secret")) as viewing:
        service = Administration(viewing, text_limit=256)
        explained, described = service.explain(str(message.id)), shown(service, str(message.id))
        with pytest.raises(NotAllowedError, match="takes the right bodies"):
            service.messages(where=f"Region = '{SECRET}'", personal=True)
        with pytest.raises(NotAllowedError, match="takes the right administrator"):
            service.erase("EXISTS(Region)", preview=False)

    assert {each.name: (each.matched, each.state) for each in explained.subscriptions} == {
        "A": (True, "queued"), "B": (False, "not matched"), "Z": (False, "not matched"),
    }  # fmt: skip
    assert SECRET not in repr(described)
    assert ids


def test_personal_values_are_masked_and_matched(agent: Agent, service: Administration, ids: list[str]) -> None:
    agent.subscriptions.deploy(replace(deployment(A="Amount > 0", B=f"Region = '{OTHER}'"), personal=["Region"]))

    described, explained = shown(service, ids[0]), service.explain(ids[0], now=True)

    assert described.promoted["Region"] == "***"
    [b] = [each for each in explained.subscriptions if each.name == "B"]
    assert [(each.predicate, each.actual) for each in b.failed] == [(f"Region = '{OTHER}'", "***")]
    assert service.explain(ids[2], subscription="B", now=True).subscriptions[0].matched
