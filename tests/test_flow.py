"""Flows: how much of a service is held in memory, how many go out at once, and when it needs no flow any more."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from uuid import UUID

import pytest

from crossdock.host import flow as host_flow
from crossdock.host.flow import Flow, Share
from crossdock.host.flows import Flows
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId
from crossdock.messagebox.rows import Reference
from service import Partner

LIMIT = 8
LEAST = 16
SPARE = 2_000


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(host_flow, "time", made)
    return made


def references(count: int) -> list[Reference]:
    message = Message(MessageId(UUID(int=1)), Context(), ())
    return [Reference(number, 1, 0, message, 0, None, 1) for number in range(count)]


def begun(flow: Flow, shares: list[Share]) -> list[Share]:
    """Those of them that may be delivered now; the others wait."""
    return [share for share in shares if flow.begin(share)]


def deliver(flow: Flow, share: Share, seconds: float) -> Share | None:
    """All of it; gives the one that comes next, which has begun."""
    count = len(share.references)
    following = flow.end(share, delivered=count, let_go=count, seconds=seconds)
    assert following is None or flow.begin(following)
    return following


def test_one_delivery_that_hangs_sends_nothing_back(clock: Clock) -> None:
    flow = Flow(LIMIT, 0.002)
    shares, rest = flow.admit(1, references(SPARE), SPARE)
    hangs, *quick = begun(flow, shares)
    assert (len(quick), rest) == (LIMIT - 1, [])

    while quick:
        clock.now += 0.01
        following = (deliver(flow, share, 0.01) for share in quick)
        quick = [share for share in following if share is not None]
        assert flow.excess() == []

    assert flow.held == len(hangs.references)
    assert not flow.behind


def test_service_whose_deliveries_all_hang_keeps_the_least(clock: Clock) -> None:
    flow = Flow(LIMIT, 0.002)
    shares, _ = flow.admit(1, references(1_000), SPARE)
    begun(flow, shares)
    assert flow.excess() == []

    clock.now += 1
    back = sum(len(share.references) for share in flow.excess())

    assert (flow.held, back) == (LEAST, 1_000 - LEAST)
    assert flow.behind
    assert flow.refill(SPARE) == 0


def test_service_that_was_idle_for_long_is_not_taken_for_slow(clock: Clock) -> None:
    flow = Flow(LIMIT, 0.002)
    for _ in range(3):
        clock.now += 600
        shares, rest = flow.admit(1, references(1_000), SPARE)
        assert rest == []
        quick = begun(flow, shares)
        while quick:
            clock.now += 0.002
            quick = [share for each in quick if (share := deliver(flow, each, 0.002)) is not None]


def test_room_that_is_being_filled_is_given_once(clock: Clock) -> None:
    assert clock.now
    flow = Flow(LIMIT, 1.0)
    shares, rest = flow.admit(1, references(40), SPARE)
    assert (len(rest), flow.behind) == (40 - LEAST, True)
    for share in begun(flow, shares):
        flow.end(share, delivered=1, let_go=1, seconds=1.0)

    room = flow.refill(SPARE)
    assert room == LIMIT
    assert (flow.refill(SPARE), flow.hungry(SPARE)) == (0, False)
    assert len(flow.refilled(1, references(room), room, caught_up=False)) == LIMIT
    assert (flow.held, flow.behind) == (LEAST, True)


def test_flows_without_spare_room_still_hold_the_least(clock: Clock) -> None:
    assert clock.now
    flow = Flow(LIMIT, 0.002)

    _, rest = flow.admit(1, references(100), 0)

    assert (flow.held, len(rest), flow.behind) == (LEAST, 100 - LEAST, True)


def test_raised_limit_lets_those_begin_that_waited_for_it(clock: Clock) -> None:
    assert clock.now
    flow = Flow(1, 1.0)
    flow.change(LIMIT)
    shares, _ = flow.admit(1, references(LIMIT), SPARE)
    flow.change(1)
    [first] = begun(flow, shares)
    assert flow.startable() == []

    flow.change(3)

    assert begun(flow, flow.startable()) == shares[1:3]
    assert deliver(flow, first, 1.0) is shares[3]


def test_lowered_limit_is_kept_as_soon_as_enough_have_ended(clock: Clock) -> None:
    assert clock.now
    flow = Flow(3, 1.0)
    shares, _ = flow.admit(1, references(6), SPARE)
    first, second, third = begun(flow, shares)

    flow.change(1)

    assert deliver(flow, first, 1.0) is None
    assert deliver(flow, second, 1.0) is None
    assert deliver(flow, third, 1.0) is shares[3]


def test_service_that_is_for_others_to_deliver_holds_nothing_and_claims_nothing_until_it_has_a_part_again(
    clock: Clock,
) -> None:
    assert clock.now
    flow = Flow(2, 1.0, batches=True)
    shares, _ = flow.admit(1, references(4), SPARE)
    begun(flow, shares[:1])
    flow.change(0)

    assert begun(flow, shares[1:]) == []
    assert flow.excess() == shares[:0:-1]
    assert deliver(flow, shares[0], 1.0) is None
    assert flow.admit(1, references(3), SPARE) == ([], references(3))
    assert (flow.held, flow.behind, flow.refill(SPARE), flow.hungry(SPARE)) == (0, True, 0, False)

    flow.change(1)
    assert flow.hungry(SPARE)
    room = flow.refill(SPARE)
    flow.change(0)  # while they are being claimed
    late = flow.refilled(1, references(3), room, caught_up=True)
    assert begun(flow, late) == []
    assert sum(len(share.references) for share in flow.excess()) == 3
    assert (flow.held, flow.behind) == (0, True)


def quickly(flow: Flow, clock: Clock, count: int) -> None:
    """So many deliveries that take no time, a second apart."""
    for _ in range(count):
        clock.now += 1
        [share], _ = flow.admit(1, references(1), SPARE)
        assert flow.begin(share)
        assert deliver(flow, share, 0.001) is None


def test_flow_of_a_service_that_was_slow_ends_once_it_has_been_quick_for_a_while(clock: Clock) -> None:
    service = Partner()
    flows = Flows(lambda _: service)
    assert flows.of(1) is None
    flows.slow(1, 0.2)
    flow = flows.of(1)
    assert flow is not None

    quickly(flow, clock, 99)
    flows.forget_needless()
    assert flows.of(1) is flow
    [waits], _ = flow.admit(1, references(1), SPARE)
    quickly(flow, clock, 1)
    flows.forget_needless()

    assert flows.of(1) is None
    assert flows.all() == {flow}
    assert flow.begin(waits)
    deliver(flow, waits, 0.001)
    assert flows.all() == set()


def test_one_that_is_slow_now_and_then_keeps_its_flow(clock: Clock) -> None:
    flow = Flow(LIMIT, 0.2)
    quickly(flow, clock, 200)
    assert flow.needless()

    flow.lags()
    quickly(flow, clock, 59)
    assert not flow.needless()
    [share], _ = flow.admit(1, references(1), SPARE)
    assert flow.begin(share)
    deliver(flow, share, 0.2)
    quickly(flow, clock, 99)
    assert not flow.needless()


def test_flow_of_a_service_that_says_how_many_it_takes_stays(clock: Clock) -> None:
    service = Partner()
    service.in_flight = 2
    flows = Flows(lambda _: service)
    flow = flows.of(1)
    assert flow is not None

    quickly(flow, clock, 200)
    flows.forget_needless()

    assert flows.of(1) is flow


def test_port_and_the_same_port_in_a_group_have_one_flow(clock: Clock) -> None:
    assert clock.now
    service = Partner()
    flows = Flows(lambda _: service)
    assert (flows.of(1), flows.of(2)) == (None, None)

    flows.slow(1, 0.2)
    flows.slow(2, 0.2)

    assert flows.of(1) is flows.of(2)
    assert len(flows.all()) == 1


def test_services_may_come_by_the_thousand_while_others_look_who_is_behind() -> None:
    """The collector may let another thread in wherever something is made, also in the middle of copying a dictionary."""
    services = {number: Partner() for number in range(20_000)}
    flows = Flows(lambda service_id: services.get(service_id))
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
            assert flows.behind() == {}
            looks += 1
        return looks

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            looking = [pool.submit(look) for _ in range(2)]
            try:
                for number in services:
                    flows.of(number)
                    Garbage()
            finally:
                done.set()
            assert all(each.result() for each in looking)
    finally:
        sys.setswitchinterval(before)
