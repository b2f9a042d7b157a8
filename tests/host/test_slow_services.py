"""Services that are slow, hang, or like batches: they hold few workers and messages, and those beside them go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Lock, Thread, get_ident

import pytest

from box import count
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Clock, Complete, Outcome, Service
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.overview import InstanceOverview
from express import at_ports, deploy, kinds, port, publish, rows, unbalanced
from service import Partner, publish_named, quick_upkeep, running, running_all, settled
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


class Bulk(Partner):
    """A partner for whom a batch takes as long as one message."""

    batches = True

    def __init__(self, answer: Callable[[int], list[Outcome]] | None = None) -> None:
        super().__init__()
        self._batch = answer or (lambda size: [Complete()] * size)
        self.sizes: list[int] = []

    def deliver_batch(self, messages: Sequence[tuple[Message, int]], *, now: Clock) -> Sequence[Outcome]:
        assert now().tzinfo is not None
        Event().wait(0.02)
        self.sizes.append(len(messages))
        return self._batch(len(messages))


def test_batches_do_not_become_small_where_each_takes_its_time(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, *[{"Region": "NO"}] * 2_000)
    bulk = Bulk()

    with running(agent, bulk):
        until(lambda: sum(bulk.sizes) == 2_000)

    assert len(bulk.sizes) < 200


def test_batch_with_fewer_outcomes_than_messages_is_suspended(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, {"Region": "NO"}, {"Region": "NO"})

    with running(agent, Bulk(lambda size: [Complete()] * (size - 1))):
        until(lambda: settled(agent))

    assert kinds(agent) == [("send", "A"), ("send", "A")]


def test_instance_that_has_its_hands_full_says_so_and_takes_no_more_until_there_is_room(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, *(f"m{n}" for n in range(300)))

    def answer(_: str, __: int) -> Outcome:
        Event().wait(0.02)  # not so slow that it is left to itself
        return Complete()

    partner = Partner(answer)
    with running(agent, partner, workers=2, in_hand=10):
        until(lambda: any("throttled" in each.state for each in instances(agent)), 30)
        assert 10 <= instances(agent)[0].in_hand <= 20  # two threads claim
        until(lambda: len(partner.got) == 300, 60)
        until(lambda: instances(agent)[0].state == "running", 30)

    assert Counter(partner.got) == Counter(f"m{n}" for n in range(300))
    assert unbalanced(database) == []


def instances(agent: Agent) -> Sequence[InstanceOverview]:
    """What the instances of the default host say of themselves."""
    [row] = [row for row in agent.configuration.list_hosts() if row.name == "Default"]
    return row.instances


class Hanging(Partner):
    """Gets stuck until the test lets it go on."""

    def __init__(self) -> None:
        self.go = Event()
        super().__init__(self._hang)

    def _hang(self, _: str, __: int) -> Outcome:
        assert self.go.wait(120)
        return Complete()


class HangingBulk(Bulk):
    def __init__(self) -> None:
        self.go = Event()
        super().__init__(self._hang)

    def _hang(self, size: int) -> list[Outcome]:
        assert self.go.wait(120)
        return [Complete()] * size


def test_what_a_hanging_service_has_no_room_for_stays_in_its_queue(agent: Agent, database: str) -> None:
    deploy(agent, port("Hangs", "Region = 'NO'"), port("Works", "Region = 'NO'", priority=6))
    hanging, working = Hanging(), Partner()
    services: dict[int, Service] = {
        service: hanging if name == "Hangs" else working for service, name in named(database).items()
    }
    names = [f"m{n}" for n in range(3_000)]
    publish_named(agent, *names)

    with running_all(agent, services) as made:
        until(lambda: len(working.got) == len(names), 60)
        until(
            lambda: made.in_hand <= 24, 30
        )  # 4 and 8 at work before and since it was known as slow, and some that wait
        assert count(database, "scheduled") == 0
        assert rows(database, "SELECT DISTINCT attempt FROM queue") == [(0,)]
        assert at_ports(agent)["Hangs"] >= len(names) - 24
        hanging.go.set()
        until(lambda: settled(agent), 60)

    assert Counter(hanging.got) == Counter(names)
    assert agent.statistics().ports == {"Hangs": 3_000, "Works": 3_000}
    assert unbalanced(database) == []


class Tiring(Hanging):
    """Quick, until the test says otherwise; notes how many deliveries it was given at once."""

    def __init__(self) -> None:
        super().__init__()
        self.tired = Event()
        self.begun = 0

    def _hang(self, name: str, attempt: int) -> Outcome:
        if not self.tired.is_set():
            return Complete()
        self.begun += 1
        return super()._hang(name, attempt)


def test_service_that_was_quick_and_then_hangs_does_not_hold_those_it_shares_slices_with(
    agent: Agent, database: str
) -> None:
    deploy(agent, *(port(f"Port{number}", "Region = 'NO'") for number in range(30)))
    tiring, working = Tiring(), {name: Partner() for name in named(database).values() if name != "Port7"}
    services: dict[int, Service] = {id_: working.get(name, tiring) for id_, name in named(database).items()}
    early, late = [f"early{n}" for n in range(30)], [f"late{n}" for n in range(60)]

    with running_all(agent, services):
        for name in early:  # one by one: afterwards each service is known as quick
            publish_named(agent, name)
        until(lambda: settled(agent), 60)
        tiring.tired.set()
        publish_named(agent, *late)
        until(lambda: all(len(each.got) == len(early + late) for each in working.values()), 60)
        assert 1 <= tiring.begun <= 16
        tiring.go.set()
        until(lambda: settled(agent), 60)

    for each in (tiring, *working.values()):
        assert Counter(each.got) == Counter(early + late)
    assert unbalanced(database) == []


def test_services_that_hang_with_batches_leave_room_for_the_others(agent: Agent, database: str) -> None:
    hang = [f"Hangs{n}" for n in range(5)]
    deploy(agent, *(port(name, "Region = 'NO'") for name in hang), port("Works", "Region = 'NO'", priority=6))
    working = Partner()
    bulks = {name: HangingBulk() for name in hang}
    services: dict[int, Service] = {service: bulks.get(name, working) for service, name in named(database).items()}
    publish(agent, *[{"Region": "NO"}] * 2_000)

    with running_all(agent, services):
        try:
            until(lambda: len(working.attempts) == 2_000, 60)
        finally:
            for bulk in bulks.values():
                bulk.go.set()
        until(lambda: settled(agent), 60)

    assert agent.statistics().ports == dict.fromkeys([*hang, "Works"], 2_000)


def test_services_that_are_rather_slow_leave_room_for_a_quick_one(agent: Agent, database: str) -> None:
    slow = [f"Slow{n}" for n in range(5)]
    deploy(agent, *(port(name, "Region = 'NO'") for name in slow), port("Quick", "Region = 'NO'", priority=6))

    at_once, most, counting = [0], [0], Lock()

    def answer(_: str, __: int) -> Outcome:
        with counting:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        Event().wait(0.03)
        with counting:
            at_once[0] -= 1
        return Complete()

    quick, partners = Partner(), {name: Partner(answer) for name in slow}
    for partner in partners.values():
        partner.in_flight = 8
    services: dict[int, Service] = {service: partners.get(name, quick) for service, name in named(database).items()}
    publish(agent, *[{"Region": "NO"}] * 2_000)

    with running_all(agent, services):
        until(lambda: len(quick.got) == 2_000, 60)
        assert max(len(partner.got) for partner in partners.values()) < 1_500
        until(lambda: settled(agent), 60)

    assert agent.statistics().ports == dict.fromkeys([*slow, "Quick"], 2_000)
    assert most[0] > 30  # of the 40 that they take, though there are four workers to begin with
    assert unbalanced(database) == []


class Together(Partner):
    """Waits a moment for each message, and knows in which threads it was at work."""

    def __init__(self, seconds: float) -> None:
        super().__init__(self._wait)
        self._seconds = seconds
        self.threads: set[int] = set()

    def has(self, number: int) -> bool:
        return len(self.got) == number

    def _wait(self, _: str, __: int) -> Outcome:
        self.threads.add(get_ident())
        if self._seconds:
            Event().wait(self._seconds)
        return Complete()


def test_many_workers_are_there_for_a_service_that_waits_and_few_for_one_that_does_not(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    for seconds, few in (0.005, False), (0.0, True):
        partner = Together(seconds)
        partner.in_flight = 48
        publish(agent, *[{"Region": "NO"}] * 2_000)
        with running(agent, partner, workers=48):
            until(partial(partner.has, 2_000), 60)
            until(lambda: settled(agent), 60)
        threads = len(partner.threads)
        assert threads <= 8 if few else threads > 40, (few, threads)


def test_what_waits_for_a_service_that_is_undeployed_goes_back_when_the_instance_stops(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    hanging = Hanging()
    hanging.in_flight = 1
    deployed: list[Service | None] = [hanging]
    publish_named(agent, *(f"m{n}" for n in range(20)))
    made = HostInstance(agent, agent.configuration.hosts()["Default"], lambda _: deployed[0], limits=quick_upkeep())
    made.start()
    stop = Thread(target=made.stop)
    try:
        until(lambda: made.in_hand == 2, 10)
        deployed[0] = None
        publish_named(agent, "one that finds it gone")
        until(lambda: count(database, "suspended") >= 1)  # soon those that went back will be, too
        stop.start()
        until(lambda: agent.statistics().claimed == 1)
    finally:
        hanging.go.set()
        stop.join()

    assert hanging.got == ["m0"]
    assert rows(database, "SELECT DISTINCT attempt FROM queue") == [(0,)]


def test_two_instances_share_what_a_slow_service_left(agent: Agent, database: str) -> None:
    deploy(agent, port("Slow", "Region = 'NO'"))

    def answer(_: str, __: int) -> Outcome:
        Event().wait(0.06)
        return Complete()

    slow, names = Partner(answer), [f"m{n}" for n in range(600)]
    slow.in_flight = 4
    publish_named(agent, *names)

    with Agent(database) as other, running(agent, slow):
        with running(other, slow):
            until(lambda: len(slow.got) > 100, 60)
        until(lambda: settled(agent), 60)

    assert Counter(slow.got) == Counter(names)
    assert unbalanced(database) == []


def named(database: str) -> dict[int, str]:
    """The names of the services by their ids."""
    return dict(rows(database, "SELECT id, name FROM service"))
