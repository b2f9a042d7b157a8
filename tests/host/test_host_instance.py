"""Host instances at work: they deliver everything, retry, suspend, share, stop, and outlive their connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from decimal import Decimal
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import pytest

import settling
from box import AT_ONCE, count
from crossdock.errors import TransientError
from crossdock.host import dispatcher as host_dispatcher
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Complete, Outcome, Retry, Service, Suspend
from crossdock.message.property import Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.rows import Reference
from express import a_message, at_ports, deploy, kinds, living, port, publish, rows, unbalanced
from server_clock import JumpingClock
from service import Partner, publish_named, quick_upkeep, running, settled
from walk import until

FIVE_MINUTES = timedelta(minutes=5)


pytestmark = pytest.mark.usefixtures("no_grace")


def test_everything_is_delivered_retried_or_suspended_as_the_service_says(agent: Agent, database: str) -> None:
    clock = JumpingClock(database)

    def answer(name: str, attempt: int) -> Outcome:
        if name == "broken":
            raise ZeroDivisionError("a bug")
        if name == "refused":
            return Suspend("with a \0 in it")
        return Retry(FIVE_MINUTES, "down") if name == "later" and attempt < 2 else Complete()

    deploy(agent, port("A", "Region = 'NO'"))
    names = [f"m{n}" for n in range(600)]
    publish_named(agent, *names, "later", "refused", "broken")
    partner = Partner(answer)

    with running(agent, partner):
        until(lambda: settled(agent), 30)
        assert Counter(partner.got) == Counter(names)
        assert (agent.statistics().waiting, agent.statistics().suspended) == (1, 2)
        clock.jump(minutes=5)
        until(lambda: ("later", 1) in partner.attempts and settled(agent), 30)
        assert agent.statistics().waiting == 1
        clock.jump(minutes=5)
        until(lambda: "later" in partner.got and settled(agent), 30)

    assert [attempt for name, attempt in partner.attempts if name == "later"] == [0, 1, 2]
    assert {row.reason for row in agent.suspended.messages()} == {
        "with a \\0 in it",
        "Unexpected ZeroDivisionError: a bug",
    }
    assert agent.statistics().ports == {"A": 601}
    assert unbalanced(database) == []


def test_reference_of_a_port_nobody_knows_is_suspended(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "m")

    with running(agent, None):
        until(lambda: kinds(agent) == [("send", "A")], 20)


def test_service_that_cannot_be_looked_up_for_a_moment_is_tried_again(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    partner, refused = Partner(), iter([True, True])
    publish_named(agent, *"abcdef")

    def find(service_id: int) -> Service:
        assert service_id > 0
        if next(refused, False):
            raise TransientError("The MessageBox cannot be reached")
        return partner

    clock = JumpingClock(database)
    made = HostInstance(agent, agent.configuration.hosts()["Default"], find, limits=quick_upkeep(workers=2))
    made.start()
    try:

        def all_delivered() -> bool:
            clock.jump(minutes=5)
            return sorted(partner.got) == list("abcdef")

        until(all_delivered, 10)
        made.check()
    finally:
        made.stop()


def test_stop_finishes_what_has_begun_and_gives_back_the_rest_untouched(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("Line", "Region = 'NO'", ordered=True))
    begun, finish = Event(), Event()

    def answer(_: str, __: int) -> Outcome:
        begun.set()
        assert finish.wait(30)
        return Complete()

    partner = Partner(answer)
    publish_named(agent, *(f"m{n}" for n in range(20)))
    made = HostInstance(
        agent, agent.configuration.hosts()["Default"], lambda _: partner, limits=quick_upkeep(workers=1)
    )
    made.start()
    assert begun.wait(20)
    until(lambda: count(database, "claimed") == 30, 20)  # of a line not all at once

    stopping = Thread(target=made.stop)
    stopping.start()
    # One is being delivered, by itself or as the first of those the line had claimed.
    until(lambda: count(database, "claimed") in (1, 10), 20)
    finish.set()
    stopping.join(20)

    assert not stopping.is_alive()
    assert len(partner.got) == 1
    assert (count(database, "claimed"), agent.statistics().delivered) == (0, 1)
    assert rows(database, "SELECT held_by FROM subqueue_lease") == [(None,)]
    assert rows(database, "SELECT DISTINCT attempt FROM queue") == [(0,)]
    assert at_ports(agent) in ({"A": 19, "Line": 20}, {"A": 20, "Line": 19})
    assert unbalanced(database) == []


def test_instances_that_stop_in_the_middle_of_their_work_always_end(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    partner = Partner()
    publish_named(agent, *(f"m{n}" for n in range(600)))

    for _ in range(4):
        partner.heard.clear()
        made = HostInstance(
            agent, agent.configuration.hosts()["Default"], lambda _: partner, limits=quick_upkeep(workers=8)
        )
        made.start()
        until(lambda: partner.heard.is_set() or settled(agent), 20)
        stopping = Thread(target=made.stop, daemon=True)
        stopping.start()
        stopping.join(20)
        assert not stopping.is_alive()

    with running(agent, partner):
        until(lambda: settled(agent), 30)
    assert Counter(partner.got) == Counter(f"m{n}" for n in range(600))
    assert agent.statistics().ports == {"A": 600}
    assert unbalanced(database) == []


def test_stop_ends_also_when_a_worker_takes_the_last_reference_just_before(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Event()

    class Overtaken(SimpleQueue[Any]):
        """A queue whose answer is old by the time it arrives: a worker has taken what was there."""

        def empty(self) -> bool:
            answer = super().empty()
            if not finish.is_set():
                finish.set()
                until(super().empty, 10)
            return answer

    def answer(_: str, __: int) -> Outcome:
        assert finish.wait(30)
        return Complete()

    monkeypatch.setattr(host_dispatcher, "SimpleQueue", Overtaken)
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "begun", "waits")
    partner = Partner(answer)
    made = HostInstance(
        agent, agent.configuration.hosts()["Default"], lambda _: partner, limits=quick_upkeep(workers=1)
    )
    made.start()
    until(lambda: count(database, "claimed") == 2, 20)
    stopping = Thread(target=made.stop, daemon=True)

    stopping.start()
    until(lambda: finish.is_set() or count(database, "claimed") == 1, 20)
    finish.set()
    stopping.join(10)

    assert not stopping.is_alive()
    assert len(partner.got) + count(database, "queue") == 2


def test_several_instances_share_the_queue_and_nothing_is_delivered_twice(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'", priority=1))
    partner = Partner()
    names = [f"m{n}" for n in range(400)]

    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(running(stack.enter_context(Agent(database)), partner))
        for start in range(0, 400, 50):
            publish_named(agent, *names[start : start + 50])
        until(lambda: settled(agent), 30)

    assert Counter(partner.got) == Counter(names * 2)
    assert agent.statistics().ports == {"A": 400, "B": 400}
    assert unbalanced(database) == []


def test_instance_goes_on_after_all_its_connections_were_terminated(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("Line", "Region = 'NO'", ordered=True))
    partner = Partner()
    names = [f"m{n}" for n in range(300)]

    with Agent(database) as publisher, Agent(database) as working, running(working, partner) as made:
        for start in (0, 100, 200):
            partner.heard.clear()
            publish_named(publisher, *names[start : start + 100])
            assert partner.heard.wait(20)
            terminate_all(publisher, database)
        until(lambda: able(lambda: settled(publisher)), 30)
        made.check()
        publish_named(publisher, "after")
        until(lambda: partner.got.count("after") == 2, 30)
        until(lambda: able(lambda: settled(publisher)), 30)

    assert set(partner.got) == {*names, "after"}
    until(lambda: able(lambda: agent.epoch().number > 0), 20)  # its connection was terminated too
    assert agent.statistics().ports == {"A": 301, "Line": 301}
    assert (count(database, "queue"), count(database, "claimed"), count(database, "scheduled")) == (0, 0, 0)
    assert unbalanced(database) == []


class UnheardAgent(Agent):
    """Makes a claim and does not hear what it got, once, of every kind that finds something."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.unheard: list[str] = []
        self.queues = UnheardQueues(self._database, self.messages)
        self.queues.unheard = self.unheard


