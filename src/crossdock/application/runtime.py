"""The runtime: the only place that wires the parts together and runs them in one process.

The main thread keeps the intake; Spark publishes in its own processes; a host instance per host delivers in threads.
`run` does all of it in one process, `receive` and `deliver` each a part. Stopping, also by an error, ends everything
that was started.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Any

from pydantic import ValidationError

from crossdock.application.servers import HttpServers
from crossdock.application.store import Store
from crossdock.dataflow.receive import ReceiveFlow
from crossdock.dataflow.session import Spark, start_spark
from crossdock.errors import ApplicationError, HomeInUseError, TransientError, UnavailableError, UsageError
from crossdock.host.instance import HostInstance
from crossdock.maintenance.schedule import Schedule, all_jobs
from crossdock.maintenance.schedule import run as run_job
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.caching import EpochWatch
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.rows import Statistics
from crossdock.receive.intake import Intake
from crossdock.receive.location import ReceiveLocation, locations_at_work
from crossdock.send.port import SendPort
from crossdock.settings import Settings

_ROUND_SECONDS = 0.25
_RECONNECT_SECONDS = 0.5
_RESTART_SECONDS = 300.0

logger = logging.getLogger(__name__)

Progress = Callable[[str, Statistics], None]


def run(deployment: Deployment, settings: Settings, *, until_idle: bool, stop: Event, progress: Progress) -> Statistics:
    """Deploy and run everything on this machine until `stop` is set or, with `until_idle`, nothing is left to do."""
    with ExitStack() as stack:
        stack.enter_context(_home(settings.home))
        store = _opened(stack, settings)
        store.agent.create()
        store.agent.deploy(deployment)
        _create_roles(store.agent, settings)
        runtime = Runtime(settings, store, progress)
        _work(runtime, stop, until_idle=until_idle)
        runtime.clean_up()
        return runtime.report("stopped")


def receive(settings: Settings, *, stop: Event, progress: Progress) -> Statistics:
    """Receive for everything that is deployed, until `stop` is set; others deliver."""
    with ExitStack() as stack:
        stack.enter_context(_home(settings.home))
        runtime = Runtime(settings, _opened(stack, settings), progress, hosts=())
        _work(runtime, stop)
        return runtime.report("stopped")


def deliver(settings: Settings, hosts: Sequence[str], *, stop: Event, progress: Progress) -> Statistics:
    """One more instance of each of these hosts, until `stop` is set; others receive."""
    with ExitStack() as stack:
        store = _opened(stack, settings)
        unknown = sorted(set(hosts) - set(store.agent.hosts()))
        if unknown:
            known = ", ".join(store.agent.hosts()) or "none"
            raise UsageError(f"There is no host {unknown[0]!r} (there are: {known}).")
        runtime = Runtime(settings, store, progress, receives=False, hosts=hosts)
        _work(runtime, stop)
        return runtime.report("stopped")


def _opened(stack: ExitStack, settings: Settings) -> Store:
    store = Store(settings)
    store.open()
    stack.callback(store.close)
    return store


def _work(runtime: Runtime, stop: Event, *, until_idle: bool = False) -> None:
    with ExitStack() as parts:
        runtime.start(parts)
        runtime.work(stop, until_idle=until_idle)
        runtime.report("stopping")


def _create_roles(agent: Agent, settings: Settings) -> None:
    """On a server, a database role for each host; where we may not make roles, that is the administrator's to do."""
    if settings.database:
        try:
            agent.create_host_roles()
        except UnavailableError as error:
            logger.debug("No roles were made for the hosts: %s", error)


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
                f"Another `crossdock run` or `pipeline` (process {_owner(file)}) is working in {home}. "
                "It picks up new files by itself; wait for it, stop it, or use another --home."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _owner(file: IO[str]) -> str:
    file.seek(0)
    return file.read() or "unknown"


def _now() -> datetime:
    return datetime.now(UTC)


