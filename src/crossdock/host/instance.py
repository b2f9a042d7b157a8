"""A host instance: claims references of its host, lets worker threads deliver them, settles the outcomes.

No transaction is open while a message is delivered. A few threads claim, many deliver, one settles; what is claimed and
not yet settled is bounded. The instance lives while its own connection holds a lock; when it dies, whoever looks next
frees what it had claimed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread

from crossdock.errors import TransientError, UnavailableError
from crossdock.host.flows import Services
from crossdock.host.publisher import Publisher
from crossdock.host.settler import Settler
from crossdock.host.workers import Workers
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.queues import FEW
from crossdock.messagebox.rows import Reference

WORKERS = 8
_CLASS = "messaging"
_BATCH = 500
_IN_MEMORY = 2_000
_FOR_CORRELATED = 200  # beside it, for what running instances wait for
_UPKEEP_SECONDS = 1.0
_LOOKS_UNTIL_GROWN = 3
_REQUEUES = 20
_LOOK_AT_CLAIMS_SECONDS = 10.0
_RECONNECT_SECONDS = 0.5
# To look again at once takes the processor from the delivery of what was found; whatever arrives meanwhile calls.
_BREATH_SECONDS = 0.02

logger = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


class HostInstance:
    """Works in threads of its own between `start` and `stop`; `stop` finishes what has begun, gives back the rest."""

    def __init__(
        self,
        agent: Agent,
        host_id: int,
        services: Services,
        *,
        workers: int = WORKERS,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._agent = agent
        self._host_id = host_id
        self._clock = clock
        self._lifeline = agent.lifeline(host_id, _CLASS)
        self._stopping = Event()
        self._broken = Event()
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._room = Event()
        self._counting = Lock()
        self._held = 0
        self._moved = 0
        self._look_at_claims_at = 0.0
        self._has_lines = True
        self._problem: BaseException | None = None
        interval, threads = agent.service_classes()[_CLASS]
        self._polling = interval.total_seconds()
        self._publisher = Publisher(agent)
        self._settler = Settler(
            agent,
            host_id,
            clock,
            self._stopping,
            self._settled,
            self._publisher.publish,
        )
        self._workers = Workers(
            agent,
            host_id,
            services,
            self._settler,
            count=workers,
            clock=clock,
            stopping=self._stopping,
            settled=self._settled,
            wake=self._wake,
            lives=self._lives,
            thread=self._thread,
        )
        self._keeper = self._thread("keep", self._keep)
        self._claimers = [self._thread(f"dequeue-{n}", self._dequeue) for n in range(threads)]
        self._settling = self._thread("settle", self._settler.run)

    def start(self) -> None:
        self._settling.start()
        self._publisher.start()
        self._workers.start()
        self._keeper.start()

    def stop(self) -> None:
        self._stopping.set()
        for _ in self._claimers:
            self._calls.put(None)
        self._room.set()
        self._keeper.join()
        self._lifeline.stopping()
        self._workers.stop()
        self._settler.end()
        self._settling.join()
        self._publisher.stop()
        self._lifeline.end()

    @property
    def in_hand(self) -> int:
        """How many references are claimed and not settled yet."""
        return self._held

    def check(self) -> None:
        """Raise what ended the instance, if anything did."""
        if self._problem is not None:
            raise UnavailableError(f"A host instance ended unexpectedly: {self._problem!r}") from self._problem

    def _thread(self, name: str, work: Callable[[], None]) -> Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._problem = error

        return Thread(target=run, name=f"host-{self._host_id}-{name}", daemon=True)

    # Keeping the instance alive

    def _keep(self) -> None:
        """Hold the lifeline, do the upkeep, wake the claimers when something has arrived."""
        next_upkeep = 0.0
        started = False
        while not self._stopping.is_set():
            try:
                self._begin_anew_if_broken()
                self._hold_life()
                if not started:
                    for thread in self._claimers:
                        thread.start()
                    started = True
                self._workers.tend()
                if time.monotonic() >= next_upkeep:
                    self._upkeep()
                    next_upkeep = time.monotonic() + _UPKEEP_SECONDS
                if self._lifeline.wait(min(self._polling, self._workers.patience)):
                    self._wake()
            except TransientError as error:
                logger.warning("Host instance waits for the MessageBox: %s", error)
                self._stopping.wait(_RECONNECT_SECONDS)
        for thread in self._claimers if started else ():
            thread.join()

    def _begin_anew_if_broken(self) -> None:
        """The answer to a claim may be what was lost: begin as a new instance, and let the old claims come free."""
        if self._broken.is_set():
            self._lifeline.end()
            self._broken.clear()

    def _hold_life(self) -> None:
        """Of a new life the others are to know before anything is claimed in it."""
        before = self._lifeline.instance
        self._lifeline.hold()
        if self._lifeline.instance != before:
            self._share()

    def _share(self) -> None:
        grown = timedelta(seconds=_LOOKS_UNTIL_GROWN * _UPKEEP_SECONDS)
        self._workers.share(self._lifeline.instance, self._lifeline.living(grown))

    def _lives(self, instance: int) -> bool:
        """Whether this is our life still, as far as we know."""
        return instance == self._lifeline.instance and not self._broken.is_set()

    def _upkeep(self) -> None:
        """Say how it goes; bring back what is due, what the dead left behind, and lines that may go on."""
        self._lifeline.check(self._state(), self._held)
        self._share()
        self._has_lines = self._agent.has_lines(self._host_id)
        if self._has_lines:
            self._agent.unblock_lines(self._host_id)
        freed = self._agent.release_dead(self._host_id) if self._dead_left_something() else 0
        if freed + self._requeue_due():
            self._wake()

    def _requeue_due(self) -> int:
        """All that is due, as when a service window opens; more than this waits for the next upkeep."""
        count = 0
        for _ in range(_REQUEUES):
            due = self._agent.requeue_due(self._host_id, now=self._clock())
            count += due
            if not due or self._stopping.is_set():
                break
        return count

    def _state(self) -> str:
        moved, self._moved = self._moved, 0
        if self._free() > 0:
            return "running"
        held = f"{self._held:,} messages in hand, and"
        return f"throttled: {held} no more are taken" if moved else f"stuck: {held} nothing moves"

    def _dead_left_something(self) -> bool:
        """Somebody died; or it is time to look at all that is claimed, for what nobody alive holds."""
        if time.monotonic() < self._look_at_claims_at and not self._agent.any_dead(self._host_id):
            return False
        self._look_at_claims_at = time.monotonic() + _LOOK_AT_CLAIMS_SECONDS
        return True

    # Claiming

    def _dequeue(self) -> None:
        limit = FEW
        while not self._stopping.is_set():
            if self._broken.is_set():
                self._stopping.wait(_RECONNECT_SECONDS)
                continue
            try:
                claimed, more = self._claim(limit)
            except TransientError as error:
                logger.warning("Host instance waits for the MessageBox: %s", error)
                self._broken.set()
                continue
            if claimed >= _BATCH:
                self._wake()  # there is more than one can take
            elif not more:
                self._wait(_BREATH_SECONDS if claimed else self._polling)
            limit = _BATCH if claimed >= FEW else FEW  # after a rest there will be few

    def _wake(self) -> None:
        """One of the threads that claim: what arrives is mostly enough for one."""
        if self._calls.empty():
            self._calls.put(None)

    def _wait(self, seconds: float) -> None:
        with suppress(Empty):
            self._calls.get(timeout=seconds)

    def _claim(self, limit: int) -> tuple[int, bool]:
        """Claim what there is room for, and hand it to the workers: how many references, and whether to look on."""
        room = self._free()
        instance, now = self._lifeline.instance, self._clock()
        dequeue = partial(self._agent.dequeue, self._host_id, instance, now=now)
        references: list[Reference] = []
        if room > 0:
            few = limit == FEW  # after a rest: somebody may wait for each
            references = self._hold(dequeue(limit=min(limit, room), but=self._workers.behind(), hurry=few))
        elif room > -_FOR_CORRELATED:
            correlated = partial(self._agent.dequeue_correlated, self._host_id, instance, now=now)
            references = self._hold(correlated(limit=FEW, but=self._workers.behind()))
        if references:
            self._workers.hand_over(instance, references)
        others = self._take_line(instance, now) + self._refill(instance, dequeue)
        if room <= 0 and not others and not references:
            self._room.wait(self._polling)
            self._room.clear()
            return 1, True
        return len(references) + others, others > 0 or len(references) >= min(limit, max(room, 1))

    def _take_line(self, instance: int, now: datetime) -> int:
        """For the ordered line that has waited longest, which has room of its own."""
        lines = self._workers.lines
        if not self._has_lines or not lines.awaited or self._workers.crowded:
            return 0
        take = partial(self._agent.dequeue_ordered, self._host_id, instance, now=now)
        references = self._hold(take(limit=lines.size, but=lines.in_hand))
        if references:
            self._workers.hand_over_line(instance, references)
        return len(references)

    def _refill(self, instance: int, dequeue: Callable[..., list[Reference]]) -> int:
        """For services with a flow of their own, which have room of their own."""
        return self._workers.refill(instance, lambda services, limit: self._hold(dequeue(limit=limit, only=services)))

    def _free(self) -> int:
        """Services with a flow of their own, and ordered lines, have room of their own."""
        return _IN_MEMORY + self._workers.in_flows + self._workers.lines.held - self._held

    def _hold(self, references: list[Reference]) -> list[Reference]:
        with self._counting:
            self._held += len(references)
        return references

    def _settled(self, count: int) -> None:
        with self._counting:
            self._held -= count
            self._moved += count
        self._room.set()
