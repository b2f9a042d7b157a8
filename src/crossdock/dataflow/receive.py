"""The bulk lane: one streaming query whose single pass reads, promotes, matches and publishes on the executors.

Only outcome rows flow back. A range that runs twice, after a crash or in a second attempt, publishes nothing the second
time; losing the checkpoint is harmless, so every start begins with a fresh one.
"""

from __future__ import annotations

import gc
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from crossdock.dataflow.outcome import OUTCOME, RangeOutcome
from crossdock.dataflow.session import Spark
from crossdock.dataflow.source import IntakeSource
from crossdock.dataflow.worker import Worker
from crossdock.errors import UnavailableError
from crossdock.messagebox.agent import Agent
from crossdock.receive.interchange import IntakeItem
from crossdock.receive.time_limit import TIME_LIMIT_SECONDS

_TRIGGER = "100 milliseconds"
_FAILURES_IN_A_ROW = 5
_FINISH_SECONDS = 3.0

logger = logging.getLogger(__name__)

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
        outcomes = ranges.mapInArrow(
            receive_ranges(self._database, self._index_folder, self._spark.time_limit), OUTCOME
        )
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


def receive_ranges(
    database: str, index_folder: Path, time_limit: float = TIME_LIMIT_SECONDS
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The one pass, as Spark calls it on each task's ranges."""

    def receive(ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = _worker(database, index_folder, time_limit)
        task = TaskContext.get()
        # Whoever ran it before may have been ended by one of its sources.
        carefully = task is not None and task.attemptNumber() > 0
        for batch in ranges:
            yield from worker.receive([IntakeItem(**row) for row in batch.to_pylist()], carefully=carefully)

    return receive


# The one piece of module state: a Spark Python worker runs many tasks, and connects once.
_workers: dict[str, Worker] = {}


def _worker(database: str, index_folder: Path, time_limit: float) -> Worker:
    if database not in _workers:
        agent = Agent(database, connections=1, index_folder=index_folder)
        agent.router()
        _workers[database] = Worker(agent, agent.box_number(), time_limit)
        _collect_between_tasks()
    return _workers[database]


def _collect_between_tasks() -> None:
    """Spark runs the collector after every task. Let it pass over what stays, and not look at messages meanwhile."""
    gc.freeze()
    gc.disable()
