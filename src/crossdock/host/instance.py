"""A host instance: claims references of its host, lets worker threads deliver them, settles the outcomes.

The calls go one way: instance, claimer, dispatcher, delivery, settler. No transaction is open while a message is
delivered, and what is claimed and not yet settled is bounded. The instance lives while its own connection holds a lock;
when it dies, the next instance that looks frees what it had claimed.
"""

from __future__ import annotations

import time
from datetime import timedelta

from crossdock.errors import TransientError
from crossdock.host.claimer import Claimer
from crossdock.host.dispatcher import Dispatcher
from crossdock.host.environment import HostEnvironment
from crossdock.host.garbage import spare_what_is_loaded
from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from crossdock.host.outcome import Services
from crossdock.host.publisher import Publisher
from crossdock.host.settler import Settler
from crossdock.host.threads import Threads
from crossdock.messagebox.agent import Agent


class HostInstance:
    """Works in threads of its own between `start` and `stop`; `stop` finishes what has begun, gives back the rest.

    `service_class` says how often and in how many threads it looks for references.
    """

    def __init__(
        self,
        agent: Agent,
        host_id: int,
        services: Services,
        *,
        service_class: str = "messaging",
        limits: HostLimits = DEFAULT_LIMITS,
    ) -> None:
        self._agent = agent
        self._host_id = host_id
        self._limits = limits
        self._lifeline = agent.queues.lifeline(host_id, service_class)
        self._threads = Threads(f"host-{host_id}")
        self._host = host = HostEnvironment(agent, host_id, services, limits, self._threads)
        self._stopping = host.stopping
        self._in_hand = host.in_hand
        self._claims_check_at = 0.0
        interval, claimers = agent.queues.service_classes()[service_class]
        self._polling = interval.total_seconds()
        self._publisher = Publisher(agent, limits)
        self._settler = Settler(host, self._publisher)
        self._dispatcher = Dispatcher(host, self._settler)
        self._claimer = Claimer(host, self._lifeline, self._dispatcher, self._polling)
        self._keeper = self._threads.thread("keep", self._keep)
        self._claimers = [self._threads.thread(f"dequeue-{n}", self._claimer.run) for n in range(claimers)]
        self._settling = self._threads.thread("settle", self._settler.run)

    def start(self) -> None:
        spare_what_is_loaded()
        self._settling.start()
        self._publisher.start()
        self._dispatcher.start()
        self._keeper.start()

    def stop(self) -> None:
        self._stopping.set()
        self._in_hand.wake_all(len(self._claimers))
        self._keeper.join()
        self._lifeline.stopping()
        self._dispatcher.stop()
        self._settler.end()
        self._settling.join()
        self._publisher.stop()
        self._lifeline.end()

    @property
    def host_id(self) -> int:
        return self._host_id

    @property
    def in_hand(self) -> int:
        """How many references are claimed and not settled yet."""
        return self._in_hand.count

    def check(self) -> None:
        """Raise what ended the instance, if anything did."""
        self._threads.check("A host instance")

    def _keep(self) -> None:
        """Hold the lifeline, do the upkeep, wake the claimers when something has arrived."""
        upkeep_at = 0.0
        started = False
        while not self._stopping.is_set():
            try:
                self._hold_life()
                if not started:
                    for thread in self._claimers:
                        thread.start()
                    started = True
                self._dispatcher.tend()
                if time.monotonic() >= upkeep_at:
                    self._upkeep()
                    upkeep_at = time.monotonic() + self._limits.upkeep_seconds
                if self._lifeline.wait(min(self._polling, self._limits.slow_seconds / (2 if self.in_hand else 1))):
                    self._in_hand.wake()
            except TransientError as error:
                self._agent.outage.waits(error)
                self._stopping.wait(self._limits.reconnect_seconds)
        for thread in self._claimers if started else ():
            thread.join()

    def _hold_life(self) -> None:
        """The answer to a claim may have been lost: then begin as a new instance, and let the old claims come free."""
        if self._claimer.broken.is_set():
            self._lifeline.end()
            self._claimer.broken.clear()
        before = self._lifeline.instance
        self._lifeline.hold()
        self._dispatcher.lease_as(self._lifeline.instance)
        if self._lifeline.instance != before:
            self._share()  # what the others deliver counts before anything is claimed in the new life

    def _share(self) -> None:
        settled_in = timedelta(seconds=self._limits.newcomer_upkeeps * self._limits.upkeep_seconds)
        self._dispatcher.backlogs.share(self._lifeline.instance, self._lifeline.living(settled_in))

    def _upkeep(self) -> None:
        """Say how it goes; bring back what is due, what the dead left behind, and subqueues that may go on."""
        queues = self._agent.queues
        self._lifeline.check(self._state(), self.in_hand)
        self._share()
        self._claimer.has_ordered = queues.has_subqueues(self._host_id)
        # Each for itself: a row that one of them stumbles over keeps nothing else waiting.
        brought_back = 0
        for what, duty in (
            ("ordered ports that may go on", self._unblock),
            ("what dead instances had claimed", self._release_dead),
            ("what is due again", self._requeue_due),
        ):
            try:
                brought_back += duty()
            except TransientError:
                raise
            except Exception as error:
                self._host.refused(error, what)
        if brought_back:
            self._in_hand.wake()

    def _unblock(self) -> int:
        if self._claimer.has_ordered:
            self._agent.queues.unblock_subqueues(self._host_id)
        return 0

    def _release_dead(self) -> int:
        return self._agent.queues.release_dead(self._host_id) if self._dead_left_something() else 0

    def _state(self) -> str:
        moved = self._in_hand.moved()
        if self._claimer.room > 0:
            return "running"
        return "throttled" if moved else "stuck"

    def _dead_left_something(self) -> bool:
        """Somebody died; or it is time to look at all that is claimed, for what no living instance holds."""
        if time.monotonic() < self._claims_check_at and not self._agent.queues.any_dead(self._host_id):
            return False
        self._claims_check_at = time.monotonic() + self._limits.claims_check_seconds
        return True

    def _requeue_due(self) -> int:
        """All that is due, as when a service window opens; more than this waits for the next upkeep."""
        count = 0
        for _ in range(self._limits.requeue_rounds):
            due = self._agent.queues.requeue_due(self._host_id)
            count += due
            if not due or self._stopping.is_set():
                break
        return count
