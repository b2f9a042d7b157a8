"""Compare what the track says with what happened: files written by ports, message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from crossdock.messagebox.agent import Agent
from crossdock.messagebox.track import Tracked

_PAGE = 500


def assert_track_is_exact(agent: Agent, folders: Mapping[str, Path], *, suspended: int = 0) -> None:
    """Each file in the folder of a port is one delivery in the track, and each delivery in the track is a file.

    Every message that was tracked as published has a copy for each route, and each copy has ended once.
    """
    names = agent.configuration.service_names()
    messages = list(tracked_messages(agent))
    events = [
        event for page in range(0, len(messages), _PAGE) for event in agent.track.events(messages[page : page + _PAGE])
    ]
    delivered: dict[str, Counter[str]] = {port: Counter() for port in folders}
    ended: Counter[str] = Counter()
    for event in events:
        if event.event == "delivered":
            assert event.service_id is not None
            delivered[names[event.service_id]][str(event.message_id)] += 1
            ended[str(event.message_id)] += 1

    written = {port: Counter(path.stem for path in folder.glob("[!.]*")) for port, folder in folders.items()}
    assert delivered == written
    assert ended == Counter({str(each.id): len(each.routes) for each in messages if each.routes})
    assert len({each.id for each in messages}) == len(messages)
    assert sum(each.code is not None for each in messages) == suspended


def tracked_messages(agent: Agent) -> Iterator[Tracked]:
    """All of them, page by page, the newest first."""
    before: str | None = None
    while True:
        found = agent.track.search(None, limit=_PAGE, before=before)
        yield from found.messages
        before = found.before
        if before is None:
            return
