"""A host instance: claims references of its host, lets worker threads deliver them, settles the outcomes.

No transaction is open while a message is delivered. A few threads claim, many deliver, one settles; what is claimed and
not yet settled is bounded. The instance lives while its own connection holds a lock; when it dies, whoever looks next
frees what it had claimed.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Protocol, assert_never

from crossdock.errors import TransientError, UnavailableError
from crossdock.host.outcome import Complete, Outcome, Retry, Service, Suspend
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.queues import LineOutcome
from crossdock.messagebox.rows import Reference

WORKERS = 8
_CLASS = "messaging"
_BATCH = 500
_LINE_BATCH = 100
_BATCHES = 200
_SHARE_SECONDS = 0.005
_LONGEST_SHARE_SECONDS = 0.05
_IN_MEMORY = 2_000
_UPKEEP_SECONDS = 1.0
_LOOK_AT_CLAIMS_SECONDS = 10.0
_RECONNECT_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Services(Protocol):
    """Finds the service a reference is for; None if it is not deployed any more."""

    def __call__(self, service_id: int) -> Service | None: ...


@dataclass(frozen=True, slots=True)
class _Claim:
    """References to deliver, one after the other, under the instance that claimed them."""

    instance: int
    references: Sequence[Reference]


@dataclass(slots=True)
class _Settlement:
    """What is to be recorded for one instance."""

    completed: list[int] = field(default_factory=list)
    retried: list[tuple[int, datetime, str]] = field(default_factory=list)
    suspended: list[tuple[int, str]] = field(default_factory=list)


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
        self._services = services
        self._clock = clock
        self._lifeline = agent.lifeline(host_id)
        self._stopping = Event()
        self._broken = Event()
        self._awake = Event()
        self._room = Event()
        self._counting = Lock()
        self._held = 0
        self._look_at_claims_at = 0.0
        self._has_lines = True
        self._ready: SimpleQueue[_Claim | None] = SimpleQueue()
        self._outcomes: SimpleQueue[tuple[int, list[tuple[Reference, Outcome]]] | None] = SimpleQueue()
        self._pace = 1.0  # seconds for one delivery, as it was last time
        self._problem: BaseException | None = None
        interval, threads = agent.service_classes()[_CLASS]
        self._polling = interval.total_seconds()
        self._keeper = self._thread("keep", self._keep)
        self._claimers = [self._thread(f"dequeue-{n}", self._dequeue) for n in range(threads)]
        self._workers = [self._thread(f"deliver-{n}", self._deliver_all) for n in range(workers)]
        self._settler = self._thread("settle", self._settle_all)

    def start(self) -> None:
        for thread in (self._settler, *self._workers, self._keeper):
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._awake.set()
        self._room.set()
        self._keeper.join()
        self._give_back_unstarted()
        for _ in self._workers:
            self._ready.put(None)
        for thread in self._workers:
            thread.join()
        self._outcomes.put(None)
        self._settler.join()
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
                self._lifeline.hold()
                if not started:
                    for thread in self._claimers:
                        thread.start()
                    started = True
                if time.monotonic() >= next_upkeep:
                    self._upkeep()
                    next_upkeep = time.monotonic() + _UPKEEP_SECONDS
                if self._lifeline.wait(self._polling):
                    self._awake.set()
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

    def _upkeep(self) -> None:
        """Bring back what is due and what the dead left behind."""
        self._lifeline.check()
        self._has_lines = self._agent.has_lines(self._host_id)
        freed = self._agent.release_dead(self._host_id) if self._dead_left_something() else 0
        if freed + self._agent.requeue_due(self._host_id, now=self._clock()):
            self._awake.set()

    def _dead_left_something(self) -> bool:
        """Somebody died; or it is time to look at all that is claimed, for what nobody alive holds."""
        if time.monotonic() < self._look_at_claims_at and not self._agent.any_dead(self._host_id):
            return False
        self._look_at_claims_at = time.monotonic() + _LOOK_AT_CLAIMS_SECONDS
        return True

    # Claiming

    def _dequeue(self) -> None:
        while not self._stopping.is_set():
            if self._broken.is_set():
                self._stopping.wait(_RECONNECT_SECONDS)
                continue
            try:
                claimed = self._claim()
            except TransientError as error:
                logger.warning("Host instance waits for the MessageBox: %s", error)
                self._broken.set()
                continue
            if not claimed:
                self._awake.wait(self._polling)
                self._awake.clear()

    def _claim(self) -> int:
        """Claim what there is room for, and hand it to the workers; gives how many references."""
        room = _IN_MEMORY - self._held
        if room <= 0:
            self._room.wait(self._polling)
            self._room.clear()
            return 1
        instance, now = self._lifeline.instance, self._clock()
        references = self._agent.dequeue(self._host_id, instance, limit=min(_BATCH, room), now=now)
        ordered: list[Reference] = []
        if self._has_lines:
            ordered = self._agent.dequeue_ordered(self._host_id, instance, limit=_LINE_BATCH, now=now)
        self._hold(len(references) + len(ordered))
        # One at a time where deliveries take time, else so many that handing over costs little beside them.
        share = max(1, min(_BATCH, int(_SHARE_SECONDS / self._pace)))
        for start in range(0, len(references), share):
            self._ready.put(_Claim(instance, references[start : start + share]))
        if ordered:
            self._ready.put(_Claim(instance, ordered))
        return len(references) + len(ordered)

    def _hold(self, count: int) -> None:
        with self._counting:
            self._held += count
        if count < 0:
            self._room.set()

    # Delivering

    def _deliver_all(self) -> None:
        while (claim := self._ready.get()) is not None:
            if claim.references[0].line > 0:
                self._deliver_line(claim)
            else:
                self._deliver_share(claim)

    def _deliver_share(self, claim: _Claim) -> None:
        """One after the other. If that takes longer than it did last time, the rest goes to whoever is free."""
        began = time.monotonic()
        outcomes = []
        for reference in claim.references:
            outcomes.append((reference, self._deliver(reference)))
            if time.monotonic() - began > _LONGEST_SHARE_SECONDS or self._stopping.is_set():
                break
        self._pace = max((time.monotonic() - began) / len(outcomes), 1e-6)
        self._outcomes.put((claim.instance, outcomes))
        rest = claim.references[len(outcomes) :]
        if rest and self._stopping.is_set():
            give_back = partial(self._agent.give_back, self._host_id, claim.instance, [each.sequence for each in rest])
            self._persist(give_back)
        else:
            for reference in rest:
                self._ready.put(_Claim(claim.instance, [reference]))

    def _deliver(self, reference: Reference) -> Outcome:
        try:
            service = self._service(reference.service_id)
            if service is None:
                return Suspend("The send port is no longer deployed.")
            return service.deliver(reference.message, attempt=reference.attempt, now=self._clock())
        except TransientError as error:
            return Retry(self._clock(), str(error))
        except Exception as error:
            logger.exception("A delivery failed in an unexpected way")
            return Suspend(f"Unexpected {type(error).__name__}: {error}")

    def _service(self, service_id: int) -> Service | None:
        """Looking it up may take the MessageBox, which may be away."""
        while True:
            try:
                return self._services(service_id)
            except TransientError:
                if self._stopping.wait(_RECONNECT_SECONDS):
                    raise

    def _deliver_line(self, claim: _Claim) -> None:
        """In order, until one has to be tried again or the instance stops; the lease is given up with the outcome."""
        completed: list[int] = []
        suspended: list[tuple[int, str]] = []
        failed: Retry | None = None
        tried = 0
        for reference in claim.references:
            if self._stopping.is_set():
                break
            outcome = self._deliver(reference)
            if isinstance(outcome, Retry):
                failed = outcome
                break
            tried += 1
            if isinstance(outcome, Suspend):
                suspended.append((reference.sequence, outcome.reason))
            else:
                completed.append(reference.sequence)
        rest = [reference.sequence for reference in claim.references[tried:]]
        settled = LineOutcome(
            completed,
            suspended,
            failed=rest[0] if failed else None,
            blocked_until=failed.at if failed else None,
            reason=failed.reason if failed else None,
            untried=rest[1:] if failed else rest,
        )
        service = claim.references[0].service_id
        now = self._clock()
        self._persist(partial(self._agent.settle_line, self._host_id, claim.instance, service, settled, now=now))
        self._hold(-len(claim.references))
        self._awake.set()

    def _give_back_unstarted(self) -> None:
        """We are stopping: what no worker has begun, somebody else may take."""
        unstarted: defaultdict[int, list[int]] = defaultdict(list)
        while (claim := self._take_unstarted()) is not None:
            if claim.references[0].line > 0:
                self._deliver_line(claim)
            else:
                unstarted[claim.instance] += [reference.sequence for reference in claim.references]
        for instance, sequences in unstarted.items():
            give_back = partial(self._agent.give_back, self._host_id, instance, sequences)
            self._persist(give_back)

    def _take_unstarted(self) -> _Claim | None:
        try:
            return self._ready.get_nowait()
        except Empty:
            return None

    # Settling

    def _settle_all(self) -> None:
        """Record outcomes together, as many as there are."""
        while (outcomes := self._next_outcomes()) is not None:
            settlements: defaultdict[int, _Settlement] = defaultdict(_Settlement)
            for instance, delivered in outcomes:
                for reference, outcome in delivered:
                    _add(settlements[instance], reference, outcome)
            self._settle(settlements)
            self._hold(-sum(len(delivered) for _, delivered in outcomes))

    def _next_outcomes(self) -> list[tuple[int, list[tuple[Reference, Outcome]]]] | None:
        """Wait for one, then take what is there; None when there will be no more."""
        first = self._outcomes.get()
        if first is None:
            return None
        found = [first]
        while len(found) < _BATCHES and not self._outcomes.empty():
            following = self._outcomes.get()
            if following is None:
                self._outcomes.put(None)
                break
            found.append(following)
        return found

    def _settle(self, settlements: dict[int, _Settlement]) -> None:
        for instance, settlement in settlements.items():
            self._persist(partial(self._record, instance, settlement))

    def _record(self, instance: int, settlement: _Settlement) -> None:
        now = self._clock()
        self._agent.complete(self._host_id, instance, settlement.completed, now=now)
        self._agent.retry(self._host_id, instance, settlement.retried, now=now)
        self._agent.suspend(self._host_id, instance, settlement.suspended, now=now)

    def _persist(self, record: Callable[[], None]) -> None:
        """What was delivered must be recorded: keep trying while PostgreSQL is away, unless we have to stop."""
        while True:
            try:
                record()
                return
            except TransientError as error:
                if self._stopping.is_set():
                    logger.warning("An outcome is not recorded, so the message will be delivered again: %s", error)
                    return
                self._stopping.wait(_RECONNECT_SECONDS)


def _add(settlement: _Settlement, reference: Reference, outcome: Outcome) -> None:
    match outcome:
        case Complete():
            settlement.completed.append(reference.sequence)
        case Retry(at, reason):
            settlement.retried.append((reference.sequence, at, reason))
        case Suspend(reason):
            settlement.suspended.append((reference.sequence, reason))
        case _:
            assert_never(outcome)
