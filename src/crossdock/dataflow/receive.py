"""The bulk lane: one streaming query whose single pass reads, promotes, matches and publishes on the executors.

Only outcome rows flow back. A range that runs twice, after a crash or in a second attempt, publishes nothing the second
time; losing the checkpoint is harmless, so every start begins with a fresh one.
"""

from __future__ import annotations

import gc
import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from crossdock.adapter.contract import BatchReceiveAdapter
from crossdock.dataflow.session import Spark
from crossdock.dataflow.source import IntakeSource
from crossdock.errors import CrossdockError, TransientError, UnavailableError
from crossdock.messagebox.agent import Agent, EpochMovedError
from crossdock.messagebox.rows import Published
from crossdock.receive.interchange import IntakeItem, Interchange
from crossdock.receive.location import LARGE_BYTES, Range, ReceiveLocation, locations_at_work

_TRIGGER = "200 milliseconds"
_INTERCHANGES_PER_TRANSACTION = 500
_BYTES_PER_TRANSACTION = 16 * 1024 * 1024
OUTCOME = (
    "sequence BIGINT, identity BINARY, reason STRING, received BIGINT, published BIGINT,"
    " read_seconds DOUBLE, match_seconds DOUBLE, store_seconds DOUBLE"
)
_OUTCOME_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("identity", pa.binary()),
        ("reason", pa.string()),
        ("received", pa.int64()),
        ("published", pa.int64()),
        ("read_seconds", pa.float64()),
        ("match_seconds", pa.float64()),
        ("store_seconds", pa.float64()),
    ]
)
_FAILURES_IN_A_ROW = 5
_FINISH_SECONDS = 3.0
_OVERTAKEN_SECONDS = 0.2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """What a worker published in one transaction, and how long it took to read, to match and to store it."""

    received: int
    published: int
    read_seconds: float
    match_seconds: float
    store_seconds: float


Unreadable = Callable[[int, bytes, str], None]
Heard = Callable[[RangeOutcome], None]