class UnheardQueues(Queues):
    unheard: list[str]

    def dequeue(self, *given: Any, **more: Any) -> list[Reference]:
        return self._hear("dequeue", super().dequeue(*given, **more))

    def dequeue_ordered(self, *given: Any, **more: Any) -> list[Reference]:
        return self._hear("dequeue_ordered", super().dequeue_ordered(*given, **more))

    def _hear(self, verb: str, claimed: list[Reference]) -> list[Reference]:
        if claimed and verb not in self.unheard:
            self.unheard.append(verb)
            raise TransientError("The connection is lost.")
        return claimed


def test_claim_whose_answer_was_lost_comes_free_with_the_life_it_was_made_in(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("Line", "Region = 'NO'", ordered=True))
    names = [f"m{n}" for n in range(5)]
    publish_named(agent, *names)
    partner = Partner()

    with UnheardAgent(database) as unheard, running(unheard, partner):
        until(lambda: settled(agent), 30)

    assert sorted(unheard.unheard) == ["dequeue", "dequeue_ordered"]
    assert Counter(partner.got) == Counter(names * 2)
    assert agent.statistics().ports == {"A": 5, "Line": 5}
    assert unbalanced(database) == []


def terminate_all(publisher: Agent, database: str) -> None:
    """Every connection to this database but the one that does it."""
    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    rows(database, query)
    until(lambda: able(lambda: publisher.epoch().number > 0), 20)


def able(question: Callable[[], bool]) -> bool:
    """Ask, where PostgreSQL may be away for a moment."""
    try:
        return question()
    except TransientError:
        return False


def test_service_that_says_nothing_has_its_message_suspended(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "silent")

    with running(agent, Partner(lambda _, __: None)):  # type: ignore[arg-type, return-value]
        until(lambda: settled(agent))

    assert kinds(agent) == [("send", "A")]


@pytest.mark.parametrize("value", [2**70, Decimal("NaN"), Decimal("1e50")])
def test_value_that_fits_no_property_does_not_end_the_host(agent: Agent, value: Value) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, a_message(agent, {"Region": "NO"}, written={"Odd": value}))

    with running(agent, Partner()):
        until(lambda: settled(agent))

    assert at_ports(agent, "delivered") == {"A": 1}


def test_all_that_is_due_comes_back_at_once(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    host = agent.configuration.hosts()["Default"]
    publish(agent, *[{"Region": "NO"}] * 2_500)
    with living(agent) as life:
        claimed = agent.queues.dequeue(host, life.instance, limit=2_500)
        settling.postpone(agent, host, life.instance, [(each.sequence, AT_ONCE, "later") for each in claimed])

    with running(agent, Partner(), upkeep_seconds=600):
        until(lambda: at_ports(agent, "delivered") == {"A": 2_500})
