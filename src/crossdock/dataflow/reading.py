"""Reads the sources of a task. A location that reads slowly holds up the others for a bounded time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from crossdock.adapter.contract import BatchReceiveAdapter
from crossdock.errors import TransientError
from crossdock.foreign import FOREIGN_CODE
from crossdock.receive.item import IntakeItem
from crossdock.receive.location import ReceiveLocation

# For reading the sources of one location in one task. What is not read by then waits for a later one.
READING_SECONDS = 30.0
# So many are read together before we look at the clock again.
BATCH_ITEMS = 100
# Of what was read in batches and is not taken yet. All that one task is given was less when it was listed, but rows
# may have grown since.
BATCHES_BYTES = 256 * 1024 * 1024
_TOO_SLOW = "its sources take long to read; this one waits until the others had their turn"


@dataclass(frozen=True, slots=True)
class Content:
    """All bytes of a source."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Vanished:
    """The source is not there any more, or it is not the one that was listed."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The source is there, and cannot be read now."""

    reason: str


class Reading:
    """The sources of one task. `not_at_work` says why the location of a source cannot be read from."""

    def __init__(
        self,
        locations: Mapping[int, ReceiveLocation],
        not_at_work: Callable[[IntakeItem], str],
        items: Sequence[IntakeItem],
    ) -> None:
        self._locations = locations
        self._not_at_work = not_at_work
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._contents: dict[int, bytes | None] = {}
        if len(items) > 1:
            self._read_batches(items)

    def read(self, item: IntakeItem) -> Content | Vanished | Unreadable:
        location = self._locations.get(item.location_id)
        if location is None:
            return Unreadable(self._not_at_work(item))
        if item.sequence in self._contents:
            body = self._contents.pop(item.sequence)
        elif self._seconds[item.location_id] > READING_SECONDS:
            return Unreadable(_TOO_SLOW)
        else:
            try:
                with self._timed(item.location_id):
                    body = location.read(item)
            except TransientError as error:
                return Unreadable(str(error))
        return Vanished() if body is None else Content(body)

    def _read_batches(self, items: Sequence[IntakeItem]) -> None:
        """The sources of locations that are read many at once."""
        batches: defaultdict[int, list[IntakeItem]] = defaultdict(list)
        for item in items:
            batches[item.location_id].append(item)
        held = 0
        for location_id, batch in batches.items():
            location = self._locations.get(location_id)
            if location is None or not isinstance(location.adapter, BatchReceiveAdapter):
                continue
            for start in range(0, len(batch), BATCH_ITEMS):
                if self._seconds[location_id] > READING_SECONDS or held > BATCHES_BYTES:
                    break
                some = batch[start : start + BATCH_ITEMS]
                # Reading them one by one fails in the same way, and says so.
                with suppress(Exception), self._timed(location_id), FOREIGN_CODE:
                    found = location.adapter.read_batch([item.identity for item in some])
                    self._contents |= {item.sequence: content for item, content in zip(some, found, strict=True)}
                    held += sum(len(content) for content in found if content is not None)

    @contextmanager
    def _timed(self, location_id: int) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[location_id] += time.monotonic() - began