class ReceiveFlow:
    """The query of one receive host. `unreadable` hears of sources that could not be read, `heard` of the others."""

    def __init__(
        self, spark: Spark, database: str, host: int, unreadable: Unreadable, heard: Heard | None = None
    ) -> None:
        self._spark = spark
        self._database = database
        self._host = host
        self._checkpoint = spark.folder / f"checkpoint-{host}"
        self._index_folder = spark.folder / "index"
        self._unreadable = unreadable
        self._heard = heard or _log
        self._query: StreamingQuery | None = None
        self._failures = 0

    def start(self) -> None:
        """Begin at the start of the ledger: what it still holds is unpublished, or published and soon forgotten."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        session = self._spark.session
        session.dataSource.register(IntakeSource)
        source = session.readStream.format("crossdock_intake")
        ranges = source.option("databaseSecret", self._database).option("host", str(self._host)).load()
        outcomes = ranges.mapInArrow(receive_ranges(self._database, self._index_folder), OUTCOME)
        self._query = (
            outcomes.writeStream.foreachBatch(self._record)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=_TRIGGER)
            .start()
        )

    def check(self) -> None:
        """Start the query again if it failed; give up if Spark itself is gone or it keeps failing."""
        assert self._query is not None
        if not self._spark.alive():
            raise UnavailableError(f"Spark ended unexpectedly; see {self._spark.log}. Run again: nothing is lost.")
        try:
            if self._query.isActive:
                return
            problem = self._query.exception()
        except (PySparkException, OSError) as error:
            raise UnavailableError(f"Spark does not answer; see {self._spark.log}: {error}") from error
        self._failures += 1
        if self._failures >= _FAILURES_IN_A_ROW:
            reason = str(problem).strip().splitlines()[0][:300]
            raise UnavailableError(f"Receiving keeps failing; see {self._spark.log}: {reason}")
        logger.warning("Receiving failed and starts again; see %s", self._spark.log)
        self.start()

    def restart(self) -> None:
        """Begin again at the start of the ledger."""
        self.stop()
        self.start()

    def busy(self) -> bool:
        """Whether a micro-batch is under way."""
        return self._query is not None and bool(self._query.status["isTriggerActive"])

    def stop(self) -> None:
        """Stop between transactions; what was not committed is done by the next run."""
        try:
            if self._query is not None and self._spark.alive():
                self._finish_batch()
                self._query.stop()
        except Exception as error:
            logger.debug("The query did not stop in order: %s", error)

    def _finish_batch(self) -> None:
        """Let the micro-batch under way end by itself, for a moment: cutting it off is safe but noisy in the log."""
        deadline = time.monotonic() + _FINISH_SECONDS
        while time.monotonic() < deadline and self.busy():
            time.sleep(0.05)

    def _record(self, outcomes: DataFrame, _: int) -> None:
        """The sink: runs in this process, once per micro-batch."""
        for row in outcomes.collect():
            if row.reason is not None:
                self._unreadable(row.sequence, bytes(row.identity), row.reason)
            else:
                times = (row.read_seconds, row.match_seconds, row.store_seconds)
                self._heard(RangeOutcome(row.received, row.published, *times))
        self._failures = 0


def _log(outcome: RangeOutcome) -> None:
    logger.debug("%s", outcome)


def receive_ranges(database: str, index_folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The one pass, as Spark calls it on each task's ranges."""

    def receive(ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = _worker(database, index_folder)
        for batch in ranges:
            yield from worker.receive([IntakeItem(**row) for row in batch.to_pylist()])

    return receive


@dataclass(slots=True)
class _Worker:
    """What a Spark Python worker keeps between tasks: its agent and the receive locations as they are now."""

    agent: Agent
    box: int
    epoch: int = -1
    locations: dict[int, ReceiveLocation] = field(default_factory=dict)

    def receive(self, items: list[IntakeItem]) -> Iterator[pa.RecordBatch]:
        self._refresh()
        pending: list[tuple[IntakeItem, Interchange]] = []
        size, began = 0, time.perf_counter()
        contents = self._read_batches(items)
        for item in items:
            if item.size > LARGE_BYTES and item.location_id in self.locations:
                done = yield from self._receive_large(item)
                if done:
                    continue
            outcome = self._read(item, contents)
            if isinstance(outcome, Interchange):
                pending.append((item, outcome))
                size += item.size
            elif outcome is not None:
                yield _outcome(sequence=item.sequence, identity=item.identity, reason=outcome)
            if len(pending) >= _INTERCHANGES_PER_TRANSACTION or size >= _BYTES_PER_TRANSACTION:
                yield from self._publish(pending, time.perf_counter() - began)
                pending, size, began = [], 0, time.perf_counter()
        if pending:
            yield from self._publish(pending, time.perf_counter() - began)

    def _refresh(self) -> None:
        epoch = self.agent.location_epoch()
        if epoch != self.epoch:
            self.locations = locations_at_work(self.agent.locations())
            self.epoch = epoch

    def _receive_large(self, item: IntakeItem) -> Generator[pa.RecordBatch, None, bool]:
        """Range by range, from where it was left; False if it is to be read whole.

        What is published in part is never read whole. Where another task is at the same source, each does what the
        other has not done, so that this one is through when all of it is published.
        """
        location = self.locations[item.location_id]
        while True:
            start, received = self.agent.intake_progress(item.sequence)
            if start >= item.size:
                return True
            try:
                ranges = location.ranges(item, self.box, start, received)
            except TransientError as error:
                yield _outcome(sequence=item.sequence, identity=item.identity, reason=str(error))
                return True
            if ranges is None:
                if start > 0:
                    reason = f"{location.adapter.name(item.identity)} is published in part and cannot be read on"
                    yield _outcome(sequence=item.sequence, identity=item.identity, reason=reason)
                return start > 0
            outcome = yield from self._publish_ranges(item, ranges)
            if outcome != "overtaken":
                if outcome:
                    yield _outcome(sequence=item.sequence, identity=item.identity, reason=outcome)
                return True
            time.sleep(_OVERTAKEN_SECONDS)

    def _publish_ranges(self, item: IntakeItem, ranges: Iterator[Range]) -> Generator[pa.RecordBatch, None, str]:
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
                yield from self.receive([item])  # the locations changed: go on by the new ones
                return ""
            if not published.interchanges:
                return "overtaken"
            yield _published(published, read, started)
            if range_.interchange.last:
                return ""
            gc.collect()  # this may be one long task

    def _publish_range(self, item: IntakeItem, range_: Range) -> Published:
        try:
            return self.agent.publish([range_.interchange], location_epoch=self.epoch)
        except (CrossdockError, EpochMovedError):
            raise
        except Exception as error:
            reason = f"the MessageBox cannot hold it: {type(error).__name__}: {error}"
            location = self.locations[item.location_id]
            return self.agent.publish([location.failed_range(item, self.box, range_, reason)])

    def _read_batches(self, items: list[IntakeItem]) -> dict[int, bytes | None]:
        """The content of sources that are read many at once, by their sequence."""
        batches: defaultdict[int, list[IntakeItem]] = defaultdict(list)
        for item in items:
            batches[item.location_id].append(item)
        contents: dict[int, bytes | None] = {}
        for location_id, batch in batches.items():
            location = self.locations.get(location_id)
            if location is not None and isinstance(location.adapter, BatchReceiveAdapter):
                with suppress(TransientError):  # reading them one by one fails in the same way, and says so
                    found = location.adapter.read_batch([item.identity for item in batch])
                    contents |= {item.sequence: content for item, content in zip(batch, found, strict=True)}
        return contents

    def _read(self, item: IntakeItem, contents: Mapping[int, bytes | None]) -> Interchange | str | None:
        """An interchange, a reason why it cannot be read now, or None if there is nothing to publish any more."""
        location = self.locations.get(item.location_id)
        if location is None:
            return "its receive location is disabled"
        try:
            if item.sequence in contents:
                content = contents[item.sequence]
                interchange = None if content is None else location.interchange(item, self.box, content)
            else:
                interchange = location.receive(item, self.box)
        except TransientError as error:
            return f"Receive location {location.definition.name!r}: {error}"
        if interchange is None:
            self.agent.abandon_intake([item.sequence])
        return interchange

    def _publish(
        self, pending: list[tuple[IntakeItem, Interchange]], read_seconds: float = 0.0
    ) -> Iterator[pa.RecordBatch]:
        """Publish together; what the MessageBox cannot take is found one by one and suspended whole."""
        started = time.perf_counter()
        try:
            published = self.agent.publish([interchange for _, interchange in pending], location_epoch=self.epoch)
        except EpochMovedError:
            yield from self.receive([item for item, _ in pending])  # the locations changed: read them again
            return
        except CrossdockError:
            raise
        except Exception as error:
            yield from self._publish_apart(pending, error)
            return
        yield _published(published, read_seconds, started)

    def _publish_apart(
        self, pending: list[tuple[IntakeItem, Interchange]], error: Exception
    ) -> Iterator[pa.RecordBatch]:
        if len(pending) > 1:
            for each in pending:
                yield from self._publish([each])
            return
        [(item, _)] = pending
        location = self.locations[item.location_id]
        content = location.adapter.read(item.identity)
        if content is not None:
            reason = f"the MessageBox cannot hold it: {type(error).__name__}: {error}"
            self.agent.publish([location.failed(item, self.box, content, reason)])


# The one piece of module state: a Spark Python worker runs many tasks, and connects once.
_workers: dict[str, _Worker] = {}


def _worker(database: str, index_folder: Path) -> _Worker:
    if database not in _workers:
        agent = Agent(database, connections=1, index_folder=index_folder)
        agent.router()
        _workers[database] = _Worker(agent, agent.box_number())
        _collect_between_tasks()
    return _workers[database]


def _collect_between_tasks() -> None:
    """Spark runs the collector after every task. Let it pass over what stays, and not look at messages meanwhile."""
    gc.freeze()
    gc.disable()


def _published(published: Published, read_seconds: float, started: float) -> pa.RecordBatch:
    """The outcome of a transaction that began to match at `started`."""
    return _outcome(
        received=published.received,
        published=published.published,
        read_seconds=read_seconds,
        match_seconds=published.match_seconds,
        store_seconds=time.perf_counter() - started - published.match_seconds,
    )


def _outcome(**values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([values], schema=_OUTCOME_SCHEMA)
