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
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Any

from pydantic import ValidationError

from crossdock.application.pushed import PushedLocations
from crossdock.application.store import Store
from crossdock.dataflow.receive import ReceiveFlow
from crossdock.dataflow.session import Spark, start_spark
from crossdock.errors import ApplicationError, HomeInUseError, TransientError, UnavailableError, UsageError
from crossdock.home import keep_logs_small, make_home
from crossdock.host.instance import HostInstance
from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from crossdock.host.outcome import Elsewhere
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
from crossdock.subscription.router import Epoch

_ROUND_SECONDS = 0.25
_RECONNECT_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 4.0

logger = logging.getLogger(__name__)

Progress = Callable[[str, Statistics], None]


def run(deployment: Deployment, settings: Settings, *, until_idle: bool, stop: Event, progress: Progress) -> Statistics:
    """Deploy and run everything on this machine until `stop` is set or, with `until_idle`, nothing is left to do."""
    with ExitStack() as stack:
        stack.enter_context(_home(settings.home))
        store = _opened(stack, settings, any_version=True)
        store.agent.box.create()
        store.agent.subscriptions.deploy(deployment)
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
        _check_hosts(store.agent, hosts)
        runtime = Runtime(settings, store, progress, receives=False, hosts=hosts)
        _work(runtime, stop)
        return runtime.report("stopped")


def _check_hosts(agent: Agent, names: Sequence[str]) -> None:
    known = agent.configuration.hosts()
    if unknown := sorted(set(names) - set(known)):
        raise UsageError(f"There is no host {unknown[0]!r} (there are: {', '.join(known) or 'none'}).")
    own = agent.box.own_hosts()
    if foreign := [name for name in names if known[name] not in own]:
        raise UnavailableError(
            f"The database user may not work for host {foreign[0]!r}: "
            f"make it a member of the role {agent.box.host_role(known[foreign[0]])}."
        )


def _opened(stack: ExitStack, settings: Settings, *, any_version: bool = False) -> Store:
    store = Store(settings)
    store.open(any_version=any_version)
    stack.callback(store.close)
    for trouble in store.agent.box.troubles():
        logger.warning("%s", trouble)
    return store


def _work(runtime: Runtime, stop: Event, *, until_idle: bool = False) -> None:
    with ExitStack() as parts:
        runtime.start(parts)
        runtime.work(stop, until_idle=until_idle)
        runtime.report("stopping")


def _create_roles(agent: Agent, settings: Settings) -> None:
    """On a server, a database role for each host; where we may not make roles, everything else works without."""
    if settings.database:
        try:
            agent.box.create_host_roles()
        except UnavailableError as error:
            logger.warning("%s", error)


