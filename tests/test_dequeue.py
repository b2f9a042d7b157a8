"""Claiming, settling, retrying, suspending, and what becomes of references whose host instance dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest

from box import NOW, an_interchange, count, deployment, ids, listed
from crossdock.errors import TransientError
from crossdock.messagebox import queues
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.lifeline import Lifeline
from express import publish, rows
from walk import until


def published(agent: Agent, messages: int) -> int:
    """Publish messages that one port wants; gives the host."""
    agent.deploy(deployment(All="EXISTS(Region)"))
    [sequence] = listed(agent, "a")
    agent.publish([an_interchange(agent, sequence, *({"Region": "NO"} for _ in range(messages)))])
    return ids(agent)[1]


@contextmanager
def living(agent: Agent, host: int) -> Iterator[Lifeline]:
    lifeline = agent.lifeline(host)
    lifeline.hold()
    try:
        yield lifeline
    finally:
        lifeline.end()


def released(agent: Agent, host: int, database: str, *, claimed: int) -> None:
    """Free what the dead had claimed; the server takes a moment to notice that a session has ended."""

    def done() -> bool:
        agent.release_dead(host)
        return count(database, "claimed") == claimed

    until(done, 10)


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the tests has just started; its grace for coming back is tested by itself."""
    monkeypatch.setattr(queues, "_DEAD_GRACE", timedelta(0))


def test_reference_is_claimed_by_one_instance_and_gone_when_complete(agent: Agent, database: str) -> None:
    host = published(agent, 3)
    with living(agent, host) as one, living(agent, host) as two:
        first = agent.dequeue(host, one.instance, limit=2, now=NOW)
        second = agent.dequeue(host, two.instance, limit=2, now=NOW)

        agent.complete(host, one.instance, [reference.sequence for reference in first], now=NOW)

    assert [len(first), len(second)] == [2, 1]
    assert first[0].message.body == b"%d/0" % (first[0].message.id.int >> 80)
    assert count(database, "claimed") == 1
    assert agent.statistics().ports == {"All": 2}


def test_retry_waits_until_it_is_due_and_counts_its_attempts(agent: Agent) -> None:
    host = published(agent, 1)
    with living(agent, host) as life:
        [reference] = agent.dequeue(host, life.instance, limit=1, now=NOW)
        agent.retry(host, life.instance, [(reference.sequence, NOW + timedelta(minutes=5), "down")], now=NOW)

        agent.requeue_due(host, now=NOW + timedelta(minutes=4))
        assert agent.dequeue(host, life.instance, limit=1, now=NOW) == []
        assert agent.statistics().waiting == 1
        agent.requeue_due(host, now=NOW + timedelta(minutes=5))
        [again] = agent.dequeue(host, life.instance, limit=1, now=NOW)

    assert (again.sequence, again.attempt) == (reference.sequence, 1)


def test_suspended_delivery_names_port_and_reason(agent: Agent) -> None:
    host = published(agent, 1)
    with living(agent, host) as life:
        [reference] = agent.dequeue(host, life.instance, limit=1, now=NOW)
        agent.suspend(host, life.instance, [(reference.sequence, "with a \0 in it")], now=NOW)

    [row] = agent.suspended()
    assert (row.kind, row.port, row.reason) == ("send", "All", "with a \\0 in it")


def test_references_of_a_dead_instance_come_free_and_those_of_a_living_one_do_not(agent: Agent, database: str) -> None:
    host = published(agent, 2)
    with living(agent, host) as alive:
        with living(agent, host) as dying:
            agent.dequeue(host, alive.instance, limit=1, now=NOW)
            [lost] = agent.dequeue(host, dying.instance, limit=1, now=NOW)
            agent.release_dead(host)
            assert agent.dequeue(host, alive.instance, limit=9, now=NOW) == []
        released(agent, host, database, claimed=1)
        [found] = agent.dequeue(host, alive.instance, limit=9, now=NOW)

    assert (found.sequence, found.attempt, found.deaths) == (lost.sequence, 0, 1)


def test_instance_taken_for_dead_cannot_settle_what_is_no_longer_its_own(agent: Agent, database: str) -> None:
    host = published(agent, 1)
    with living(agent, host) as dying:
        [reference] = agent.dequeue(host, dying.instance, limit=1, now=NOW)
    released(agent, host, database, claimed=0)

    agent.complete(host, dying.instance, [reference.sequence], now=NOW)

    assert count(database, "queue") == 1
    assert agent.statistics().delivered == 0


def test_nobody_is_taken_for_dead_right_after_the_server_started(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_DEAD_GRACE", timedelta(days=365))
    host = published(agent, 1)
    with living(agent, host) as dying:
        agent.dequeue(host, dying.instance, limit=1, now=NOW)

    agent.release_dead(host)

    assert count(database, "claimed") == 1


def test_instance_that_lost_its_connection_begins_anew_and_what_it_had_claimed_comes_free(
    agent: Agent, database: str
) -> None:
    host = published(agent, 1)
    with living(agent, host) as life:
        before = life.instance
        agent.dequeue(host, before, limit=1, now=NOW)
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
        assert len(agent.dequeue(host, life.instance, limit=1, now=NOW)) == 1


def test_waiting_instance_is_woken_by_a_publication(agent: Agent) -> None:
    host = published(agent, 1)
    [sequence] = listed(agent, "b")
    with living(agent, host) as life:
        agent.publish([an_interchange(agent, sequence, {"Region": "NO"})])

        assert life.wait(60)


@pytest.mark.parametrize("limit", [10, 100])  # few come with their messages
def test_what_is_left_out_keeps_its_place_and_is_found_by_itself_and_with_all(
    agent: Agent, database: str, limit: int
) -> None:
    agent.deploy(deployment(Slow="EXISTS(Region)", Quick="EXISTS(Region)"))
    host = ids(agent)[1]
    services = dict(rows(database, "SELECT name, id FROM service"))
    slow, quick = services["Slow"], services["Quick"]
    publish(agent, *[{"Region": "NO"}] * 4)
    with living(agent, host) as life:

        def claim(count: int = limit, *, but: Sequence[int] = (), only: Sequence[int] = ()) -> list[tuple[int, int]]:
            found = agent.dequeue(host, life.instance, limit=count, now=NOW, but=but, only=only)
            return [(each.service_id, each.sequence) for each in found]

        first = claim(but=[slow])
        assert [service for service, _ in first] == [quick] * 4
        assert claim(but=[slow]) == []
        publish(agent, {"Region": "NO"})
        assert [service for service, _ in claim(but=[slow])] == [quick]

        two = claim(2, only=[slow])
        agent.give_back(host, life.instance, [sequence for _, sequence in two])
        left = claim(only=[slow])
        assert [service for service, _ in left] == [slow] * 5
        assert left[:2] == two
        assert left == sorted(left)
        assert claim(only=[slow]) == []

        agent.give_back(host, life.instance, [sequence for _, sequence in left])
        assert claim() == left
