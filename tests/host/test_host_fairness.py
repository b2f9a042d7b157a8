"""Who waits for whom at a host instance: ordered lines, slow services and correlated messages leave each other room."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import Event
from time import monotonic
from uuid import uuid4

import pytest

from crossdock.host.outcome import Complete, Outcome, Service
from crossdock.message.message import Part
from crossdock.messagebox.agent import Agent
from express import a_message, at_ports, deploy, port, publish, rows, unbalanced
from service import Partner, publish_named, running_all, settled
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


class Slow(Partner):
    """Takes its time for every message, or hangs until the test lets it go on."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(self._wait)
        self._seconds = seconds
        self.begun = Event()
        self.go = Event()
        self.at_work = 0

    def _wait(self, _: str, __: int) -> Outcome:
        with self._lock:
            self.at_work += 1
        self.begun.set()
        assert self.go.wait(self._seconds or 120) or self._seconds
        with self._lock:
            self.at_work -= 1
        return Complete()

    def has(self, name: str) -> bool:
        return name in self.got


def by_name(database: str, partners: Mapping[str, Partner]) -> dict[int, Service]:
    return {service: partners[name] for service, name in rows(database, "SELECT id, name FROM service")}


def publish_swedish(agent: Agent, *names: str) -> None:
    publish(agent, *(a_message(agent, {"Region": "SE"}, parts=[Part("body", name.encode())]) for name in names))


def test_ordered_lines_that_hang_leave_room_for_every_other_port(agent: Agent, database: str) -> None:
    names = [f"Line{n}" for n in range(30)]
    lines = {name: Slow() for name in names}
    others = {"Works": Partner(), "InOrder": Partner()}
    deploy(
        agent,
        *(port(name, "Region = 'NO'", ordered=True) for name in names),
        port("Works", "Region = 'SE'"),
        port("InOrder", "Region = 'SE'", ordered=True),
    )
    publish_named(agent, *(f"{n:03}" for n in range(120)))

    with running_all(agent, by_name(database, {**lines, **others})) as made:
        until(lambda: all(line.begun.is_set() for line in lines.values()), 30)
        began = monotonic()
        publish_swedish(agent, *(f"{n:03}" for n in range(10)))
        until(lambda: len(others["Works"].got) == len(others["InOrder"].got) == 10, 10)
        assert monotonic() - began < 5
        until(lambda: made.in_hand <= 30 * 10, 10)  # what the others got is settled a moment later
        assert others["InOrder"].got == [f"{n:03}" for n in range(10)]
        for line in lines.values():
            line.go.set()
        until(lambda: settled(agent), 60)

    assert all(line.got == [f"{n:03}" for n in range(120)] for line in lines.values())
    assert unbalanced(database) == []


def test_slow_ordered_lines_take_turns_and_hold_up_nobody(agent: Agent, database: str) -> None:
    names = [f"Line{n:02}" for n in range(26)]
    lines = {name: Slow(0.05) for name in names}
    quick = Partner()
    deploy(agent, *(port(name, "Region = 'NO'", ordered=True) for name in names), port("Quick", "Region = 'SE'"))
    publish_named(agent, *(f"{n:03}" for n in range(200)))

    with running_all(agent, by_name(database, {**lines, "Quick": quick})) as made:
        until(lambda: all(line.got for line in lines.values()), 30)
        waited = []
        for number in range(10):
            began = monotonic()
            publish_swedish(agent, f"{number}")
            until(lambda: quick.heard.wait(0.01), 10)
            quick.heard.clear()
            waited.append(monotonic() - began)
        until(lambda: min(len(line.got) for line in lines.values()) >= 60, 60)
        got = [len(line.got) for line in lines.values()]
        assert made.in_hand <= 26 * 12
        for line in lines.values():
            line.go.set()

    assert sorted(waited)[5] < 0.5, waited
    assert max(got) - min(got) <= 40, got


def test_line_that_was_quick_is_claimed_by_the_hundred(agent: Agent, database: str) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    partner = Partner()
    publish_named(agent, *(f"{n:04}" for n in range(1_000)))

    with running_all(agent, by_name(database, {"Line": partner})):
        until(lambda: settled(agent), 30)

    assert partner.got == [f"{n:04}" for n in range(1_000)]
    [(most,)] = rows(database, "SELECT max(count) FROM delivery")
    assert most == 100


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.5], ids=["rather slow", "slow", "very slow"])
def test_message_that_an_instance_waits_for_overtakes_what_would_begin_new_ones(
    agent: Agent, database: str, seconds: float
) -> None:
    deploy(agent, port("Process", "Region = 'NO'"))
    agent.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "SE"})
    slow = Slow(seconds)
    publish_named(agent, *(f"{n}" for n in range(5_000)))

    with running_all(agent, by_name(database, {"Process": slow})):
        until(lambda: len(slow.got) >= 20, 30)
        waited = []
        for name in ("first", "second", "third"):
            began = monotonic()
            publish_swedish(agent, name)
            until(partial(slow.has, name), 30)
            waited.append(monotonic() - began)
        assert at_ports(agent)["Process"] > 1_000

    assert max(waited) < 2 + 2 * seconds, waited


def test_message_that_an_instance_waits_for_finds_room_where_hands_are_full(agent: Agent, database: str) -> None:
    never_slow = {"slow_seconds": 3600.0, "stalled_seconds": 3600.0}  # a service that hangs holds what it holds
    deploy(agent, port("Hangs", "Region = 'NO'"), port("Process"))
    agent.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "SE"})
    hanging, process = Slow(), Partner()
    services = by_name(database, {"Hangs": hanging, "Process": process})

    with running_all(agent, services, workers=8, in_hand=5, **never_slow) as made:
        publish_named(agent, *(f"{n}" for n in range(5)))
        until(lambda: made.in_hand == 5, 30)
        publish_swedish(agent, "awaited")
        until(lambda: process.got == ["awaited"], 10)
        hanging.go.set()


@pytest.mark.parametrize("in_flight", [None, 20], ids=["as many as they get", "as many as they say"])
@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "with ordered ones"])
def test_workers_are_kept_for_quick_ports_however_many_hang(
    agent: Agent, database: str, in_flight: int | None, ordered: bool
) -> None:
    few_workers = {"most_workers": 96, "workers_for_quick": 16}
    names = [f"Hangs{n}" for n in range(30)]
    hanging, quick = {name: Slow() for name in names}, Partner()
    for each in hanging.values():
        each.in_flight = in_flight
    lines = names[:10] if ordered else []
    deploy(
        agent, *(port(name, "Region = 'NO'", ordered=name in lines) for name in names), port("Quick", "Region = 'SE'")
    )
    publish_named(agent, *(f"{n}" for n in range(20)))

    with running_all(agent, by_name(database, {**hanging, "Quick": quick}), **few_workers):
        until(lambda: sum(each.at_work for each in hanging.values()) >= 78, 60)
        until(lambda: not hanging_more(hanging), 60)
        began = monotonic()
        publish_swedish(agent, *(f"{n}" for n in range(10)))
        until(lambda: len(quick.got) == 10, 10)
        assert monotonic() - began < 5
        for each in hanging.values():
            each.go.set()
        until(lambda: settled(agent), 60)

    assert agent.statistics().ports == {**dict.fromkeys(names, 20), "Quick": 10}
    assert unbalanced(database) == []


def hanging_more(hanging: Mapping[str, Slow]) -> bool:
    """Whether more deliveries hang than a moment ago."""
    before = sum(each.at_work for each in hanging.values())
    Event().wait(0.5)
    return sum(each.at_work for each in hanging.values()) > before
