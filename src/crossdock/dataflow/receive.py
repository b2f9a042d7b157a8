"""The bulk lane: one streaming query whose single pass reads, promotes, matches and publishes on the executors.

Only outcome rows flow back. A range that runs twice, after a crash or in a second attempt, publishes nothing the second
time; losing the checkpoint is harmless, so every start begins with a fresh one.
"""

from __future__ import annotations

import gc
import logging
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import assert_never

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from crossdock.dataflow.outcome import OUTCOME, Interrupted, Noticed, Postponed, RangeOutcome, from_text, to_batch
from crossdock.dataflow.session import Spark
from crossdock.dataflow.slow_batch import SlowBatch
from crossdock.dataflow.source import IntakeSource
from crossdock.dataflow.worker import Worker
from crossdock.errors import OutageError, TransientError, UnavailableError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.conninfo import Travelling
from crossdock.messagebox.troubles import Trouble, Troubles
from crossdock.receive.item import IntakeItem
from crossdock.receive.time_limit import TIME_LIMIT_SECONDS

_TRIGGER = "100 milliseconds"
_FAILURES_IN_A_ROW = 5
_FINISH_SECONDS = 3.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 10.0
# As Python prints it; Spark gives what a worker raised as text.
_OUTAGE = re.compile(rf"{OutageError.__module__}\.{OutageError.__qualname__}: ([^\n]*)")
_SAY_AGAIN_SECONDS = 60.0
_NO_ROOM = "No space left on device"

logger = logging.getLogger(__name__)

Heard = Callable[[RangeOutcome], None]


class ReceiveFlow:
    """The query of one receive host.

    `waits` hears why it failed if it is to be started again later: the MessageBox is away, or a disk is full. `heard`
    is told what was published, `troubles` what failed.
    """

    def __init__(
        self,
        spark: Spark,
        database: str,
        host: int,
        waits: Callable[[OutageError], None],
        heard: Heard | None = None,
        troubles: Troubles | None = None,
    ) -> None:
        self._spark = spark
        # Spark writes what it sends to disks, and over a network that need not be encrypted.
        self._database = Travelling.to_other_machines(database) if spark.remote else Travelling(database)
        self._host = host
        self._checkpoint = spark.folder / f"checkpoint-{host}"
        self._index_folder = spark.folder / "index"
        self._heard = heard or partial(logger.debug, "%s")
        self._troubles = troubles or Troubles()
        self._postponed_said: dict[int, float] = {}
        self._query: StreamingQuery | None = None
        self._failures = 0
        self._waits = waits
        self._pause = _FIRST_PAUSE_SECONDS
        self._start_at: float | None = None
        self._interrupted: str | None = None
        self._outage: OutageError | None = None
        self._slow = SlowBatch(spark.time_limit)

    def start(self) -> None:
        """Begin with whatever is due. What a query before it had claimed comes free with its session."""
        self._start_at = self._interrupted = None
        try:
            self._start()
        except (PySparkException, Py4JError, OSError) as error:
            self._failed(str(error))

    def _start(self) -> None:
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        session = self._spark.session
        session.dataSource.register(IntakeSource)
        source = session.readStream.format("crossdock_intake")
        database = self._database
        source = source.option("databaseSecret", database.address).option("bare", str(database.bare))
        ranges = source.option("host", str(self._host)).load()
        outcomes = ranges.mapInArrow(receive_ranges(database, self._index_folder, self._spark.time_limit), OUTCOME)
        self._query = (
            outcomes.writeStream.foreachBatch(self._record)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=_TRIGGER)
            .start()
        )

    def check(self) -> None:
        """Start the query again if it failed; give up if Spark itself is gone or it keeps failing."""
        if not self._spark.alive():
            raise UnavailableError(f"Spark ended unexpectedly; see {self._spark.log}. Run again: nothing is lost.")
        if self._start_at is not None:
            self._still_waits()
            if time.monotonic() >= self._start_at:
                self.start()
            return
        assert self._query is not None
        if self._interrupted is not None:
            self.stop()  # it ends by itself, and begins anew with what its tasks have left
            self._wait(self._interrupted)
            return
        try:
            if self._query.isActive:
                busy = self.busy()
                self._slow.seen(busy=busy)
                if self._outage is not None and busy:  # whether it is over is known after this batch
                    self._still_waits()
                return
            problem = self._query.exception()
        except (PySparkException, Py4JError, OSError) as error:
            raise UnavailableError(f"Spark does not answer; see {self._spark.log}: {_first_line(error)}") from error
        self._failed(str(problem))

    def _failed(self, problem: str) -> None:
        """An outage is not the fault of the query: it begins again once that may be over, however often."""
        found = _OUTAGE.search(problem)
        if found is not None or _NO_ROOM in problem:
            self._wait(f"Receiving cannot go on, a disk is full: see {self._spark.log}" if found is None else found[1])
            return
        self._failures += 1
        if self._failures >= _FAILURES_IN_A_ROW:
            raise UnavailableError(f"Receiving keeps failing; see {self._spark.log}: {_first_line(problem)}")
        logger.warning("Receiving failed and starts again; see %s", self._spark.log)
        self._start_at = time.monotonic()

    def _wait(self, reason: str) -> None:
        kind, _, details = reason.strip().partition(": ")
        self._outage = OutageError(kind, details)
        self._still_waits()
        self._start_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def _still_waits(self) -> None:
        if self._outage is not None:
            self._waits(self._outage)

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
        self._slow.ended()
        for (text,) in outcomes.collect():
            match from_text(text):
                case RangeOutcome() as done:
                    self._heard(done)
                case Postponed() as postponed:
                    self._say_postponed(postponed)
                case Noticed(location, code, count):
                    self._troubles.add(Trouble("location", location, code, count))
                case Interrupted(reason):
                    self._interrupted = reason
                case unknown:
                    assert_never(unknown)
        if self._interrupted is not None:
            raise TransientError(self._interrupted)  # no batch after this one comes before what it has left
        self._failures, self._pause, self._outage = 0, _FIRST_PAUSE_SECONDS, None

    def _say_postponed(self, postponed: Postponed) -> None:
        """Of the sources of a location one now and then: a folder may hold thousands that cannot be read."""
        now = time.monotonic()
        said = self._postponed_said.get(postponed.location_id)
        if said is None or now - said >= _SAY_AGAIN_SECONDS:
            self._postponed_said[postponed.location_id] = now
            logger.warning("%s; trying again later", postponed.reason)
        else:
            logger.info("%s; trying again later", postponed.reason)


