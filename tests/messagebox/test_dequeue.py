"""Claiming, settling, retrying, suspending, and what becomes of references whose host instance dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest

import settling
from box import a_publication, count, deployment, ids, listed
from crossdock.errors import TransientError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.lifeline import Lifeline
from express import publish, rows
from interleave import dies
from server_clock import shift_clock, stop_clock
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


def published(agent: Agent, messages: int) -> int:
    """Publish messages that one port wants; gives the host."""
    agent.subscriptions.deploy(deployment(All="EXISTS(Region)"))
    [sequence] = listed(agent, "a")
    agent.publish([a_publication(agent, sequence, *({"Region": "NO"} for _ in range(messages)))])
    return ids(agent)[1]


@contextmanager
def living(agent: Agent, host: int) -> Iterator[Lifeline]:
    lifeline = agent.queues.lifeline(host)
    lifeline.hold()
    try:
        yield lifeline
    finally:
        lifeline.end()


def released(agent: Agent, host: int, database: str, *, claimed: int) -> None:
    """Free what the dead had claimed; the server takes a moment to notice that a session has ended."""

    def done() -> bool:
        agent.queues.release_dead(host)
        return count(database, "claimed") == claimed

    until(done, 10)


def test_reference_is_claimed_by_one_instance_and_gone_when_complete(agent: Agent, database: str) -> None:
    host = published(agent, 3)
    with living(agent, host) as one, living(agent, host) as two:
        first = agent.queues.dequeue(host, one.instance, limit=2)
        second = agent.queues.dequeue(host, two.instance, limit=2)

        settling.complete(agent, host, one.instance, [reference.sequence for reference in first])

    assert [len(first), len(second)] == [2, 1]
    assert first[0].message.body == b"%d/0" % (first[0].message.id.int >> 80)
    assert count(database, "claimed") == 1
    assert agent.statistics().ports == {"All": 2}


def test_retry_waits_until_it_is_due_and_counts_its_attempts(agent: Agent, database: str) -> None:
    host = published(agent, 1)
    with living(agent, host) as life:
        [reference] = agent.queues.dequeue(host, life.instance, limit=1)
        settling.retry(agent, host, life.instance, [(reference.sequence, timedelta(minutes=5), "down")])

        shift_clock(database, timedelta(minutes=4))
        agent.queues.requeue_due(host)
        assert agent.queues.dequeue(host, life.instance, limit=1) == []
        assert agent.statistics().waiting == 1
        shift_clock(database, timedelta(minutes=5))
        agent.queues.requeue_due(host)
        [again] = agent.queues.dequeue(host, life.instance, limit=1)

    assert (again.sequence, again.attempt) == (reference.sequence, 1)


def test_suspended_delivery_names_port_and_reason(agent: Agent) -> None:
    host = published(agent, 1)
    with living(agent, host) as life:
        [reference] = agent.queues.dequeue(host, life.instance, limit=1)
        settling.suspend(agent, host, life.instance, [(reference.sequence, "with a \0 in it")])

    [row] = agent.suspended.messages()
    assert (row.kind, row.port, row.reason) == ("send", "All", "with a \\0 in it")


def test_references_of_a_dead_instance_come_free_and_those_of_a_living_one_do_not(agent: Agent, database: str) -> None:
    host = published(agent, 2)
    with living(agent, host) as alive:
        with living(agent, host) as dying:
            agent.queues.dequeue(host, alive.instance, limit=1)
            [lost] = agent.queues.dequeue(host, dying.instance, limit=1)
            agent.queues.release_dead(host)
            assert agent.queues.dequeue(host, alive.instance, limit=9) == []
        released(agent, host, database, claimed=1)
        [found] = agent.queues.dequeue(host, alive.instance, limit=9)

    assert (found.sequence, found.attempt, found.deaths) == (lost.sequence, 0, 1)


def test_instance_taken_for_dead_cannot_settle_what_is_no_longer_its_own(agent: Agent, database: str) -> None:
    host = published(agent, 1)
    with living(agent, host) as dying:
        [reference] = agent.queues.dequeue(host, dying.instance, limit=1)
    released(agent, host, database, claimed=0)

    settling.complete(agent, host, dying.instance, [reference.sequence])

    assert count(database, "queue") == 1
    assert agent.statistics().delivered == 0


def test_nobody_is_taken_for_dead_right_after_the_server_started(agent: Agent, database: str) -> None:
    host = published(agent, 1)
    with living(agent, host) as dying:
        agent.queues.dequeue(host, dying.instance, limit=1)
        dies(database, dying)
    with psycopg.connect(database, autocommit=True) as connection:
        [(started,)] = connection.execute("SELECT pg_postmaster_start_time()")
        stop_clock(connection, started + timedelta(seconds=4))

    agent.queues.release_dead(host)

    assert count(database, "claimed") == 1


def test_instance_that_lost_its_connection_begins_anew_and_what_it_had_claimed_comes_free(
    agent: Agent, database: str
) -> None:
    host = published(agent, 1)
    with living(agent, host) as life:
        before = life.instance
        agent.queues.dequeue(host, before, limit=1)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                [before],
            )
        with pytest.raises(TransientError):
            life.check("running", 0)
        life.hold()

        assert life.instance != before
        released(agent, host, database, claimed=0)
        assert len(agent.queues.dequeue(host, life.instance, limit=1)) == 1


def test_waiting_instance_is_woken_by_a_publication(agent: Agent) -> None:
    host = published(agent, 1)
    [sequence] = listed(agent, "b")
    with living(agent, host) as life:
        agent.publish([a_publication(agent, sequence, {"Region": "NO"})])

        assert life.wait(60)


@pytest.mark.parametrize("limit", [10, 100])  # few come with their messages
def test_what_is_left_out_keeps_its_place_and_is_found_by_itself_and_with_all(
    agent: Agent, database: str, limit: int
) -> None:
    agent.subscriptions.deploy(deployment(Slow="EXISTS(Region)", Quick="EXISTS(Region)"))
    host = ids(agent)[1]
    services = dict(rows(database, "SELECT name, id FROM service"))
    slow, quick = services["Slow"], services["Quick"]
    publish(agent, *[{"Region": "NO"}] * 4)
    with living(agent, host) as life:

        def claim(
            count: int = limit, *, excluding: Sequence[int] = (), only: Sequence[int] = ()
        ) -> list[tuple[int, int]]:
            found = agent.queues.dequeue(host, life.instance, limit=count, excluding=excluding, only=only)
            return [(each.service_id, each.sequence) for each in found]

        first = claim(excluding=[slow])
        assert [service for service, _ in first] == [quick] * 4
        assert claim(excluding=[slow]) == []
        publish(agent, {"Region": "NO"})
        assert [service for service, _ in claim(excluding=[slow])] == [quick]

        two = claim(2, only=[slow])
        settling.give_back(agent, host, life.instance, [sequence for _, sequence in two])
        left = claim(only=[slow])
        assert [service for service, _ in left] == [slow] * 5
        assert left[:2] == two
        assert left == sorted(left)
        assert claim(only=[slow]) == []

        settling.give_back(agent, host, life.instance, [sequence for _, sequence in left])
        assert claim() == left
