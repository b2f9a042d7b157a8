"""The runtime: the only place that wires the parts together and runs them in one process.

The main thread keeps the intake; Spark publishes in its own processes; a host instance per host delivers in threads.
Stopping, also by an error, ends everything that was started.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock
from typing import IO, Any

from crossdock.application.store import Store
from crossdock.dataflow.receive import ReceiveFlow
from crossdock.dataflow.session import start_spark
from crossdock.errors import HomeInUseError, TransientError, UnavailableError
from crossdock.host.instance import HostInstance
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.rows import Statistics
from crossdock.receive.intake import Intake
from crossdock.receive.location import ReceiveLocation
from crossdock.send.port import SendPort
from crossdock.settings import Settings

_ROUND_SECONDS = 0.25
_RECONNECT_SECONDS = 0.5

logger = logging.getLogger(__name__)

Progress = Callable[[str, Statistics], None]


@dataclass(frozen=True, slots=True)
class Marks:
    """Where this run began, so that it can tell what it did itself."""

    publication: int
    delivery: int


def run(deployment: Deployment, settings: Settings, *, until_idle: bool, stop: Event, progress: Progress) -> Statistics:
    """Deploy and run everything on this machine until `stop` is set or, with `until_idle`, nothing is left to do."""
    with ExitStack() as stack:
        stack.enter_context(_home(settings.home))
        store = Store(settings)
        agent = store.open()
        stack.callback(store.close)
        agent.create()
        agent.deploy(deployment)
        begin = agent.statistics()
        runtime = Runtime(settings, store, Marks(begin.last_publication, begin.last_delivery), progress)
        with ExitStack() as parts:
            runtime.start(parts)
            runtime.work(stop, until_idle=until_idle)
            runtime.report("stopping")
        return runtime.report("stopped")


@contextmanager
def _home(home: Path) -> Iterator[None]:
    """Only one run in a home: its Spark files are not to be shared."""
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"The home {home} cannot be made: {error.strerror}. Choose another --home.") from error
    lock = home / "run.lock"
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HomeInUseError(
                f"Another `crossdock run` (process {_owner(file)}) is working in {home}. "
                "It picks up new files by itself; wait for it, stop it, or use another --home."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _owner(file: IO[str]) -> str:
    file.seek(0)
    return file.read() or "unknown"


class Runtime:
    """The running parts of one process."""

    def __init__(self, settings: Settings, store: Store, marks: Marks, progress: Progress) -> None:
        self._settings = settings
        self._store = store
        self._agent = store.agent
        self._marks = marks
        self._progress = progress
        self._intake = Intake(store.agent)
        self._epoch = -1
        self._refreshing = Lock()
        self._locations: dict[int, ReceiveLocation] = {}
        self._disabled: dict[int, ReceiveLocation] = {}
        self._ports: dict[int, SendPort] = {}
        self._hosts: list[HostInstance] = []
        self._flow: ReceiveFlow | None = None

    def start(self, stack: ExitStack) -> None:
        """Start hosts, then Spark; `stack` stops them in the opposite order."""
        self._refresh()
        for host_id in self._agent.hosts().values():
            host = HostInstance(self._agent, host_id, self._services)
            self._hosts.append(host)
            host.start()
            stack.callback(host.stop)
        self.report("starting Spark")
        spark = start_spark(self._settings.home, master=self._settings.master, ui=self._settings.spark_ui)
        stack.callback(spark.close)
        self._flow = ReceiveFlow(spark, self._agent.database, self._intake.postpone)
        self._flow.start()
        stack.callback(self._flow.stop)

    def work(self, stop: Event, *, until_idle: bool) -> None:
        """Rounds of the intake until there is a reason to end."""
        while not stop.is_set():
            try:
                if self._round() and until_idle:
                    return
                stop.wait(_ROUND_SECONDS)
            except TransientError as error:
                logger.warning("%s; trying again", error)
                stop.wait(_RECONNECT_SECONDS)
                self._store.revive()

    def _round(self) -> bool:
        """List, remove, look; True if nothing is left to do."""
        assert self._flow is not None
        self._refresh()
        new = self._intake.round(self._locations, self._disabled)
        self._flow.check()
        for host in self._hosts:
            host.check()
        statistics = self.report("running")
        return new == 0 and self._intake.incomplete == 0 and self._nothing_left(statistics)

    def _nothing_left(self, statistics: Statistics) -> bool:
        if statistics.unread > self._intake.postponed + self._intake.failing or statistics.ready or statistics.claimed:
            return False
        # Publishing commits before its source is removed: once more, now that nothing is being published.
        self._intake.acknowledge({**self._disabled, **self._locations})
        return True

    def report(self, phase: str) -> Statistics:
        """What this run has done so far; shown to whoever watches."""
        statistics = self._agent.statistics(publication=self._marks.publication, delivery=self._marks.delivery)
        # A location that cannot be listed has something unread too, for all we know.
        statistics = replace(statistics, unread=statistics.unread + self._intake.failing)
        self._progress(phase, statistics)
        return statistics

    def _refresh(self) -> None:
        """Follow changes of the configuration."""
        with self._refreshing:
            epoch = self._agent.epoch()
            if epoch == self._epoch:
                return
            self._locations = _at_work(self._agent.locations())
            self._disabled = _at_work(self._agent.locations(enabled=False))
            self._ports = {id_: SendPort.from_definition(kept) for id_, _, kept in self._agent.services()}
            self._epoch = epoch

    def _services(self) -> Mapping[int, SendPort]:
        """For the hosts: a reference may be for a port that was deployed a moment ago."""
        self._refresh()
        return self._ports


def _at_work(definitions: Iterable[tuple[int, int, dict[str, Any]]]) -> dict[int, ReceiveLocation]:
    return {id_: ReceiveLocation.from_definition(id_, host, kept) for id_, host, kept in definitions}
