"""Ordered lines at host instances: in order, one holder at a time, through failures and deaths."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from uuid import UUID, uuid4

import psycopg
import pytest

import settling
from box import count
from crossdock.errors import TransientError
from crossdock.host.outcome import Answer, Complete, Outcome, Retry, Suspend
from crossdock.message.publication import Publication, Settles
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.lifeline import INSTANCE_LOCK
from crossdock.messagebox.rows import Published
from crossdock.messagebox.statement import host_text
from express import a_message, deploy, kinds, living, port, rows, unbalanced
from server_clock import shift_clock
from service import Partner, publish_named, running
from walk import until

LATER = timedelta(minutes=5)


pytestmark = pytest.mark.usefixtures("no_grace")


def test_ordered_port_delivers_in_order_and_waits_behind_the_one_that_failed(agent: Agent, database: str) -> None:
    names = [f"{n:03}" for n in range(250)]
    down = Event()
    down.set()

    def answer(name: str, _: int) -> Outcome:
        if name == "007":
            return Suspend("refused")
        return Retry(LATER, "down") if name == "120" and down.is_set() else Complete()

    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, *names[:200])
    partner = Partner(answer)

    with running(agent, partner, workers=4), running(agent, partner, workers=4):
        until(lambda: ("120", 0) in partner.attempts and agent.queues.idle(agent.configuration.hosts()["Default"]), 30)
        publish_named(agent, *names[200:])
        assert partner.got == [name for name in names[:120] if name != "007"]
        down.clear()
        shift_clock(database, LATER)
        until(lambda: len(partner.got) == 249, 30)
        until(lambda: count(database, "claimed") == 0, 30)

    assert partner.got == [name for name in names if name != "007"]
    assert [each for each in partner.attempts if each[0] == "120"] == [("120", 0), ("120", 1)]
    assert kinds(agent) == [("send", "Line")]
    assert rows(database, "SELECT held_by, blocked_until FROM subqueue_lease") == [(None, None)]
    assert unbalanced(database) == []


def test_line_whose_references_vanish_while_it_is_taken_is_not_held_for_nothing(agent: Agent, database: str) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, "vanishes")
    host, process = agent.configuration.hosts()["Default"], uuid4()
    with psycopg.connect(database, options="-csearch_path=crossdock") as ending, ThreadPoolExecutor(1) as pool:
        ending.execute("UPDATE queue SET instance_id = %s", [process])
        ending.commit()
        with living(agent) as life:
            ending.execute(host_text("discard", None), {"instance": [process]})
            claiming = pool.submit(agent.queues.dequeue_ordered, host, life.instance, limit=10)
            until(lambda: bool(rows(database, "SELECT FROM pg_locks WHERE NOT granted")), 10)
            ending.commit()
            assert claiming.result() == []

            publish_named(agent, "follows")

            assert [each.message.body for each in agent.queues.dequeue_ordered(host, life.instance, limit=10)] == [
                b"follows"
            ]
    assert kinds(agent) == [("discarded", "Line")]


def test_lease_of_an_ordered_line_comes_free_with_its_dead_holder_and_order_is_kept(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, "1", "2", "3")
    host = agent.configuration.hosts()["Default"]
    with living(agent) as dying, living(agent) as alive:
        taken = agent.queues.dequeue_ordered(host, dying.instance, limit=2)
        agent.queues.release_dead(host)
        assert agent.queues.dequeue_ordered(host, alive.instance, limit=9) == []
        dying.end()

        def freed() -> bool:
            agent.queues.release_dead(host)
            return count(database, "claimed") == 0

        until(freed, 10)
        again = agent.queues.dequeue_ordered(host, alive.instance, limit=9)
        late = settling.SubqueueOutcome(completed=[each.sequence for each in taken])
        settling.settle_subqueue(agent, host, dying.instance, taken[0].service_id, late)
        assert agent.queues.dequeue_ordered(host, dying.instance, limit=9) == []

    assert [(each.message.body, each.attempt, each.deaths) for each in again] == [
        (b"1", 0, 1),
        (b"2", 0, 1),
        (b"3", 0, 0),
    ]
    assert agent.statistics().delivered == 0
    assert unbalanced(database) == []


def test_instance_that_begins_anew_leaves_the_rest_of_its_line_to_others(agent: Agent, database: str) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, "1", "2", "3")
    begun, go = Event(), Event()

    def slow(_: str, __: int) -> Outcome:
        begun.set()
        assert go.wait(30)
        return Complete()

    first, second = Partner(slow), Partner()
    with Agent(database) as other, running(agent, first):
        assert begun.wait(20)
        [(before,)] = rows(database, "SELECT id FROM host_instance")
        end_lives(database)
        until(lambda: bool(rows(database, "SELECT FROM host_instance WHERE id <> %s", before)), 20)
        with running(other, second):
            until(lambda: second.got == ["1", "2", "3"], 20)
            go.set()
            until(lambda: first.got == ["1"], 20)
            publish_named(agent, "4")
            until(lambda: "4" in first.got + second.got, 20)

    assert set(first.got) <= {"1", "4"}
    assert agent.statistics().ports == {"Line": 4}
    assert unbalanced(database) == []


def end_lives(database: str) -> None:
    """The connections that say that instances live are lost."""
    held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s::integer::oid AND objsubid = 2"
    rows(database, f"SELECT pg_terminate_backend(pid) FROM ({held}) AS living", INSTANCE_LOCK)


class UnpublishingAgent(Agent):
    """Is away whenever an answer is to be published."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.asked = Event()

    def publish(self, publications: Sequence[Publication], *, location_epoch: UUID | None = None) -> Published:
        if any(isinstance(each.cause, Settles) for each in publications):
            self.asked.set()
            raise TransientError("The MessageBox cannot be reached")
        return super().publish(publications, location_epoch=location_epoch)


def test_answer_that_is_not_published_when_the_instance_stops_keeps_its_place_in_the_line(database: str) -> None:
    with UnpublishingAgent(database) as agent:
        deploy(agent, port("Line", "Region = 'NO'", ordered=True))
        publish_named(agent, "1", "2")
        partner = Partner(lambda _, __: Answer((a_message(agent),)))

        with running(agent, partner):
            assert agent.asked.wait(20)

        assert rows(database, "SELECT attempt FROM queue ORDER BY sequence") == [(1,), (0,)]
        assert rows(database, "SELECT held_by FROM subqueue_lease") == [(None,)]
        assert count(database, "claimed") == 0
    assert partner.attempts == [("1", 0)]
