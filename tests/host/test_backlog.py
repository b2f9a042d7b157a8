"""Backlogs: how much of a service is held in memory, how many go out at once, and how long its deliveries take."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from typing import cast
from uuid import UUID

import msgspec
import pytest

from crossdock.host import backlog as host_backlog
from crossdock.host.backlog import Backlog, Slice
from crossdock.host.backlogs import Backlogs
from crossdock.host.environment import HostEnvironment
from crossdock.host.limits import DEFAULT_LIMITS
from crossdock.host.quarantine import Quarantine
from crossdock.host.threads import Threads
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Reference, ServerTime
from service import Partner

LIMIT = 8
LEAST = 16
SPARE = 2_000
QUARANTINE = Quarantine(HostEnvironment(cast(Agent, None), 0, lambda _: None, DEFAULT_LIMITS, Threads("none")))


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(host_backlog, "time", made)
    return made


def a_backlog(limit: int, pace: float, *, batched: bool = False) -> Backlog:
    return Backlog(replace(DEFAULT_LIMITS, first_pace=pace), limit, batched=batched)


def references(count: int) -> list[Reference]:
    message = Message(MessageId(UUID(int=1)), Context(), ())
    claimed_at = ServerTime(datetime(2026, 1, 1, tzinfo=UTC), 0.0)
    return [Reference(number, 1, 0, message, claimed_at, 0, None, 1) for number in range(count)]


def begun(backlog: Backlog) -> list[Slice]:
    """The slices that may be delivered now; the others wait."""
    turns, _ = backlog.offer()
    started = [backlog.start(QUARANTINE, crowded=False) for _ in range(turns)]
    assert None not in started
    return [slice_ for slice_ in started if slice_ is not None]


def deliver(backlog: Backlog, slice_: Slice) -> list[Slice]:
    """All of it; gives those that begin then."""
    count = len(slice_.take_rest())
    backlog.finish(slice_, delivered=count, released=count)
    return begun(backlog)


def test_one_delivery_that_hangs_sends_nothing_back(clock: Clock) -> None:
    backlog = a_backlog(LIMIT, 0.002)
    rest = backlog.add(1, references(SPARE), SPARE)
    hangs, *quick = begun(backlog)
    assert (len(quick), rest) == (LIMIT - 1, [])

    while quick:
        clock.now += 0.01
        quick = [following for slice_ in quick for following in deliver(backlog, slice_)]
        assert backlog.excess() == []

    assert backlog.held == len(hangs.references)
    assert not backlog.behind


def test_service_whose_deliveries_all_hang_keeps_the_least(clock: Clock) -> None:
    backlog = a_backlog(LIMIT, 0.002)
    backlog.add(1, references(1_000), SPARE)
    begun(backlog)
    assert backlog.excess() == []

    clock.now += 1
    back = sum(len(slice_.references) for slice_ in backlog.excess())

    assert (backlog.held, back) == (LEAST, 1_000 - LEAST)
    assert backlog.behind
    assert backlog.fill(SPARE) == 0


def test_service_that_was_idle_for_long_is_not_taken_for_slow(clock: Clock) -> None:
    backlog = a_backlog(LIMIT, 0.002)
    for _ in range(3):
        clock.now += 600
        assert backlog.add(1, references(1_000), SPARE) == []
        quick = begun(backlog)
        while quick:
            clock.now += 0.002
            quick = [following for slice_ in quick for following in deliver(backlog, slice_)]


def test_room_that_is_being_filled_is_given_once(clock: Clock) -> None:
    backlog = a_backlog(LIMIT, 1.0)
    rest = backlog.add(1, references(40), SPARE)
    assert (len(rest), backlog.behind) == (40 - LEAST, True)
    first = begun(backlog)
    clock.now += 1
    for slice_ in first:
        backlog.finish(slice_, delivered=1, released=1)

    room = backlog.fill(SPARE)
    assert room == LIMIT
    assert (backlog.fill(SPARE), backlog.wants_more(SPARE)) == (0, False)
    backlog.filled(1, references(room), more=True)
    assert (backlog.held, len(backlog.waiting), backlog.behind) == (LEAST, LEAST, True)


def test_backlogs_without_spare_room_still_hold_the_least() -> None:
    backlog = a_backlog(LIMIT, 0.002)

    rest = backlog.add(1, references(100), 0)

    assert (backlog.held, len(rest), backlog.behind) == (LEAST, 100 - LEAST, True)


def test_raised_limit_lets_those_begin_that_waited_for_it() -> None:
    backlog = a_backlog(LIMIT, 1.0)
    backlog.add(1, references(LIMIT), SPARE)
    waiting = list(backlog.waiting)
    backlog.change(1)
    [first] = begun(backlog)
    assert begun(backlog) == []

    backlog.change(3)

    assert begun(backlog) == waiting[1:3]
    assert deliver(backlog, first) == waiting[3:4]


def test_lowered_limit_is_kept_as_soon_as_enough_have_ended() -> None:
    backlog = a_backlog(3, 1.0)
    backlog.add(1, references(6), SPARE)
    waiting = list(backlog.waiting)
    first, second, third = begun(backlog)

    backlog.change(1)

    assert deliver(backlog, first) == []
    assert deliver(backlog, second) == []
    assert deliver(backlog, third) == waiting[3:4]


def test_turn_that_comes_after_the_limit_was_lowered_starts_nothing() -> None:
    backlog = a_backlog(2, 1.0)
    backlog.add(1, references(4), SPARE)
    assert backlog.offer() == (2, False)
    assert backlog.start(QUARANTINE, crowded=False) is not None

    backlog.change(1)

    assert backlog.start(QUARANTINE, crowded=False) is None


def test_service_that_is_for_others_to_deliver_holds_nothing_and_claims_nothing_until_it_has_a_part_again() -> None:
    backlog = a_backlog(2, 1.0, batched=True)
    backlog.add(1, references(4), SPARE)
    waiting = list(backlog.waiting)
    backlog.offer()
    first = backlog.start(QUARANTINE, crowded=False)
    assert first is waiting[0]
    backlog.change(0)

    assert backlog.start(QUARANTINE, crowded=False) is None
    assert backlog.excess() == waiting[:0:-1]
    assert deliver(backlog, first) == []
    assert backlog.add(1, references(3), SPARE) == references(3)
    assert (backlog.held, backlog.behind, backlog.fill(SPARE), backlog.wants_more(SPARE)) == (0, True, 0, False)

    backlog.change(1)
    assert backlog.wants_more(SPARE)
    assert backlog.fill(SPARE) > 0
    backlog.change(0)  # while they are being claimed
    backlog.filled(1, references(3), more=False)
    assert begun(backlog) == []
    assert sum(len(slice_.references) for slice_ in backlog.excess()) == 3
    assert (backlog.held, backlog.behind) == (0, True)


def quickly(backlog: Backlog, clock: Clock, count: int) -> None:
    """So many deliveries that take a millisecond, a second apart."""
    for _ in range(count):
        clock.now += 1
        assert backlog.add(1, references(1), SPARE) == []
        [slice_] = begun(backlog)
        clock.now += 0.001
        deliver(backlog, slice_)


def test_service_that_was_slow_shares_the_room_of_quick_ones_once_it_has_been_quick_for_a_while(clock: Clock) -> None:
    backlog = a_backlog(LIMIT, 0.2)
    assert (backlog.apart, backlog.waits) == (True, True)

    quickly(backlog, clock, 20)

    assert (backlog.apart, backlog.waits) == (False, False)


def test_delivery_that_hangs_keeps_a_quick_service_apart_until_it_ends(clock: Clock) -> None:
    backlog = a_backlog(LIMIT, 0.001)
    backlog.add(1, references(1), SPARE)
    [slice_] = begun(backlog)
    assert (backlog.overdue(), backlog.apart) == ([], False)

    clock.now += 1
    assert (backlog.overdue(), backlog.apart) == ([slice_], True)
    slice_.backlog.finish(slice_, delivered=0, released=1)

    assert (backlog.overdue(), backlog.apart) == ([], False)


def test_what_lay_behind_a_delivery_that_hangs_is_the_next_to_begin() -> None:
    backlog = a_backlog(2, 0.001)
    backlog.add(1, references(10), SPARE)
    hangs, second = begun(backlog)
    assert next(hangs.remaining).sequence == 0

    backlog.put_back(hangs)

    assert [[each.sequence for each in slice_.references] for slice_ in backlog.waiting] == [[1, 2], [3, 4]]
    assert deliver(backlog, second)[0].references[0].sequence == 1
    assert backlog.held == 5


def test_what_a_running_instance_waits_for_is_the_next_to_begin_and_gets_a_turn_of_its_own() -> None:
    backlog = a_backlog(2, 1.0)
    backlog.add(1, references(2), SPARE)
    assert backlog.offer() == (2, False)

    backlog.add(1, [msgspec.structs.replace(references(1)[0], instance=UUID(int=2))], SPARE)

    assert backlog.offer() == (2, True)
    first = backlog.start(QUARANTINE, crowded=False)
    assert first is not None
    assert first.urgent


def test_slow_backlog_does_not_begin_where_slow_ones_hold_all_the_workers_that_they_may() -> None:
    backlog = a_backlog(2, 1.0)
    backlog.add(1, references(2), SPARE)
    backlog.offer()

    assert backlog.start(QUARANTINE, crowded=True) is None
    assert backlog.start(QUARANTINE, crowded=False) is not None


def test_service_that_says_how_many_it_takes_stays_apart(clock: Clock) -> None:
    service = Partner()
    service.in_flight = 2
    backlog = Backlogs(lambda _: service, DEFAULT_LIMITS).of(1)

    quickly(backlog, clock, 20)

    assert (backlog.limit, backlog.apart) == (2, True)


def test_port_and_the_same_port_in_a_group_have_one_backlog() -> None:
    service, other = Partner(), Partner()
    backlogs = Backlogs(lambda number: service if number < 3 else other, DEFAULT_LIMITS)

    assert backlogs.of(1) is backlogs.of(2)
    assert backlogs.of(3) is not backlogs.of(1)


def test_service_that_is_deployed_anew_keeps_its_backlog_and_one_that_is_gone_does_not() -> None:
    service: list[Partner | None] = [Partner()]
    backlogs = Backlogs(lambda _: service[0], DEFAULT_LIMITS)
    before = backlogs.of(1)

    changed = service[0] = Partner()
    changed.in_flight = 1
    assert (backlogs.of(1) is before, before.limit) == (True, 1)

    service[0] = None
    assert backlogs.of(1) is not before


def test_services_may_come_by_the_thousand_while_others_look_who_is_behind() -> None:
    """The collector may let another thread in wherever something is made, also in the middle of copying a dictionary."""
    services = {number: Partner() for number in range(20_000)}
    backlogs = Backlogs(lambda service_id: services.get(service_id), DEFAULT_LIMITS)
    done = Event()

    class Garbage:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            for _ in range(2_000):
                pass

    def look() -> int:
        looks = 0
        while not done.is_set():
            assert backlogs.behind() == {}
            looks += 1
        return looks

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            looking = [pool.submit(look) for _ in range(2)]
            try:
                for number in services:
                    backlogs.keep_busy(backlogs.of(number))
                    Garbage()
            finally:
                done.set()
            assert all(each.result() for each in looking)
    finally:
        sys.setswitchinterval(before)


def test_service_that_a_shared_slice_waits_for_takes_the_slice_over(clock: Clock) -> None:
    shared, late = Backlog(DEFAULT_LIMITS, LIMIT, shared=True), a_backlog(LIMIT, 0.0001)
    shared.filled(1, references(5), more=False)
    [slice_] = begun(shared)
    next(slice_.remaining)
    next(slice_.remaining)
    clock.now += 1.0
    assert shared.overdue() == [slice_]

    shared.put_back(slice_)
    shared.blame(late, slice_)

    assert (late.held, late.active, late.apart, late.waits) == (2, {slice_}, True, True)
    assert (shared.held, shared.active, shared.apart, shared.waits) == (3, set(), False, False)
    assert not shared.finish(slice_, delivered=2, released=2)
    assert late.finish(slice_, delivered=2, released=2)
    assert late.held == 0


def test_service_shares_slices_once_it_is_known_as_quick_and_not_if_it_is_limited(clock: Clock) -> None:
    backlog = a_backlog(LIMIT, 0.0005)
    backlog.add(1, references(1), SPARE)
    [slice_] = begun(backlog)
    clock.now += 0.0001
    before = backlog.quick

    deliver(backlog, slice_)
    after = backlog.quick
    backlog.limited = True

    assert (before, after, backlog.quick) == (False, True, False)