class Runtime:
    """The running parts of one process: whether it receives, and the hosts it delivers for, all if none are named."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        progress: Progress,
        *,
        receives: bool = True,
        hosts: Sequence[str] | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._store = store
        self._agent = store.agent
        self._begin = store.agent.statistics()
        self._progress = progress
        self._receives = receives
        self._host_names = hosts
        self._jobs = all_jobs(store.agent, purge_suspended_after=settings.purge_suspended_after)
        self._watching = Event()
        self._next_report = 0.0
        self._intake = Intake(store.agent)
        self._epoch = -1
        self._refreshing = Lock()
        self._locations: dict[int, ReceiveLocation] = {}
        self._disabled: dict[int, ReceiveLocation] = {}
        self._pushed: dict[int, ReceiveLocation] = {}
        self._ports: dict[int, tuple[object, SendPort | None]] = {}
        self._servers: HttpServers | None = None
        self._hosts: list[HostInstance] = []
        self._spark: Spark | None = None
        self._flows: dict[int, ReceiveFlow] = {}
        self._receiving: dict[int, int] = {}
        self._next_restart = 0.0

    def start(self, stack: ExitStack) -> None:
        """Start hosts and maintenance, then Spark; `stack` stops them in the opposite order."""
        self._refresh()
        schedule = Schedule(self._jobs)
        schedule.start()
        stack.callback(schedule.stop)
        self._start_watch(stack)
        for name, host_id in self._agent.hosts().items():
            if self._host_names is None or name in self._host_names:
                host = HostInstance(self._agent, host_id, self._service, clock=self._clock)
                self._hosts.append(host)
                host.start()
                stack.callback(host.stop)
        if self._hosts:
            self._servers = HttpServers(self._agent)
            self._servers.start()
            stack.callback(self._servers.stop)
            self._servers.follow(self._pushed)
        if self._receives:
            self.report("starting Spark")
            self._spark = start_spark(self._settings)
            stack.callback(self._spark.close)
            stack.callback(self._stop_flows)

    def _keep_flows(self) -> None:
        """A query for each host that receives; one that is new begins, one that failed begins again."""
        assert self._spark is not None
        hosts = {id_: location.host_id for id_, location in self._locations.items()}
        moved = any(self._receiving.get(id_, host) != host for id_, host in hosts.items())
        self._receiving |= hosts
        for host in set(hosts.values()) - self._flows.keys():
            flow = ReceiveFlow(self._spark, self._agent.database, host, self._intake.postpone)
            flow.start()
            self._flows[host] = flow
        for flow in self._flows.values():
            flow.check()
        # There is something to read before what they have read already. What stalls may stay so for long.
        stalled = self._intake.stalled and time.monotonic() >= self._next_restart
        if moved or stalled:
            self._intake.stalled = False
            self._next_restart = time.monotonic() + _RESTART_SECONDS
            for flow in self._flows.values():
                flow.restart()

    def _stop_flows(self) -> None:
        for flow in self._flows.values():
            flow.stop()

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
        self._refresh()
        new = 0
        if self._receives:
            new = self._intake.round(self._locations, self._disabled)
            self._keep_flows()
        if self._servers is not None:
            self._servers.follow(self._pushed)
            self._servers.check()
        for host in self._hosts:
            host.check()
        if new or self._intake.incomplete or not self._idle():
            self._report_now_and_then()
            return False
        return self._nothing_left(self.report("running"))

    def _idle(self) -> bool:
        """Cheap to ask, unlike counting. What waits for room at a slow partner is still in its queue."""
        now = self._clock()
        return all(self._agent.idle(host, now=now) for host in self._agent.hosts().values())

    def _nothing_left(self, statistics: Statistics) -> bool:
        if statistics.unread > self._intake.postponed + self._intake.failing or statistics.ready or statistics.claimed:
            return False
        # Publishing commits before its source is removed: once more, now that nothing is being published.
        self._intake.acknowledge({**self._disabled, **self._locations})
        return True

    def clean_up(self) -> None:
        """Once more, now that nothing happens: twice, since a part goes in the round after its message."""
        for _ in range(2):
            for job in self._jobs:
                run_job(job)

    def _report_now_and_then(self) -> None:
        """Counting takes time in a large MessageBox: no more than a part of ours."""
        if time.monotonic() >= self._next_report:
            began = time.monotonic()
            self.report("running")
            self._next_report = began + max(_ROUND_SECONDS, 10 * (time.monotonic() - began))

    def report(self, phase: str) -> Statistics:
        """What this run has done so far; shown to whoever watches."""
        statistics = self._agent.statistics().since(self._begin)
        # A location that cannot be listed has something unread too, for all we know.
        statistics = replace(statistics, unread=statistics.unread + self._intake.failing)
        self._progress(phase, statistics)
        return statistics

    def _start_watch(self, stack: ExitStack) -> None:
        """The caching service of this process: follow a new epoch as soon as it is there."""
        watch = self._agent.watch_epoch()
        thread = Thread(target=self._watch, args=[watch], name="caching", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self._watching.set)

    def _watch(self, watch: EpochWatch) -> None:
        while not self._watching.is_set():
            try:
                watch.wait()
                self._refresh()
            except TransientError as error:
                logger.debug("The configuration is not refreshed: %s", error)
                self._watching.wait(_RECONNECT_SECONDS)
        watch.close()

    def _refresh(self) -> None:
        """Follow changes of the configuration."""
        with self._refreshing:
            epoch = self._agent.epoch()
            if epoch == self._epoch:
                return
            hosts = self._agent.hosts()
            mine = {id_ for name, id_ in hosts.items() if self._host_names is None or name in self._host_names}
            enabled = locations_at_work(self._agent.locations(), time_limit=self._settings.time_limit)
            self._locations = {id_: each for id_, each in enabled.items() if not each.is_pushed}
            self._pushed = {id_: each for id_, each in enabled.items() if each.is_pushed and each.host_id in mine}
            self._disabled = locations_at_work(self._agent.locations(enabled=False))
            before, self._ports = self._ports, self._ports_at_work()
            for port in {id(port): port for _, port in before.values()}.values():
                if port is not None and all(port is not kept for _, kept in self._ports.values()):
                    port.close()  # whoever still sends by it finishes
            self._epoch = epoch

    def _ports_at_work(self) -> dict[int, tuple[object, SendPort | None]]:
        """Those that have not changed stay: they have connections, and a pace. A port in a group is the port itself."""
        found: dict[int, tuple[object, SendPort | None]] = {}
        named: dict[object, tuple[object, SendPort | None]] = {}
        for id_, _, kept in self._agent.services():
            alike = (each for each in (named.get(kept.get("name")), self._ports.get(id_)) if each and each[0] == kept)
            found[id_] = named[kept.get("name")] = next(alike, None) or self._port(kept)
        return found

    def _port(self, kept: Mapping[str, Any]) -> tuple[object, SendPort | None]:
        try:
            return kept, SendPort.from_definition(kept, self._agent.message_id)
        except ApplicationError as error:
            logger.error("Send port %r cannot work here: %s", kept.get("name"), error)
        except ValidationError as error:  # what it shows of its input may hold a password
            problem = error.errors(include_input=False, include_url=False)[0]
            logger.error("Send port %r cannot work here: %s: %s", kept.get("name"), problem["loc"], problem["msg"])
        return kept, None

    def _service(self, service_id: int) -> SendPort | None:
        """For the hosts: a reference may be for a port that was deployed a moment ago."""
        if service_id not in self._ports:
            self._refresh()
        _, port = self._ports.get(service_id, (None, None))
        return port
