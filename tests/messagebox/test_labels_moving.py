"""Labels where references move: none lands at a host that lacks a label of its message; it is suspended and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import acting
import settling
from box import AT_ONCE
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedPort
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.rows import Reference
from express import a_message, at_ports, claim, delivered_now, deploy, kinds, living, port, publish, rows, unbalanced
from roles import Roles, roles
from walk import until

__all__ = ["roles"]

NORWAY = {"Region": "NO"}
HOSTS = {"Cleared": ["secret"], "Open": []}
WHY = "The host Open lacks the label secret of this message."


def at(host: str, **kind: Any) -> DeployedPort:
    return port("Port", "Region = 'NO'", host=host, **kind)


def publish_both(agent: Agent, **kind: Any) -> None:
    """A message with the label, whose context holds what PostgreSQL's text cannot, and one without."""
    odd = {"labels": '\0\\u0000"', "FILE.ReceivedFileName": "labels"}
    publish(agent, a_message(agent, NORWAY, labels=["secret"], written=odd, **kind), a_message(agent, NORWAY))


def assert_withheld(agent: Agent, database: str) -> None:
    """The labelled one is suspended at the host that had it, and comes to the other one when that has the label."""
    [row] = agent.suspended.messages()
    assert (row.kind, row.port, row.host_id) == ("send", "Port", agent.configuration.hosts()["Cleared"])
    assert row.reason.startswith(WHY)
    assert agent.messages.load([row.id])[row.id].context.labels == {"secret"}
    assert delivered_now(agent, "Cleared") == []
    assert [each.message.context.labels for each in delivered_now(agent, "Open")] == [frozenset()]
    assert acting.resume(agent, [str(row.id)])[0].result.startswith(f"still suspended: {WHY}")
    assert len(agent.suspended.messages()) == 1

    deploy(agent, at("Open"), hosts={"Cleared": ["secret"], "Open": ["secret"]})

    assert acting.resume(agent, [str(row.id)])[0].result == "queued again"
    assert [each.message.id for each in delivered_now(agent, "Open")] == [row.id]
    assert unbalanced(database) == []


def test_what_waits_for_a_port_that_moves_to_a_host_without_the_label_is_suspended(agent: Agent, database: str) -> None:
    deploy(agent, at("Cleared"), hosts=HOSTS)
    publish_both(agent)

    deploy(agent, at("Open"), hosts=HOSTS)

    assert at_ports(agent) == {"Port": 1}
    assert_withheld(agent, database)


def test_what_waits_for_its_next_attempt_does_not_follow_a_port_to_a_host_without_the_label(
    agent: Agent, database: str
) -> None:
    deploy(agent, at("Cleared"), hosts=HOSTS)
    publish_both(agent)
    with living(agent, "Cleared") as life:
        later = [(each.sequence, AT_ONCE, "down") for each in claim(agent, life, "Cleared")]
        settling.retry(agent, agent.configuration.hosts()["Cleared"], life.instance, later)

    deploy(agent, at("Open"), hosts=HOSTS)

    assert agent.queues.requeue_due(agent.configuration.hosts()["Open"]) == 1
    assert_withheld(agent, database)


def test_what_a_stopped_port_held_back_is_not_resumed_at_a_host_without_the_label(agent: Agent, database: str) -> None:
    deploy(agent, at("Cleared"), hosts=HOSTS)
    agent.subscriptions.stop("Port")
    publish_both(agent)

    deploy(agent, at("Open"), hosts=HOSTS)
    assert sorted(kinds(agent)) == [("stopped", "Port")] * 2
    assert agent.subscriptions.start("Port").resumed == 1

    assert_withheld(agent, database)


def give_back(agent: Agent, life: Lifeline, held: list[Reference]) -> None:
    settling.give_back(agent, agent.configuration.hosts()["Cleared"], life.instance, [each.sequence for each in held])


def retry(agent: Agent, life: Lifeline, held: list[Reference]) -> None:
    later = [(each.sequence, AT_ONCE, "down") for each in held]
    settling.retry(agent, agent.configuration.hosts()["Cleared"], life.instance, later)
    agent.queues.requeue_due(agent.configuration.hosts()["Open"])


def leave(agent: Agent, life: Lifeline, _: list[Reference]) -> None:
    life.end()

    def released() -> bool:
        agent.queues.release_dead(agent.configuration.hosts()["Cleared"])
        return rows(agent.database, "SELECT count(*) FROM claimed") == [(0,)]

    until(released, 10)


@pytest.mark.parametrize("end", [give_back, retry, leave])
@pytest.mark.usefixtures("no_grace")
def test_what_was_in_hand_when_its_port_moved_does_not_go_to_a_host_without_the_label(
    agent: Agent,
    database: str,
    end: Callable[[Agent, Lifeline, list[Reference]], None],
) -> None:
    deploy(agent, at("Cleared"), hosts=HOSTS)
    publish_both(agent)

    with living(agent, "Cleared") as life:
        held = claim(agent, life, "Cleared")
        deploy(agent, at("Open"), hosts=HOSTS)
        end(agent, life, held)

    assert_withheld(agent, database)


