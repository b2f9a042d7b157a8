"""What is tracked a few at a time may be much: the role of a host publishes contexts of a megabyte, by the thousand."""

from __future__ import annotations

from time import process_time

import pytest

from crossdock.administration.messages import list_messages
from crossdock.maintenance.tracking import PackTrack
from crossdock.message.publication import Publication
from crossdock.messagebox import cleanup, track_few
from crossdock.messagebox.agent import Agent
from express import a_message, deploy, port, publish, rows
from roles import Roles, roles

__all__ = ["roles"]

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


def test_messages_that_nobody_wants_are_packed_in_time_that_grows_with_their_number(agent: Agent, roles: Roles) -> None:
    """A body that is pushed to a host with a role of its own may have ten thousand of them."""
    deploy(agent, port("Out", "Region = 'NO'"), hosts={"Mine": ()})
    roles.create()
    acting = roles.acting_as("Mine")
    messages = tuple(a_message(acting, {"Region": "SE"}) for _ in range(6_000))
    acting.publish([Publication(acting.configuration.hosts()["Mine"], messages)])
    began = process_time()

    assert PackTrack(agent).run_once() == 1

    assert process_time() - began < 4  # 17 s where all that was noted was looked through for each message
    [first] = agent.track.find([messages[0].id])
    assert (first.code, first.routes) == ("no-subscriber", ())


def test_references_count_for_the_room_of_what_is_packed(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id of 16 bytes takes many times that in Python."""
    monkeypatch.setattr(cleanup, "_PACKED_BYTES", 2_000)
    deploy(agent, *[port(f"Out{number}", "Region = 'NO'") for number in range(20)])
    for _ in range(2):
        publish(agent, {"Region": "NO"})

    assert PackTrack(agent).run_once() == 2

    assert rows(agent.database, "SELECT messages FROM track_published") == [(1,), (1,)]


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_noted_in_more_than_a_few_megabytes_is_left_out(agent: Agent, *, packed: bool) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    publish(agent, {"Region": "SE"})
    rows(
        agent.database,
        "UPDATE track_few SET origins = json_build_object('much', repeat('x', 33554432)),"
        " exceptions = json_build_object('much', repeat('x', 33554432), 'suspended', exceptions -> 'suspended')"
        " RETURNING 1",
    )
    if packed:
        PackTrack(agent).run_once()

    [found] = agent.track.search(None).messages

    assert found.code is None
