"""What somebody with a right makes wrong with `psql` stops no publisher and no list, and no error quotes a secret."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from crossdock.messagebox.agent import Agent
from express import at_ports, publish, rows
from people import MINE, THEIRS, User, roles, user

__all__ = ["roles", "user"]


def service(agent: Agent, name: str) -> int:
    [(number,)] = rows(agent.database, "SELECT id FROM service WHERE name = %s", name)
    return int(number)


@pytest.mark.parametrize(
    ("before", "calls"),
    [
        ("started", ["set_service_state(%s, 'unenlisted')"]),
        ("unenlisted", ["enlist(%s)", "insert_predicates(%s)"]),
    ],
)
def test_no_port_is_unenlisted_and_subscribed(agent: Agent, user: User, before: str, calls: Sequence[str]) -> None:
    if before == "unenlisted":
        agent.subscriptions.unenlist("Mine")
    publish(agent, THEIRS)  # by a router that goes on by what it knows

    with psycopg.connect(user(("operator", "mine")), options="-csearch_path=crossdock") as ann:
        ann.execute("SELECT move_epoch()")
        for call in calls:
            ann.execute(f"SELECT * FROM {call}".encode(), [service(agent, "Mine")])
    publish(agent, MINE, THEIRS)

    assert at_ports(agent) == {"Theirs": 2}
    assert rows(agent.database, "SELECT state FROM service WHERE name = 'Mine'") == [("unenlisted",)]
    agent.subscriptions.start("Mine")
    publish(agent, MINE)
    assert at_ports(agent) == {"Mine": 1, "Theirs": 2}


def test_port_that_is_deployed_no_more_is_not_enlisted(agent: Agent, user: User) -> None:
    ann, number = user(("operator", "mine")), service(agent, "Mine")
    agent.subscriptions.undeploy("mine")

    with psycopg.connect(ann, options="-csearch_path=crossdock") as connection:
        connection.execute("SELECT move_epoch()")
        connection.execute("SELECT set_service_state(%s, 'started')", [number])
        assert connection.execute("SELECT enlist(%s)", [number]).fetchall() == []


def test_what_a_stopped_port_keeps_is_not_resumed_without_a_record(agent: Agent, user: User) -> None:
    ann, number = user(("operator", "mine")), service(agent, "Mine")
    agent.subscriptions.stop("Mine")
    publish(agent, MINE)

    assert rows(ann, "SELECT * FROM resume_stopped(%s)", number) == [(0,)]
    assert len(agent.suspended.messages(port="Mine")) == 1


def test_what_was_left_by_an_application_is_not_resumed(agent: Agent, user: User) -> None:
    ann, number = user(("operator", "mine")), service(agent, "Mine")
    agent.subscriptions.stop("Mine")
    publish(agent, MINE)
    agent.subscriptions.undeploy("mine", "keep")

    assert rows(ann, "SELECT * FROM resume_stopped(%s)", number) == [(0,)]
    assert len(agent.suspended.messages(port="Mine")) == 1


@pytest.mark.parametrize(
    "call",
    [
        "set_service_state(%(service)s, 'resting')",
        "set_service_state(%(service)s, NULL)",
        "set_location_enabled('In', NULL)",
        "set_application_enabled('mine', NULL)",
    ],
)
def test_no_error_quotes_a_definition(agent: Agent, user: User, call: str) -> None:
    written = '{"address": "sftp://user:password@example.org"}'
    rows(agent.database, "UPDATE service SET definition = %s RETURNING 1", written)
    rows(
        agent.database,
        "INSERT INTO receive_location (name, application, host_id, definition) VALUES ('In', 'mine', 1, %s) RETURNING 1",
        written,
    )

    with psycopg.connect(user(("operator", "mine")), options="-csearch_path=crossdock") as ann:
        ann.execute("SELECT move_epoch()")
        found = ann.execute(f"SELECT * FROM {call}".encode(), {"service": service(agent, "Mine")}).fetchall()

    assert found == []


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("('1' || repeat('0', 5000))::jsonb", "1" + "0" * 5000),
        ("('1' || repeat('0', 1000))::jsonb", "1" + "0" * 1000),
        ("('1' || repeat('0', 400) || '.5')::jsonb", "1" + "0" * 400 + ".5"),
        ("(repeat('[', 3000) || repeat(']', 3000))::jsonb", "[" * 3000 + "]" * 3000),
        ("(repeat('[', 100) || repeat(']', 100))::jsonb", "[" * 100 + "]" * 100),
        ("to_jsonb(repeat('x', 1000000))", '"' + "x" * 48_999),
        ("'[5, -1.5, {\"a\": null}]'::jsonb", [5, -1.5, {"a": None}]),
    ],
)
def test_audit_is_listed_whatever_somebody_adds(agent: Agent, user: User, written: str, shown: object) -> None:
    rows(user(("viewer", None)), f"SELECT audit('note', 'x', {written}, NULL, 'done')")

    [added, *others] = agent.audit.list()

    assert (added.before, added.after) == (shown, None)
    assert "deploy" in {row.action for row in others}
