"""What is tracked a few at a time may be much: the role of a host publishes contexts of a megabyte, by the thousand."""

from __future__ import annotations

import pytest

from crossdock.administration.messages import list_messages
from crossdock.maintenance.tracking import PackTrack
from crossdock.messagebox import cleanup, track_few
from crossdock.messagebox.agent import Agent
from express import deploy, port, publish, rows

COUNT = 7


@pytest.mark.parametrize(("room", "segments"), [(1, COUNT), (64 * 1024 * 1024, 1)])
def test_no_more_is_packed_at_once_than_there_is_room_for(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, room: int, segments: int
) -> None:
    monkeypatch.setattr(cleanup, "_PACKED_BYTES", room)
    deploy(agent, port("Out", "Region = 'NO'"))
    for _ in range(COUNT):
        publish(agent, {"Region": "NO"})

    assert PackTrack(agent).run_once() == COUNT

    assert rows(agent.database, "SELECT count(*) FROM track_published") == [(segments,)]
    assert len(list_messages(agent).messages) == COUNT


def test_what_is_not_packed_yet_is_read_some_at_a_time(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track_few, "_READ_AT_ONCE", 2)
    deploy(agent, port("Out", "Region = 'NO'"))
    for _ in range(COUNT):
        publish(agent, {"Region": "NO"})

    first = list_messages(agent, limit=3)
    second = list_messages(agent, limit=COUNT, before=first.before)

    times = [row.received_at for row in [*first.messages, *second.messages]]
    assert len({row.id for row in [*first.messages, *second.messages]}) == COUNT
    assert times == sorted(times, reverse=True)
