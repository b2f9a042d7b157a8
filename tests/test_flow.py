"""How much of a service is held in memory: about a second of what it delivers, whatever single deliveries do."""

from __future__ import annotations

from uuid import UUID

import pytest

from crossdock.host import flow as host_flow
from crossdock.host.flow import Flow, Share
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId
from crossdock.messagebox.rows import Reference

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