def _first_line(problem: object) -> str:
    return next(iter(str(problem).strip().splitlines()), "")[:300]


def receive_ranges(
    database: Travelling, index_folder: Path, time_limit: float = TIME_LIMIT_SECONDS
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The one pass, as Spark calls it on each task's ranges."""

    def receive(ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        # Whoever ran it before may have been ended by one of its sources.
        carefully = task is not None and task.attemptNumber() > 0
        try:
            worker = _worker(database, index_folder, time_limit)
            for batch in ranges:
                items = [IntakeItem(**row) for row in batch.to_pylist()]
                yield from map(to_batch, worker.receive(items, carefully=carefully))
                noticed = (Noticed(id_, code, count) for _, id_, code, count in worker.agent.troubles.drain())
                yield from map(to_batch, noticed)
        except OutageError as error:
            # Not a failure of the task: Spark would try it again at once, each time in a new process.
            yield to_batch(Interrupted(str(error)))
            for _ in ranges:
                pass

    return receive


# The one piece of module state: a Spark Python worker runs many tasks, and connects once.
_workers: dict[Travelling, Worker] = {}


def _worker(database: Travelling, index_folder: Path, time_limit: float) -> Worker:
    if database not in _workers:
        agent = Agent(database.arrived(), connections=1, index_folder=index_folder)
        try:
            agent.box.check_version()  # a machine of a cluster may have another Crossdock than the driver
            agent.router()
        except TransientError as error:
            raise _explained(error, database) from error
        _workers[database] = Worker(agent, time_limit)
        _collect_between_tasks()
        _ignore_interrupts()
    return _workers[database]


def _explained(error: TransientError, database: Travelling) -> TransientError:
    if not database.bare or "no password supplied" not in str(error):
        return error
    return TransientError(
        f"{error}; passwords are not sent to Spark's executors: set CROSSDOCK_DATABASE or PGPASSWORD where they run, "
        "or give them a password file"
    )


def _collect_between_tasks() -> None:
    """Spark runs the collector after every task. Let it pass over what stays, and not look at messages meanwhile."""
    gc.freeze()
    gc.disable()


def _ignore_interrupts() -> None:
    """Spark ends its workers by other signals: a KeyboardInterrupt here is a component's own, and fails its message."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
