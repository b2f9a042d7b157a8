"""`get messages` and the shapes of JSON: what others build on."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from typer.testing import CliRunner

from box import deployment
from crossdock.administration.message_ids import short_id
from crossdock.administration.messages import MessageRow
from crossdock.administration.service import Administration
from crossdock.cli.app import app
from crossdock.errors import UsageError
from crossdock.message.property import Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.settle import Complete
from express import a_message, claim, living, publish
from server_clock import shift_clock


@pytest.fixture
def service(agent: Agent) -> Administration:
    return Administration(agent, text_limit=256)


@pytest.fixture
def numbered(agent: Agent) -> list[str]:
    """Twelve orders with their numbers as amounts, each published by itself; every third is for nobody."""
    agent.subscriptions.deploy(deployment(North="Region = 'NO'", Large="Amount >= 6 AND Region = 'NO'"))
    ids = []
    for number in range(12):
        promoted: dict[str, Value] = {
            "BTS.MessageType": "Order" if number % 2 else "Return",
            "Region": "XX" if number % 3 == 2 else "NO",
            "Amount": Decimal(number),
        }
        message = a_message(agent, promoted)
        publish(agent, message)
        ids.append(str(message.id))
    return ids


def numbers(ids: list[str], rows: list[MessageRow] | Any) -> list[int]:
    return [ids.index(row.id) for row in rows]


def test_newest_come_first_page_by_page(service: Administration, numbered: list[str]) -> None:
    first = service.messages(limit=5)
    second = service.messages(limit=5, before=first.before)
    third = service.messages(limit=5, before=second.before)

    assert [numbers(numbered, page.messages) for page in (first, second, third)] == [
        [11, 10, 9, 8, 7], [6, 5, 4, 3, 2], [1, 0],
    ]  # fmt: skip
    assert third.before is None


def test_filters_of_a_list_hold_together(service: Administration, numbered: list[str]) -> None:
    assert numbers(numbered, service.messages(where="Amount > 8").messages) == [11, 10, 9]
    assert numbers(numbered, service.messages(where="Amount > 8 OR Amount = 1", type_="order").messages) == [11, 9, 1]
    assert numbers(numbered, service.messages(port="Large").messages) == [10, 9, 7, 6]
    assert numbers(numbered, service.messages(state="unrouted").messages) == [11, 8, 5, 2]
    assert numbers(numbered, service.messages(port="North", type_="Return", where="Amount < 9").messages) == [6, 4, 0]


def test_page_that_is_cut_goes_on_behind_the_last_that_was_shown(service: Administration, numbered: list[str]) -> None:
    found: list[int] = []
    before = None
    for _ in range(10):
        page = service.messages(port="North", limit=3, before=before)
        found += numbers(numbered, page.messages)
        before = page.before
        if before is None:
            break

    assert found == [10, 9, 7, 6, 4, 3, 1, 0]


def test_time_narrows_the_list(agent: Agent, service: Administration, numbered: list[str], database: str) -> None:
    shift_clock(database, timedelta(hours=3))
    late = a_message(agent, {"Region": "NO"})
    publish(agent, late)

    assert [row.id for row in service.messages(since="2h").messages] == [str(late.id)]
    assert numbers(numbered, service.messages(until="2h", limit=2).messages) == [11, 10]
    with pytest.raises(UsageError, match="--until 'never' is no time"):
        service.messages(until="never")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"state": "lost"}, "No message is ever 'lost'"),
        ({"port": "Nort"}, "There is no send port, orchestration or receive location 'Nort'"),
        ({"where": "Amout = 5"}, "did you mean 'Amount'"),
    ],
)
def test_wrong_question_is_refused_in_a_sentence(
    service: Administration, numbered: list[str], asked: dict[str, str], said: str
) -> None:
    assert numbered
    with pytest.raises(UsageError, match=said):
        service.messages(**asked)


def command(database: str, *arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--database", database, "-o", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_json_has_the_shapes_that_others_build_on(agent: Agent, numbered: list[str], database: str) -> None:
    with living(agent) as life:
        agent.settle(life.instance, [Complete(each) for each in claim(agent, life)])

    rows = command(database, "get", "messages", "--where", "Amount = 9")
    explained = command(database, "explain", numbered[9])
    traced = command(database, "trace", numbered[9])
    described = command(database, "describe", numbered[9])

    [row] = rows
    assert row.keys() >= {"id", "type", "received_at", "location", "state"}
    assert (row["id"], row["type"], row["state"]) == (numbered[9], "Order", "delivered")
    assert explained.keys() >= {"id", "type", "subscriptions", "nearest"}
    assert {each["name"]: each["matched"] for each in explained["subscriptions"]} == {"Large": True, "North": True}
    assert all(each.keys() >= {"name", "matched", "state", "failed"} for each in explained["subscriptions"])
    assert traced.keys() >= {"id", "events", "children"}
    assert all(each.keys() >= {"at", "event", "port", "attempt"} for each in traced["events"])
    assert sorted(each["event"] for each in traced["events"]) == ["delivered", "delivered", "published"]
    assert described["promoted"]["Amount"] == "9"
    assert [part["name"] for part in described["parts"]] == ["body"]


def test_tables_have_short_ids_that_commands_take(agent: Agent, numbered: list[str], database: str) -> None:
    run = CliRunner()

    listed = run.invoke(app, ["get", "messages", "--database", database], catch_exceptions=False)
    suspended = run.invoke(app, ["get", "suspended", "--database", database], catch_exceptions=False)
    [row] = [line.split() for line in listed.stdout.splitlines() if line.split()[0].endswith("-12")]
    shown = {verb: run.invoke(app, [verb, row[0], "--database", database], catch_exceptions=False)
             for verb in ("explain", "trace", "describe", "terminate")}  # fmt: skip

    assert row[0] in suspended.stdout
    assert numbered[11] not in listed.stdout
    assert {verb: each.exit_code for verb, each in shown.items()} == dict.fromkeys(shown, 0)
    assert "Of 2 subscriptions of its day, 0 match." in shown["explain"].stdout
    assert "Region = 'NO' (is XX)" in shown["explain"].stdout
    assert "unrouted" in shown["trace"].stdout
    assert agent.suspended.messages(ids=[]) == []
    assert short_id(agent.message_id())
