"""What a Spark Python worker does with the sources of a task: reads them, runs their pipelines and publishes.

A source that ends the process (a crash in C, no more memory) must not do so for ever. The next attempt at its task goes
through the sources one by one, and notes in the ledger which one it tries; what ended it twice is suspended unread.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from crossdock.adapter.contract import BatchReceiveAdapter
from crossdock.dataflow.outcome import done, unreadable
from crossdock.errors import CrossdockError, TransientError
from crossdock.messagebox.agent import Agent, EpochMovedError, UnroutedError
from crossdock.messagebox.rows import Published
from crossdock.receive.interchange import IntakeItem, Interchange
from crossdock.receive.location import Range, ReceiveLocation, locations_at_work
from crossdock.receive.ranges import LARGE_BYTES, RANGE_MESSAGES, has_many_lines
from crossdock.receive.time_limit import TIME_LIMIT_SECONDS

_INTERCHANGES_PER_TRANSACTION = 500
_BYTES_PER_TRANSACTION = 8 * 1024 * 1024
_MESSAGES_PER_TRANSACTION = 50_000
_OVERTAKEN_SECONDS = 0.2
_TRIES = 2
_CAREFUL_MESSAGES = 1_000
_PARTS = 16
_ENDS_THE_PROCESS = f"reading it ended the process, {_TRIES} times by itself; it was not tried again"

Outcomes = Iterator[pa.RecordBatch]


@dataclass(slots=True)
class _Pending:
    """What is to be published in one transaction."""

    interchanges: list[tuple[IntakeItem, Interchange]] = field(default_factory=list)
    size: int = 0
    messages: int = 0
    began: float = field(default_factory=time.perf_counter)

    def add(self, item: IntakeItem, interchange: Interchange) -> None:
        self.interchanges.append((item, interchange))
        self.size += item.size
        self.messages += len(interchange.messages) + len(interchange.failures)

    @property
    def is_full(self) -> bool:
        return (
            len(self.interchanges) >= _INTERCHANGES_PER_TRANSACTION
            or self.size >= _BYTES_PER_TRANSACTION
            or self.messages >= _MESSAGES_PER_TRANSACTION
        )


@dataclass(slots=True)
class Worker:
    """Kept between tasks: the agent, and the receive locations as they are now."""

    agent: Agent
    box: int
    time_limit: float = TIME_LIMIT_SECONDS
    epoch: int = -1
    locations: dict[int, ReceiveLocation] = field(default_factory=dict)

    def receive(self, items: Sequence[IntakeItem], *, carefully: bool = False) -> Outcomes:
        """Publish these sources. `carefully`: whoever tried it before may have been ended by one of them."""
        if carefully or any(item.attempts for item in items):
            for item in items:
                yield from self._receive_carefully(item)
        else:
            yield from self._receive(items)

    def _receive_carefully(self, item: IntakeItem) -> Outcomes:
        """Alone, and noted in the ledger while it is read: what stays noted has ended the process."""
        attempts = self.agent.try_intake(item.sequence)
        if attempts is None:
            return
        try:
            if attempts > _TRIES:
                yield from self._give_up(item)
            else:
                yield from self._receive([item], carefully=True)
        finally:
            with suppress(CrossdockError):
                self.agent.try_intake(item.sequence, change=-1)

    def _give_up(self, item: IntakeItem) -> Outcomes:
        self._refresh()
        location = self.locations.get(item.location_id)
        if location is None:
            yield unreadable(item.sequence, item.identity, "its receive location is disabled")
            return
        try:
            more = self._suspend_unread(item, location)
        except TransientError as error:
            yield unreadable(item.sequence, item.identity, str(error))
            return
        if more:
            self.agent.try_intake(item.sequence, afresh=True)
            yield from self._receive([item], carefully=True)

    def _suspend_unread(self, item: IntakeItem, location: ReceiveLocation) -> bool:
        """All of it, or of a source that is read by ranges some lines; gives whether there is more of it."""
        start, received = self.agent.intake_progress(item.sequence)
        if start > 0 and start >= item.size:  # somebody was faster
            return False
        content = None if start or item.size > LARGE_BYTES else location.read(item)
        if content is None or has_many_lines(content):
            ranges = location.ranges(item, self.box, start, received, _CAREFUL_MESSAGES, unread=_ENDS_THE_PROCESS)
            range_ = None if ranges is None else next(ranges, None)
            if range_ is not None:
                self.agent.publish([range_.interchange])
            if range_ is not None or start:
                return True
        content = location.read(item) if content is None else content
        if content is None:
            self.agent.abandon_intake([item.sequence])
        else:
            self.agent.publish([location.failed(item, self.box, content, _ENDS_THE_PROCESS)])
        return False

    def _receive(self, items: Sequence[IntakeItem], *, carefully: bool = False) -> Outcomes:
        self._refresh()
        pending = _Pending()
        contents = self._read_batches(items)
        for item in items:
            if item.size > LARGE_BYTES and item.location_id in self.locations:
                published = yield from self._receive_large(item, carefully=carefully)
                if published:
                    continue
            content = self._content(item, contents)
            if isinstance(content, str):
                yield unreadable(item.sequence, item.identity, content)
            elif content is None:
                if self.agent.abandon_intake([item.sequence]):
                    yield self._half_read(item)
            elif not (has_many_lines(content) and (yield from self._receive_large(item, carefully=carefully))):
                pending.add(item, self.locations[item.location_id].interchange(item, self.box, content))
            if pending.is_full:
                yield from self._publish(pending.interchanges, pending.began, carefully=carefully)
                pending = _Pending()
        if pending.interchanges:
            yield from self._publish(pending.interchanges, pending.began, carefully=carefully)

    def _refresh(self) -> None:
        epoch = self.agent.location_epoch()
        if epoch != self.epoch:
            self.locations = locations_at_work(self.agent.locations(), time_limit=self.time_limit)
            self.epoch = epoch

    def _receive_large(self, item: IntakeItem, *, carefully: bool) -> Generator[pa.RecordBatch, None, bool]:
        """Range by range, from where it was left; False if it is to be read whole.

        What is published in part is never read whole. Where another task is at the same source, each does what the
        other has not done, so that this one is through when all of it is published.
        """
        location = self.locations[item.location_id]
        messages = _CAREFUL_MESSAGES if carefully else RANGE_MESSAGES
        while True:
            start, received = self.agent.intake_progress(item.sequence)
            if start >= item.size:
                return True
            try:
                ranges = location.ranges(item, self.box, start, received, messages)
            except TransientError as error:
                yield unreadable(item.sequence, item.identity, str(error))
                return True
            if ranges is None:
                if start > 0:
                    yield self._half_read(item)
                return start > 0
            outcome = yield from self._publish_ranges(item, ranges, carefully=carefully)
            if outcome != "overtaken":
                if outcome:
                    yield unreadable(item.sequence, item.identity, outcome)
                return True
            time.sleep(_OVERTAKEN_SECONDS)

    def _half_read(self, item: IntakeItem) -> pa.RecordBatch:
        name = self.locations[item.location_id].adapter.name(item.identity)
        return unreadable(item.sequence, item.identity, f"{name} is published in part and cannot be read on")

    def _publish_ranges(
        self, item: IntakeItem, ranges: Iterator[Range], *, carefully: bool
    ) -> Generator[pa.RecordBatch, None, str]:
        """One after the other: a range begins where the one before it ended. Gives why it ended early, if it did."""
        while True:
            started = time.perf_counter()
            try:
                range_ = next(ranges, None)
            except TransientError as error:
                return str(error)
            if range_ is None:
                return f"{self.locations[item.location_id].adapter.name(item.identity)} vanished when it was half read"
            read, started = time.perf_counter() - started, time.perf_counter()
            try:
                published = self._publish_range(item, range_)
            except EpochMovedError:
                yield from self._receive([item], carefully=carefully)  # the locations changed: go on by the new ones
                return ""
            if not published.interchanges:
                return "overtaken"
            yield done(published, read, started)
            if range_.interchange.last:
                return ""
            if carefully:
                self.agent.try_intake(item.sequence, afresh=True)  # it is the next range that is tried now
            gc.collect()  # this may be one long task

    def _publish_range(self, item: IntakeItem, range_: Range) -> Published:
        try:
            return self.agent.publish([range_.interchange], location_epoch=self.epoch)
        except (CrossdockError, EpochMovedError):
            raise
        except Exception as error:
            reason = f"the MessageBox cannot hold it: {type(error).__name__}: {error}"
            return self._publish_parts(item, range_, reason)

    def _publish_parts(self, item: IntakeItem, range_: Range, reason: str) -> Published:
        """A range that was refused: in smaller and smaller ones, down to the lines that have to be suspended."""
        location, whole = self.locations[item.location_id], range_.interchange
        count = len(whole.messages) + len(whole.failures)
        if count <= 1:
            return self.agent.publish([location.failed_range(item, self.box, range_, reason)])
        parts = location.ranges(item, self.box, whole.range_start, range_.received, max(1, count // _PARTS))
        last = Published()
        for part in parts or ():
            last = self._publish_range(item, part)
            if not last.interchanges or part.interchange.range_end == whole.range_end:
                break
        return last

    def _read_batches(self, items: Sequence[IntakeItem]) -> dict[int, bytes | None]:
        """The content of sources that are read many at once, by their sequence."""
        batches: defaultdict[int, list[IntakeItem]] = defaultdict(list)
        for item in items:
            batches[item.location_id].append(item)
        contents: dict[int, bytes | None] = {}
        for location_id, batch in batches.items():
            location = self.locations.get(location_id)
            if location is not None and isinstance(location.adapter, BatchReceiveAdapter):
                with suppress(Exception):  # reading them one by one fails in the same way, and says so
                    found = location.adapter.read_batch([item.identity for item in batch])
                    contents |= {item.sequence: content for item, content in zip(batch, found, strict=True)}
        return contents

    def _content(self, item: IntakeItem, contents: Mapping[int, bytes | None]) -> bytes | str | None:
        """The bytes of a source, a reason why it cannot be read now, or None if it is not there any more."""
        location = self.locations.get(item.location_id)
        if location is None:
            return "its receive location is disabled"
        if item.sequence in contents:
            return contents[item.sequence]
        try:
            return location.read(item)
        except TransientError as error:
            return f"Receive location {location.definition.name!r}: {error}"
        except Exception as error:  # whatever one adapter raises, the others go on
            problem = f"its adapter failed: {type(error).__name__}: {error}"
            return f"Receive location {location.definition.name!r}: {problem}"

    def _publish(self, pending: list[tuple[IntakeItem, Interchange]], began: float, *, carefully: bool) -> Outcomes:
        """Publish together what was read since `began`; what the MessageBox cannot take is found one by one."""
        started = time.perf_counter()
        try:
            published = self.agent.publish([interchange for _, interchange in pending], location_epoch=self.epoch)
        except EpochMovedError:
            items = [item for item, _ in pending]
            yield from self._receive(items, carefully=carefully)  # the locations changed: read them again
            return
        except CrossdockError:
            raise
        except Exception as error:
            yield from self._publish_apart(pending, error, carefully=carefully)
            return
        yield done(published, started - began, started)

    def _publish_apart(
        self, pending: list[tuple[IntakeItem, Interchange]], error: Exception, *, carefully: bool
    ) -> Outcomes:
        if len(pending) > 1:
            for each in pending:
                yield from self._publish([each], time.perf_counter(), carefully=carefully)
            return
        [(item, _)] = pending
        location = self.locations[item.location_id]
        content = location.adapter.read(item.identity)
        if content is not None:
            reason = f"the MessageBox cannot hold it: {type(error).__name__}: {error}"
            if isinstance(error, UnroutedError):
                reason = str(error)
            self.agent.publish([location.failed(item, self.box, content, reason)])
