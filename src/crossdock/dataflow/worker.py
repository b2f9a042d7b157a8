"""What a Spark Python worker does with the sources of a task: reads them, runs their pipelines and publishes.

A source that ends the process (a crash in C, no more memory) must not do so for ever. The next attempt at its task goes
through the sources one by one, and notes in the ledger which one it tries; what ended it twice is suspended unread.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never
from uuid import UUID

from crossdock.dataflow.outcome import Outcome, Postponed, RangeOutcome
from crossdock.dataflow.pending import Pending
from crossdock.dataflow.reading import Content, Reading, Unreadable, Vanished
from crossdock.errors import (
    CrossdockError,
    DeathsError,
    EpochMovedError,
    OutageError,
    StorageError,
    TerminalError,
    TooManyMessagesError,
    TransientError,
    UnavailableError,
)
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Published
from crossdock.receive.item import IntakeItem
from crossdock.receive.location import Range, ReceiveLocation, locations_at_work
from crossdock.receive.ranges import DEFAULT_RANGE_LIMITS, RangeLimits, has_more_lines
from crossdock.receive.time_limit import TIME_LIMIT_SECONDS

_OVERTAKEN_SECONDS = 0.2
_TRIES = 2
_RECONNECT_SECONDS = 0.5
_TAKE_BACK_SECONDS = 600.0
_CAREFUL_MESSAGES = 1_000
_PARTS = 16
_ENDS_THE_PROCESS = DeathsError(f"reading it ended the process, {_TRIES} times by itself; it was not tried again")

Outcomes = Iterator[Outcome]


@dataclass(frozen=True, slots=True)
class _Finished:
    """Nothing is left to do here for the ranges of a source."""


@dataclass(frozen=True, slots=True)
class _Overtaken:
    """Somebody else published the range first."""


@dataclass(slots=True)
class Worker:
    """Kept between tasks: the agent, and the receive locations as they are now."""

    agent: Agent
    time_limit: float = TIME_LIMIT_SECONDS
    range_limits: RangeLimits = DEFAULT_RANGE_LIMITS
    epoch: UUID | None = None
    locations: dict[int, ReceiveLocation] = field(default_factory=dict)
    enabled: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)

    def receive(self, items: Sequence[IntakeItem], *, carefully: bool = False) -> Outcomes:
        """Publish these sources. `carefully`: whoever tried it before may have been ended by one of them."""
        if carefully or any(item.attempts for item in items):
            for item in items:
                yield from self._receive_carefully(item)
        else:
            yield from self._receive(items)

    def _receive_carefully(self, item: IntakeItem) -> Outcomes:
        """Alone, and noted in the ledger while it is read: what stays noted has ended the process."""
        attempts = self.agent.ledger.note_attempt(item.sequence)
        if attempts is None:
            return
        try:
            if attempts > _TRIES:
                yield from self._give_up(item)
            else:
                yield from self._receive([item], carefully=True)
        finally:
            self._take_note_back(item)

    def _take_note_back(self, item: IntakeItem) -> None:
        """A source is not to blame where the MessageBox is away: wait until that can be written."""
        deadline = time.monotonic() + _TAKE_BACK_SECONDS
        while time.monotonic() < deadline:
            try:
                self.agent.ledger.note_attempt(item.sequence, change=-1)
                return
            except OutageError:
                time.sleep(_RECONNECT_SECONDS)
            except CrossdockError:
                return

    def _give_up(self, item: IntakeItem) -> Outcomes:
        self._refresh()
        location = self.locations.get(item.location_id)
        if location is None:
            yield from self._postpone(item, self._not_at_work(item))
            return
        try:
            more = self._suspend_unread(item, location)
        except OutageError:
            raise
        except TransientError as error:
            yield from self._postpone(item, str(error))
            return
        if more:
            self.agent.ledger.note_attempt(item.sequence, afresh=True)
            yield from self._receive([item], carefully=True)

    def _suspend_unread(self, item: IntakeItem, location: ReceiveLocation) -> bool:
        """All of it, or of a source that is read by ranges some lines; gives whether there is more of it."""
        start, received = self.agent.ledger.progress(item.sequence)
        if start > 0 and start >= item.size:  # somebody was faster
            return False
        content = None if start or item.size > self.range_limits.large_bytes else location.read(item)
        if content is None or self._has_many_lines(content):
            ranges = self._ranges(location, item, start, received, _CAREFUL_MESSAGES, unread=_ENDS_THE_PROCESS)
            range_ = None if ranges is None else next(ranges, None)
            if range_ is not None:
                self._keep_back(range_.publication)
            if range_ is not None or start:
                return True
        content = location.read(item) if content is None else content
        if content is None:
            self.agent.ledger.abandon([item.sequence])
        else:
            self._keep_back(location.failed(item, content, _ENDS_THE_PROCESS))
        return False

    def _receive(self, items: Sequence[IntakeItem], *, carefully: bool = False) -> Outcomes:
        self._refresh()
        pending = Pending()
        reading = self._reading(items)
        for item in items:
            if item.size > self.range_limits.large_bytes and (
                yield from self._receive_ranges(item, carefully=carefully)
            ):
                continue
            match reading.read(item):
                case Unreadable(reason):
                    yield from self._postpone(item, reason)
                case Vanished():
                    yield from self._abandon(item)
                case Content(body):
                    if not (
                        self._has_many_lines(body) and (yield from self._receive_ranges(item, carefully=carefully))
                    ):
                        pending.add(item, self.locations[item.location_id].publication(item, body))
                case unknown:
                    assert_never(unknown)
            if pending.is_full:
                yield from self._publish(pending.publications, pending.began, carefully=carefully)
                pending = Pending()
        if pending.publications:
            yield from self._publish(pending.publications, pending.began, carefully=carefully)

    def _reading(self, items: Sequence[IntakeItem]) -> Reading:
        return Reading(self.locations, self._not_at_work, items)

    def _refresh(self) -> None:
        epoch = self.agent.location_epoch()
        if epoch != self.epoch:
            enabled, disabled = self.agent.configuration.locations(), self.agent.configuration.locations(enabled=False)
            self.locations = locations_at_work(enabled, time_limit=self.time_limit)
            self.enabled = {id_ for id_, _, _ in enabled}
            self.names = {id_: str(stored.get("name")) for id_, _, stored in (*enabled, *disabled)}
            self.epoch = epoch

    def _receive_ranges(self, item: IntakeItem, *, carefully: bool) -> Generator[Outcome, None, bool]:
        """Range by range, from where it was left; False if it is to be read whole.

        What is published in part is never read whole. Where another task is at the same source, each does what the
        other has not done, so that this one is through when all of it is published.
        """
        location = self.locations.get(item.location_id)
        if location is None:
            return False
        messages = _CAREFUL_MESSAGES if carefully else self.range_limits.range_messages
        while True:
            start, received = self.agent.ledger.progress(item.sequence)
            if start >= item.size:
                return True
            try:
                ranges = self._ranges(location, item, start, received, messages)
            except TransientError as error:
                yield from self._postpone(item, str(error))
                return True
            if ranges is None:
                if start > 0:
                    yield from self._postpone(item, self._half_read(item))
                return start > 0
            match (yield from self._publish_ranges(item, ranges, carefully=carefully)):
                case _Finished():
                    return True
                case Unreadable(reason):
                    yield from self._postpone(item, reason)
                    return True
                case _Overtaken():
                    time.sleep(_OVERTAKEN_SECONDS)
                case unknown:
                    assert_never(unknown)

    def _has_many_lines(self, content: bytes) -> bool:
        """Whether so many messages may be in it that they are too many for one range."""
        return has_more_lines(content, self.range_limits.range_messages)

    def _ranges(
        self,
        location: ReceiveLocation,
        item: IntakeItem,
        start: int,
        received: int,
        messages: int,
        *,
        unread: TerminalError | None = None,
    ) -> Iterator[Range] | None:
        range_bytes = self.range_limits.range_bytes
        return location.ranges(item, start, received, messages, range_bytes=range_bytes, unread=unread)

    def _abandon(self, item: IntakeItem) -> Outcomes:
        """A source that vanished leaves the ledger, unless a part of it is published: the rest may come back."""
        self.agent.ledger.abandon([item.sequence])
        yield from self._postpone(item, self._half_read(item))

    def _postpone(self, item: IntakeItem, reason: str) -> Outcomes:
        """Leave a source alone for a while, if it is in the ledger. The reason that is told names the location."""
        name = self.names.get(item.location_id, f"number {item.location_id}")
        if (location := self.locations.get(item.location_id)) is not None:
            reason = location.without_secrets(reason)
        if self.agent.ledger.postpone(item.sequence, reason):
            yield Postponed(item.sequence, f"Receive location {name!r}: {reason}", item.location_id)

    def _half_read(self, item: IntakeItem) -> str:
        return f"{self.locations[item.location_id].name_of(item.identity)} is published in part and cannot be read on"

    def _not_at_work(self, item: IntakeItem) -> str:
        return "it cannot work here" if item.location_id in self.enabled else "it is disabled"

    def _publish_ranges(
        self, item: IntakeItem, ranges: Iterator[Range], *, carefully: bool
    ) -> Generator[Outcome, None, _Finished | _Overtaken | Unreadable]:
        """One after the other: a range begins where the one before it ended."""
        while True:
            started = time.perf_counter()
            try:
                range_ = next(ranges, None)
            except TransientError as error:
                return Unreadable(str(error))
            if range_ is None:
                name = self.locations[item.location_id].name_of(item.identity)
                return Unreadable(f"{name} vanished when it was half read")
            read, started = time.perf_counter() - started, time.perf_counter()
            try:
                published = self._publish_range(item, range_)
            except EpochMovedError:
                yield from self._receive([item], carefully=carefully)  # the locations changed: go on by the new ones
                return _Finished()
            except OutageError:
                raise
            except TransientError as error:
                return Unreadable(str(error))
            if not published.publications:
                return _Overtaken()
            yield _outcome(published, read, started)
            if range_.last:
                return _Finished()
            if carefully:
                self.agent.ledger.note_attempt(item.sequence, afresh=True)  # it is the next range that is tried now
            gc.collect()  # this may be one long task

    def _publish_range(self, item: IntakeItem, range_: Range) -> Published:
        try:
            return self.agent.publish([range_.publication], location_epoch=self.epoch)
        except (TransientError, UnavailableError, EpochMovedError):
            raise
        except TooManyMessagesError as error:  # in parts they would be as many
            return self._keep_back(self.locations[item.location_id].failed_range(item, range_, error))
        except Exception as error:
            return self._publish_parts(item, range_, _refusal(error))

    def _publish_parts(self, item: IntakeItem, range_: Range, error: TerminalError) -> Published:
        """A range that was refused: in smaller and smaller ones, down to the lines that have to be suspended."""
        location, whole = self.locations[item.location_id], range_.publication
        count = len(whole.messages) + len(whole.failures)
        if count <= 1:
            return self._keep_back(location.failed_range(item, range_, error))
        parts = self._ranges(location, item, range_.start, range_.received, max(1, count // _PARTS))
        last = Published()
        for part in parts or ():
            last = self._publish_range(item, part)
            if not last.publications or part.end == range_.end:
                break
        return last

    def _publish(self, pending: list[tuple[IntakeItem, Publication]], began: float, *, carefully: bool) -> Outcomes:
        """Publish together what was read since `began`; what the MessageBox cannot take is found by halving."""
        started = time.perf_counter()
        try:
            published = self.agent.publish([publication for _, publication in pending], location_epoch=self.epoch)
        except EpochMovedError:
            items = [item for item, _ in pending]
            yield from self._receive(items, carefully=carefully)  # the locations changed: read them again
            return
        except (TransientError, UnavailableError):
            raise
        except Exception as error:
            yield from self._publish_apart(pending, error, carefully=carefully)
            return
        yield _outcome(published, started - began, started)

    def _publish_apart(
        self, pending: list[tuple[IntakeItem, Publication]], error: Exception, *, carefully: bool
    ) -> Outcomes:
        if len(pending) > 1:
            middle = len(pending) // 2
            for half in (pending[:middle], pending[middle:]):
                yield from self._publish(half, time.perf_counter(), carefully=carefully)
            return
        [(item, _)] = pending
        match self._reading([item]).read(item):
            case Unreadable(reason):
                yield from self._postpone(item, reason)
            case Vanished():
                yield from self._abandon(item)
            case Content(body):
                try:
                    self._keep_back(self.locations[item.location_id].failed(item, body, _refusal(error)))
                except OutageError:
                    raise
                except TransientError as still:
                    yield from self._postpone(item, str(still))
            case unknown:
                assert_never(unknown)

    def _keep_back(self, publication: Publication) -> Published:
        """Suspend what cannot be published. Where even that is refused the source is left alone, and no other."""
        try:
            return self.agent.publish([publication])
        except (TransientError, UnavailableError):
            raise
        except Exception as error:
            raise TransientError(f"it can be neither published nor suspended: {_refusal(error)}") from error


def _outcome(published: Published, read_seconds: float, started: float) -> RangeOutcome:
    """Of a transaction that began to match at `started`."""
    store_seconds = time.perf_counter() - started - published.match_seconds
    return RangeOutcome(published.received, published.published, read_seconds, published.match_seconds, store_seconds)


def _refusal(error: Exception) -> TerminalError:
    """Why the MessageBox does not take something."""
    if isinstance(error, TerminalError):
        return error
    told = str(error) if isinstance(error, CrossdockError) else f"{type(error).__name__}: {error}"
    return StorageError(f"the MessageBox cannot hold it: {told}")