@contextmanager
def _home(home: Path) -> Iterator[None]:
    """Only one run in a home: its Spark files are not to be shared."""
    try:
        if not make_home(home):
            logger.warning("The home %s holds other things too and stays open to others; ours in it is closed", home)
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
        host_limits: HostLimits = DEFAULT_LIMITS,
    ) -> None:
        self._settings = settings
        self._store = store
        self._agent = store.agent
        self._progress = progress
        self._receives = receives
        self._host_names = hosts
        self._host_limits = host_limits
        self._begin = self._statistics()
        # A process that works under the role of a host may not maintain what is everybody's.
        may_maintain = store.agent.box.may_maintain()
        jobs = all_jobs(store.agent, purge_suspended_after=settings.purge_suspended_after)
        self._jobs = jobs if may_maintain else {}
        self._watching = Event()
        self._next_report = 0.0
        self._intake = Intake(store.agent.ledger)
        self._epoch: Epoch | None = None
        self._refreshing = Lock()
        self._locations: dict[int, ReceiveLocation] = {}
        self._disabled: dict[int, ReceiveLocation] = {}
        self._pushed: dict[int, ReceiveLocation] = {}
        self._ports: dict[int, tuple[object, SendPort | Elsewhere | None]] = {}
        self._elsewhere = Elsewhere()
        self._listening: PushedLocations | None = None
        self._hosts: list[HostInstance] = []
        self._spark: Spark | None = None
        self._flows: dict[int, ReceiveFlow] = {}
        self._times_elsewhere = store.agent.times_elsewhere

    def start(self, stack: ExitStack) -> None:
        """Start hosts and maintenance, then Spark; `stack` stops them in the opposite order."""
        self._refresh()
        if self._jobs:
            schedule = Schedule(self._jobs, self._agent.outage.waits)
            schedule.start()
            stack.callback(schedule.stop)
        self._start_watch(stack)
        for host_id in self._own_hosts():
            host = HostInstance(self._agent, host_id, self._service, limits=self._host_limits)
            self._hosts.append(host)
            host.start()
            stack.callback(host.stop)
        if self._hosts:
            self._listening = PushedLocations(self._agent)
            self._listening.start()
            stack.callback(self._listening.stop)
            self._listening.follow(self._pushed)
        if self._receives:
            self.report("starting Spark")
            self._spark = start_spark(self._settings)
            stack.callback(self._spark.close)
            stack.callback(self._stop_flows)

    def _own_hosts(self) -> list[int]:
        """Those that it delivers for."""
        names = self._host_names
        return [
            host_id for name, host_id in self._agent.configuration.hosts().items() if names is None or name in names
        ]

    def _keep_flows(self) -> None:
        """A query for each host that receives; one that is new begins, one that failed begins again."""
        assert self._spark is not None
        for host in {location.host_id for location in self._locations.values()} - self._flows.keys():
            self._flows[host] = ReceiveFlow(self._spark, self._agent.database, host, waits=self._agent.outage.waits)
            self._flows[host].start()
        for flow in self._flows.values():
            flow.check()
        if self._agent.times_elsewhere != self._times_elsewhere:
            self._times_elsewhere = self._agent.times_elsewhere
            self._intake.forget()

    def _stop_flows(self) -> None:
        for flow in self._flows.values():
            flow.stop()

    def work(self, stop: Event, *, until_idle: bool) -> None:
        """Rounds of the intake until there is a reason to end."""
        pause = _RECONNECT_SECONDS
        while not stop.is_set():
            keep_logs_small(self._settings.home)
            try:
                if self._round() and until_idle:
                    self._intake.name_held()
                    return
                pause = _RECONNECT_SECONDS
                stop.wait(_ROUND_SECONDS)
            except TransientError as error:
                self._agent.outage.waits(error)
                stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                self._revive()

    def _revive(self) -> None:
        """Also where that fails we go on: an embedded server whose disk is full comes back once there is room."""
        try:
            self._store.revive()
        except TransientError as error:
            self._agent.outage.waits(error)

    def _round(self) -> bool:
        """List, remove, look; True if nothing is left to do."""
        self._refresh()
        new = 0
        if self._receives:
            new = self._intake.round(self._locations, self._disabled)
            self._keep_flows()
        if self._listening is not None:
            self._listening.follow(self._pushed)
            self._listening.check()
        for host in self._hosts:
            host.check()
        if new or self._intake.incomplete or not self._idle():
            self._report_now_and_then()
            return False
        return self._nothing_left(self.report("running"))

    def _idle(self) -> bool:
        """Cheap to ask, unlike counting. What waits for room at a slow partner is still in its queue."""
        hosts = self._agent.configuration.hosts().values() if self._receives else self._own_hosts()
        return all(self._agent.queues.idle(host) for host in hosts)

    def _nothing_left(self, statistics: Statistics) -> bool:
        waiting = self._agent.ledger.waiting() + self._intake.failing + self._intake.held if self._receives else 0
        if statistics.unread > waiting or statistics.ready or statistics.claimed:
            return False
        if not self._receives:
            return True
        # Publishing commits before its source is removed: once more, now that nothing is being published.
        self._intake.acknowledge({**self._disabled, **self._locations})
        return not self._intake.incomplete

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
        statistics = self._statistics().since(self._begin)
        # A location that cannot be listed has something unread too, for all we know.
        unread = statistics.unread + self._intake.failing + self._intake.held
        statistics = replace(statistics, unread=unread)
        self._progress(phase, statistics)
        return statistics

    def _statistics(self) -> Statistics:
        """Of the whole MessageBox, or of what a process that only delivers has to do with."""
        return self._agent.statistics() if self._receives else self._agent.host_statistics(self._own_hosts())

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
            mine = set(self._own_hosts())
            enabled = locations_at_work(self._agent.configuration.locations(), time_limit=self._settings.time_limit)
            self._locations = {id_: each for id_, each in enabled.items() if not each.is_pushed}
            self._pushed = {id_: each for id_, each in enabled.items() if each.is_pushed and each.host_id in mine}
            self._disabled = locations_at_work(self._agent.configuration.locations(enabled=False))
            before, self._ports = self._ports, self._ports_at_work()
            for port in {id(port): port for _, port in before.values()}.values():
                if isinstance(port, SendPort) and all(port is not kept for _, kept in self._ports.values()):
                    port.close()  # whoever still sends by it finishes
            self._epoch = epoch

    def _ports_at_work(self) -> dict[int, tuple[object, SendPort | Elsewhere | None]]:
        """Those that have not changed stay: they have connections, and a pace. A port in a group is the port itself."""
        found: dict[int, tuple[object, SendPort | Elsewhere | None]] = {}
        named: dict[object, tuple[object, SendPort | Elsewhere | None]] = {}
        for id_, _, kept in self._agent.configuration.services():
            if kept is None:
                found[id_] = None, self._elsewhere
                continue
            alike = (each for each in (named.get(kept.get("name")), self._ports.get(id_)) if each and each[0] == kept)
            found[id_] = named[kept.get("name")] = next(alike, None) or self._port(kept)
        return found

    def _port(self, kept: Mapping[str, Any]) -> tuple[object, SendPort | Elsewhere | None]:
        try:
            return kept, SendPort.from_definition(kept, self._agent.message_id)
        except ApplicationError as error:
            logger.error("Send port %r cannot work here: %s", kept.get("name"), error)
        except ValidationError as error:  # what it shows of its input may hold a password
            problem = error.errors(include_input=False, include_url=False)[0]
            logger.error("Send port %r cannot work here: %s: %s", kept.get("name"), problem["loc"], problem["msg"])
        return kept, None

    def _service(self, service_id: int) -> SendPort | Elsewhere | None:
        """For the hosts: a reference may be for a port that was deployed a moment ago."""
        if service_id not in self._ports:
            self._refresh()
        _, port = self._ports.get(service_id, (None, None))
        return port
