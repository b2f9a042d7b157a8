"""Gives each backlog its turn: cuts what was claimed into slices, and lets worker threads deliver them.

A turn is one slice of one backlog, so no service waits for another for long. What instances wait for goes first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread

from crossdock.host.backlog import Backlog, Slice
from crossdock.host.backlogs import Backlogs
from crossdock.host.delivery import Delivery
from crossdock.host.environment import HostEnvironment
from crossdock.host.ordered import OrderedDelivery
from crossdock.host.quarantine import Quarantine
from crossdock.host.settler import Settler
from crossdock.messagebox.rows import Reference


class Dispatcher:
    """Owns the worker threads, between `start` and `stop`. `backlogs` say how much may be claimed for whom."""

    def __init__(self, host: HostEnvironment, settler: Settler) -> None:
        self._host = host
        self._limits = host.limits
        self._settler = settler
        self.backlogs = Backlogs(host.services, host.limits)
        self._quarantine = Quarantine(host)
        self._delivery = Delivery(host, settler, self._quarantine)
        self._ordered = OrderedDelivery(host, self._delivery, settler)
        self._ready: SimpleQueue[bool] = SimpleQueue()  # True for each turn, False to end a worker
        self._turns: deque[Backlog] = deque()
        self._urgent: deque[Backlog] = deque()
        self._held_up: set[Slice] = set()  # whose workers mostly wait
        self._workers: list[Thread] = []

    def start(self) -> None:
        self._grow(min(self._limits.workers, self._limits.quick_workers))

    def stop(self) -> None:
        """Finish what has begun, give back the rest."""
        self._give_back_waiting()
        for _ in self._workers:
            self._ready.put(False)
        for worker in self._workers:
            worker.join()
        self._give_back_waiting()

    def lease_as(self, host_instance: int) -> None:
        """Ordered services are delivered under this id; 0 while its life is in doubt: others may hold the leases."""
        self._ordered.host_instance = host_instance

    # What comes in

    def accept(self, host_instance: int, references: Sequence[Reference]) -> None:
        """Deliver these; what a backlog has no room for goes back to the queue. Quick services share slices."""
        by_backlog: defaultdict[Backlog, list[Reference]] = defaultdict(list)
        shared: list[Reference] = []
        for reference in references:
            backlog = self.backlogs.of(reference.service_id)
            (shared if backlog.quick and not reference.deaths else by_backlog[backlog]).append(reference)
        if shared:
            self.accept_for(self.backlogs.shared, host_instance, shared)
        for backlog, mine in by_backlog.items():
            if rest := backlog.add(host_instance, mine, self.backlogs.spare(backlog)):
                self._settler.give_back(host_instance, rest)
            self._begin(backlog)

    def accept_for(
        self, backlog: Backlog, host_instance: int, references: Sequence[Reference], *, more: bool = False
    ) -> None:
        """Deliver these, which were claimed for this backlog alone."""
        backlog.filled(host_instance, references, more=more)
        self._begin(backlog)

    def _begin(self, backlog: Backlog) -> None:
        self.backlogs.keep_busy(backlog)
        self._offer(backlog)

    def _offer(self, backlog: Backlog) -> None:
        turns, urgent = backlog.offer()
        (self._urgent if urgent else self._turns).extend([backlog] * turns)
        for _ in range(turns):
            self._ready.put(True)

    # Keeping it going

    @property
    def crowded(self) -> bool:
        """Whether slow services hold all the workers that they may."""
        return len(self._held_up) >= self._limits.most_workers - self._limits.workers_for_quick

    def tend(self) -> None:
        """Now and then: let nothing wait behind a slow delivery, and have enough workers beside those held up."""
        held_up: set[Slice] = set()
        busy = False
        for backlog in self.backlogs.busy():
            overdue = backlog.overdue()
            for slice_ in overdue if not backlog.ordered else ():
                self._put_back(slice_, late=True)
            for waiting in backlog.drain() if backlog.shared and overdue else ():
                self.accept(waiting.host_instance, waiting.references)  # some of it is for whom we wait
            for excess in backlog.excess():
                self._settler.give_back(excess.host_instance, excess.references)
            active = backlog.active.copy()
            held_up.update(active if backlog.waits else overdue)
            busy = busy or bool(active and (backlog.ordered or backlog.pace > self._limits.busy_pace))
            self._offer(backlog)
        for backlog in self._quarantine.refused():
            self._offer(backlog)
        self._held_up = held_up
        workers = self._limits.workers if busy else min(self._limits.workers, self._limits.quick_workers)
        self._grow(min(self._limits.most_workers, workers + len(held_up)))

    def _grow(self, count: int) -> None:
        for number in range(len(self._workers), count):
            worker = self._host.threads.thread(f"deliver-{number}", self._work)
            self._workers.append(worker)
            worker.start()

    # Delivering

    def _work(self) -> None:
        while (backlog := self._next_turn()) is not None:
            if (slice_ := backlog.start(self._quarantine, crowded=self.crowded)) is not None:
                if backlog.waits:
                    self._held_up.add(slice_)
                self._deliver(slice_)

    def _next_turn(self) -> Backlog | None:
        if not self._ready.get():
            return None
        while True:  # there is one for each turn; another worker may just take it, and leave its own
            try:
                return self._urgent.popleft() if self._urgent else self._turns.popleft()
            except IndexError:
                continue

    def _deliver(self, slice_: Slice) -> None:
        backlog = slice_.backlog
        if backlog.ordered:
            self._host.in_hand.wake()  # another ordered service may be claimed
            delivered, released = self._ordered.slice(slice_), len(slice_.references)
        else:
            delivered = released = self._delivery.slice(slice_)
            if self._host.stopping.is_set() and (rest := slice_.take_rest()):
                self._settler.give_back(slice_.host_instance, rest)
            self._put_back(slice_, late=slice_.late)
        self._held_up.discard(slice_)
        while not slice_.backlog.finish(slice_, delivered=delivered, released=released):
            pass  # it was another's until now
        for each in (backlog, *self._quarantine.leave(slice_)):
            self._offer(each)
        if backlog.ordered or (backlog.behind and backlog.wants_more(self.backlogs.spare(backlog))):
            self._host.in_hand.wake()

    def _put_back(self, slice_: Slice, *, late: bool) -> None:
        """What it did not get to; where a shared slice is late, the service it waits for is taken out of the others."""
        backlog = slice_.backlog
        backlog.put_back(slice_)
        if late and backlog.shared and slice_.references:
            to_blame = self.backlogs.of(slice_.references[-1].service_id)
            backlog.blame(to_blame, slice_)
            self.backlogs.keep_busy(to_blame)

    # Stopping

    def _give_back_waiting(self) -> None:
        for backlog in self.backlogs.busy():
            for slice_ in backlog.drain():
                if backlog.ordered:
                    self._ordered.slice(slice_)  # nothing is delivered any more, and the lease is given up
                elif slice_.references:
                    self._settler.give_back(slice_.host_instance, slice_.references)
