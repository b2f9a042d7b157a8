"""The runtime: the only place that wires the parts together and runs them in one process.

The main thread keeps the intake; Spark publishes in its own processes; a host instance per host delivers in threads.
Hosts and web servers are at work before Spark is. `processes.py` says what a process runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from threading import Event

from crossdock.application.bulk_lane import BulkLane
from crossdock.application.caching import RECONNECT_SECONDS, CachedConfiguration
from crossdock.application.monitored import serve_metrics, trace_messages
from crossdock.application.pushed import PushedLocations
from crossdock.application.store import Store
from crossdock.errors import TransientError
from crossdock.home import keep_logs_small
from crossdock.host.instance import HostInstance
from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from crossdock.maintenance.schedule import Schedule, all_jobs
from crossdock.maintenance.schedule import run as run_job
from crossdock.messagebox.rows import Statistics
from crossdock.monitoring.notices import Notices
from crossdock.orchestration.engine import Engine
from crossdock.receive.intake import Intake
from crossdock.settings import Settings
from crossdock.subscription.router import Epoch

_ROUND_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 4.0

logger = logging.getLogger(__name__)

Progress = Callable[[str, Statistics], None]


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
        jobs = all_jobs(
            store.agent,
            purge_suspended_after=settings.purge_suspended_after,
            keep_track=settings.keep_track,
            keep_bodies=settings.keep_bodies,
        )
        self._jobs = jobs if may_maintain else {}
        self._notices = Notices(store.agent)
        self._next_report = 0.0
        self._intake = Intake(store.agent.ledger)
        self._cached = CachedConfiguration(store.agent, self._own_hosts, time_limit=settings.time_limit)
        self._bulk = BulkLane(settings, store.agent, lambda: self.report("starting Spark"))
        self._listening = PushedLocations(store.agent) if hosts is None or hosts else None
        self._hosts: dict[int, HostInstance] = {}
        self._engines: dict[int, Engine] = {}
        self._delivering_at: Epoch | None = None
        self._times_elsewhere = store.agent.times_elsewhere

    def start(self, stack: ExitStack) -> None:
        """Start maintenance, hosts and web servers; `stack` stops them in the opposite order, Spark first."""
        trace_messages(stack, self._agent)
        serve_metrics(stack, self._settings, self._agent, self._in_hand, maintains=bool(self._jobs))
        stack.callback(self._notices.end)
        if self._jobs:
            schedule = Schedule(self._jobs, self._agent.outage.waits)
            schedule.start()
            stack.callback(schedule.stop)
        self._cached.start(stack)
        stack.callback(self._stop_hosts)
        self._keep_hosts()
        if self._listening is not None:
            self._listening.start()
            stack.callback(self._listening.stop)
            self._listening.follow(self._cached.pushed)
        stack.callback(self._bulk.stop)

    def _in_hand(self) -> dict[int, int]:
        """By host, for whoever watches."""
        return {host_id: host.in_hand for host_id, host in list(self._hosts.items())}

    def _own_hosts(self) -> list[int]:
        """Those that it delivers for."""
        names = self._host_names
        return [
            host_id for name, host_id in self._agent.configuration.hosts().items() if names is None or name in names
        ]

    def _keep_hosts(self) -> None:
        """An instance of each host of ours, and an engine where it has orchestrations; one that is new begins."""
        if self._cached.epoch == self._delivering_at:
            return
        epoch, mine = self._cached.epoch, self._own_hosts()
        for host_id in mine:
            if host_id not in self._hosts:
                host = HostInstance(self._agent, host_id, self._cached.service, limits=self._host_limits)
                host.start()
                self._hosts[host_id] = host
        having = {host for _, host, definition in self._agent.configuration.orchestrations() if definition is not None}
        for host_id in having.intersection(mine) - self._engines.keys():
            engine = Engine(self._agent, host_id, limits=self._host_limits)
            engine.start()
            self._engines[host_id] = engine
        self._delivering_at = epoch

    def _stop_hosts(self) -> None:
        with ExitStack() as stack:  # engines first, and each of them also if another one raises
            for host in self._hosts.values():
                stack.callback(host.stop)
            for engine in self._engines.values():
                stack.callback(engine.stop)

    def work(self, stop: Event, *, until_idle: bool) -> None:
        """Rounds of the intake until there is a reason to end."""
        pause = RECONNECT_SECONDS
        while not stop.is_set():
            keep_logs_small(self._settings.home)
            self._notices.tend()
            try:
                if self._round() and until_idle:
                    self._intake.name_held()
                    return
                pause = RECONNECT_SECONDS
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
        cached = self._cached
        cached.refresh()
        new = 0
        if self._receives:
            new = self._intake.round(cached.locations, cached.disabled)
            self._bulk.keep({location.host_id for location in cached.locations.values()})
            self._forget_elsewhere()
        if self._listening is not None:
            self._keep_hosts()
            self._listening.follow(cached.pushed)
            self._listening.check()
        for host in self._hosts.values():
            host.check()
        for engine in self._engines.values():
            engine.check()
        if new or self._intake.incomplete or not self._idle():
            self._report_now_and_then()
            return False
        return self._nothing_left(self.report("running"))

    def _forget_elsewhere(self) -> None:
        """What the intake has listed may be unknown to the MessageBox that we are connected to now."""
        if self._agent.times_elsewhere != self._times_elsewhere:
            self._times_elsewhere = self._agent.times_elsewhere
            self._intake.forget()

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
        self._intake.acknowledge({**self._cached.disabled, **self._cached.locations})
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
