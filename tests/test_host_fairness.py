"""Who waits for whom at a host instance: ordered lines, slow services and correlated messages leave each other room."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from threading import Event
from time import monotonic

import pytest

from crossdock.host.outcome import Complete, Outcome, Service
from crossdock.message.message import Part
from crossdock.messagebox.agent import Agent
from express import a_message, deploy, port, publish, rows, unbalanced
from service import Partner, publish_named, running_all, settled
from walk import until

pytestmark = pytest.mark.usefixtures("quick_upkeep")


class Slow(Partner):
    """Takes its time for every message, or hangs until the test lets it go on."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(self._wait)
        self._seconds = seconds
        self.begun = Event()
        self.go = Event()

    def _wait(self, _: str, __: int) -> Outcome:
        self.begun.set()
        assert self.go.wait(self._seconds or 120) or self._seconds
        return Complete()


def now() -> datetime:
    return datetime.now(UTC)


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

    with running_all(agent, by_name(database, {**lines, **others}), now) as made:
        until(lambda: all(line.begun.is_set() for line in lines.values()), 30)
        began = monotonic()
        publish_swedish(agent, *(f"{n:03}" for n in range(10)))
        until(lambda: len(others["Works"].got) == len(others["InOrder"].got) == 10, 10)
        assert monotonic() - began < 5
        assert made.in_hand <= 30 * 10
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

    with running_all(agent, by_name(database, {**lines, "Quick": quick}), now) as made:
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

    with running_all(agent, by_name(database, {"Line": partner}), now):
        until(lambda: settled(agent), 30)

    assert partner.got == [f"{n:04}" for n in range(1_000)]
    [(most,)] = rows(database, "SELECT max(count) FROM delivery")
    assert most == 100