@pytest.mark.parametrize("end", [give_back, retry])
def test_role_of_a_host_withholds_as_well(
    agent: Agent, database: str, roles: Roles, end: Callable[[Agent, Lifeline, list[Reference]], None]
) -> None:
    deploy(agent, at("Cleared"), hosts=HOSTS)
    roles.create()
    cleared = roles.acting_as("Cleared")
    publish_both(agent)

    with living(cleared, "Cleared") as life:
        held = claim(cleared, life, "Cleared")
        deploy(agent, at("Open"), hosts=HOSTS)
        if end is give_back:
            give_back(cleared, life, held)
        else:
            later = [(each.sequence, AT_ONCE, "down") for each in held]
            settling.retry(cleared, agent.configuration.hosts()["Cleared"], life.instance, later)
            agent.queues.requeue_due(agent.configuration.hosts()["Open"])

    assert_withheld(agent, database)


def test_failed_message_of_a_line_that_moved_stays_where_its_label_is(agent: Agent, database: str) -> None:
    deploy(agent, at("Cleared", ordered=True), hosts=HOSTS)
    publish_both(agent)
    host = agent.configuration.hosts()["Cleared"]

    with living(agent, "Cleared") as life:
        first, second = agent.queues.dequeue_ordered(host, life.instance, limit=10)
        deploy(agent, at("Open", ordered=True), hosts=HOSTS)
        outcome = settling.SubqueueOutcome(suspended=[(first.sequence, "refused")], untried=[second.sequence])
        settling.settle_subqueue(agent, host, life.instance, first.service_id, outcome)

    [row] = agent.suspended.messages()
    assert (row.host_id, row.reason) == (host, "refused")
    with living(agent, "Open") as life:
        assert len(agent.queues.dequeue_ordered(agent.configuration.hosts()["Open"], life.instance, limit=10)) == 1
    assert unbalanced(database) == []


def test_what_waits_at_a_host_that_loses_its_label_is_suspended_also_when_it_comes_back_later(
    agent: Agent, database: str
) -> None:
    deploy(agent, at("Cleared"), hosts=HOSTS)
    host = agent.configuration.hosts()["Cleared"]
    for _ in range(3):
        publish_both(agent)
    with living(agent, "Cleared") as life:
        postponed, given = claim(agent, life, "Cleared", limit=4)[0:4:2]
        settling.give_back(
            agent, host, life.instance, [each.sequence for each in claim(agent, life, "Cleared", limit=0)]
        )
        settling.postpone(agent, host, life.instance, [(postponed.sequence, AT_ONCE, "closed")])

        deploy(agent, at("Cleared"), hosts={"Cleared": [], "Open": []})
        assert kinds(agent) == [("send", "Port")] * 2
        settling.give_back(agent, host, life.instance, [given.sequence])

    found = agent.suspended.messages()
    assert [row.reason.partition(".")[0] for row in found] == [
        "The host Cleared lacks the label secret of this message"
    ] * 3
    assert acting.resume(agent, [str(found[0].id)])[0].result.startswith("still suspended: The host Cleared lacks")
    deploy(agent, at("Cleared"), hosts=HOSTS)
    acting.resume(agent, [str(row.id) for row in found])
    assert agent.suspended.messages() == []
    assert unbalanced(database) == []


def test_port_that_leaves_a_host_together_with_the_label_takes_its_messages_along(agent: Agent) -> None:
    deploy(agent, at("Cleared"), hosts=HOSTS)
    publish_both(agent)

    deploy(agent, at("Open"), hosts={"Cleared": [], "Open": ["secret"]})

    assert (len(delivered_now(agent, "Open")), agent.suspended.messages()) == (2, [])


def test_where_no_host_has_labels_no_message_is_looked_at(agent: Agent, database: str) -> None:
    deploy(agent, at("Default"), hosts={"Open": []})
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION crossdock.why_withheld(message_number uuid, host_number smallint) RETURNS text"
            " LANGUAGE plpgsql STABLE AS $$ BEGIN RAISE 'somebody looks'; END $$"
        )
    publish(agent, *[NORWAY] * 3)

    with living(agent) as life:
        first, second, third = claim(agent, life)
        deploy(agent, at("Open"), hosts={"Open": []})
        settling.give_back(agent, 1, life.instance, [first.sequence])
        settling.retry(agent, 1, life.instance, [(second.sequence, AT_ONCE, "down")])
        settling.suspend(agent, 1, life.instance, [(third.sequence, "refused")])
    agent.queues.requeue_due(agent.configuration.hosts()["Open"])

    assert at_ports(agent) == {"Port": 2}
