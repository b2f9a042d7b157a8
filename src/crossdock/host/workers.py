"""The workers of a host instance: threads that deliver what it has claimed.

Quick services share the workers as they come. One that is slow, takes only so many at once or likes batches has a flow
of its own, so that it holds neither workers nor memory that others need; what there is no room for stays in the queue.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread

from crossdock.errors import TransientError
from crossdock.host.careful import Careful, too_deadly
from crossdock.host.flow import SLOW_SECONDS, Flow, Share, cut, share_size
from crossdock.host.flows import Flows, Services
from crossdock.host.lines import Lines
from crossdock.host.outcome import Answer, BatchService, Outcome, Retry, Service, StoppingService, Suspend
from crossdock.host.settler import Delivered, Settler
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Reference

_QUICK_WORKERS = 8  # where deliveries take no time, more only get in each other's way
MOST_WORKERS = 1_024
_LONGEST_SHARE_SECONDS = 0.05
_QUICK_SECONDS = 0.0005
_WAITS_SECONDS = 0.01  # whoever takes longer mostly waits, and others can work meanwhile
_RECONNECT_SECONDS = 0.5
_GONE = "The send port is no longer deployed."

logger = logging.getLogger(__name__)


class Workers:
    """`settled` hears how many references are done with; `wake`, that there may be more to claim.

    `lives` says whether what was claimed under an instance is still ours alone.
    """

    def __init__(
        self,
        agent: Agent,
        host_id: int,
        services: Services,
        settler: Settler,
        *,
        count: int,
        clock: Callable[[], datetime],
        stopping: Event,
        settled: Callable[[int], None],
        wake: Callable[[], None],
        lives: Callable[[int], bool],
        thread: Callable[[str, Callable[[], None]], Thread],
    ) -> None:
        self._agent = agent
        self._host_id = host_id
        self._services = services
        self._flows = Flows(services)
        self._settler = settler
        self._careful = Careful(agent, stopping)
        self._count = count
        self._clock = clock
        self._stopping = stopping
        self._settled = settled
        self._wake = wake
        self._lives = lives
        self._thread = thread
        self._ready: SimpleQueue[Share | None] = SimpleQueue()
        self._urgent: deque[Share] = deque()  # each with a call among the ready ones, for whoever is idle
        self._call = Share(0, ())
        self._at_work: dict[int, Share] = {}
        self.lines = Lines(
            agent,
            host_id,
            settler,
            clock=clock,
            deliver=self._deliver,
            goes_on=self._goes_on,
            settled=settled,
            wake=wake,
        )
        self._threads: list[Thread] = []
        self._pace = 1.0  # seconds for one delivery of a quick service, as it was last time

    def start(self) -> None:
        self._grow(min(self._count, _QUICK_WORKERS))

    def stop(self) -> None:
        """Finish what has begun, give back the rest."""
        self._give_back(self._unstarted())
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join()
        self._give_back(self._unstarted())

    def hand_over(self, instance: int, references: Sequence[Reference]) -> None:
        """Deliver these, in any order."""
        free: list[Reference] = []
        urgent: list[Reference] = []
        restricted: defaultdict[int, list[Reference]] = defaultdict(list)
        for reference in references:
            if self._flows.of(reference.service_id) is not None:
                restricted[reference.service_id].append(reference)
            else:
                (free if reference.instance is None else urgent).append(reference)
        self._put(cut(instance, urgent, share_size(self._pace)))
        self._put(cut(instance, free, share_size(self._pace)))
        for service, mine in restricted.items():
            self._admit(service, instance, mine)

    def behind(self) -> list[int]:
        """Services of which more is queued than there is room for; others are claimed for without them."""
        return [service for services in self._flows.behind().values() for service in services]

    def refill(self, instance: int, claim: Callable[[Sequence[int], int], Sequence[Reference]]) -> int:
        """Claim for those that are behind what they have room for; gives how many references."""
        behind = self._flows.behind().items()
        return sum(self._refill(instance, flow, services, claim) for flow, services in behind)

    def _refill(
        self, instance: int, flow: Flow, services: list[int], claim: Callable[[Sequence[int], int], Sequence[Reference]]
    ) -> int:
        room = flow.refill(self._flows.spare)
        if not room:
            return 0
        references: Sequence[Reference] = ()
        caught_up = False
        try:
            references = claim(services, room)
            caught_up = len(references) < room
        finally:
            shares = flow.refilled(instance, references, room, caught_up=caught_up)
        self._put(shares)
        return len(references)

    @property
    def in_flows(self) -> int:
        """How many references are held for services with a flow of their own."""
        return self._flows.held

    def hand_over_line(self, instance: int, references: Sequence[Reference]) -> None:
        """Deliver these in their order, under the lease of their line."""
        self._put([self.lines.hold(instance, references)])

    def tend(self) -> None:
        """Now and then: let nobody wait behind a slow delivery, and have as many workers as are not held up."""
        slow, count = 0, min(self._count, _QUICK_WORKERS)
        for share in list(self._at_work.values()):
            if (current := share.current) is None:
                continue
            line = max(0, current.line)
            pace = self.lines.pace(line) if line else self._pace if share.flow is None else share.flow.pace
            if pace > _QUICK_SECONDS or line:
                count = self._count
            waits = (share.flow is not None or bool(line)) and pace > _WAITS_SECONDS
            slow += waits
            if time.monotonic() - share.began <= SLOW_SECONDS:
                continue
            slow += not waits
            if share.flow is not None:
                share.flow.lags()
            if share.flow is None and not line:
                self._flows.slow(current.service_id, time.monotonic() - share.began)
                self.hand_over(share.instance, share.take_rest())
            elif share.flow is not None and not share.flow.batches:
                for single in cut(share.instance, share.take_rest(), 1, share.flow):
                    self._ready.put(single)
        self._flows.forget_needless()
        for flow in self._flows.all():
            for share in flow.startable():
                self._ready.put(share)
            for excess in flow.excess():
                self._settler.give_back(excess.instance, excess.references)
                self._put(self._careful.end(excess))
        self._grow(min(MOST_WORKERS, count + slow))

    def share(self, instance: int, living: Sequence[int]) -> None:
        """These instances of the host live, ours among them: what a port takes at once is for all of them together."""
        self._flows.share(instance, living)

    @property
    def patience(self) -> float:
        """In so many seconds `tend` is due."""
        return SLOW_SECONDS / 2 if self._at_work else SLOW_SECONDS

    def _admit(self, service_id: int, instance: int, references: Sequence[Reference]) -> None:
        flow = self._flows.of(service_id)
        if flow is None:
            shares, rest = cut(instance, references, 1), references[:0]
        else:
            shares, rest = flow.admit(instance, references, self._flows.spare)
        self._put(shares)
        if rest:
            self._settler.give_back(instance, rest)

    def _put(self, shares: Sequence[Share]) -> None:
        """To be begun by a worker, except what has to wait until it may be delivered with care."""
        for share in shares:
            for each in self._careful.admit(share) if not share.careful else [share]:
                if each.urgent:
                    self._urgent.append(each)
                self._ready.put(self._call if each.urgent else each)

    # Delivering

    def _grow(self, count: int) -> None:
        for number in range(len(self._threads), count):
            thread = self._thread(f"deliver-{number}", partial(self._work, number))
            self._threads.append(thread)
            thread.start()

    def _work(self, number: int) -> None:
        while (ready := self._ready.get()) is not None:
            if (share := self._most_urgent(ready)) is None:
                continue
            share.began = time.monotonic()
            if share.references and share.references[0].line > 0:
                self._at_work[number] = share
                self.lines.deliver(share)
            elif share.flow is None and self._became_slow(share):
                self.hand_over(share.instance, share.take_rest())
            elif share.flow is None or share.flow.begin(share):
                self._at_work[number] = share
                self._deliver_share(share)
            else:
                continue  # it waits in its flow
            self._at_work.pop(number, None)
            self._put(self._careful.end(share))

    def _most_urgent(self, ready: Share) -> Share | None:
        """What instances wait for comes before what is ready, which goes to the end; None for a call that was heard."""
        try:
            urgent = self._urgent.popleft()
        except IndexError:
            return None if ready is self._call else ready
        if ready is not self._call:
            self._ready.put(ready)
        return urgent

    def _became_slow(self, share: Share) -> bool:
        """Whether a service in it has got a flow since it was cut: the rest of its messages must not hold us up too."""
        return any(self._flows.of(service) is not None for service in {each.service_id for each in share.references})

    def _deliver_share(self, share: Share) -> None:
        """One after the other. If that takes longer than it did last time, the rest goes to whoever is free."""
        began = time.monotonic()
        delivered: list[Delivered] = []
        count = 0
        if share.flow is not None and not share.careful and (batch := self._deliver_batch(share)) is not None:
            count, delivered = len(share.references), batch
        else:
            while (reference := share.take()) is not None:
                outcome = self._deliver(share.instance, reference)
                count += 1
                if outcome is not None:
                    delivered.append((reference, outcome))
                else:
                    self._settled(1)
                if time.monotonic() - began > _LONGEST_SHARE_SECONDS or self._stopping.is_set():
                    break
        self._end(share, delivered, count, time.monotonic() - began)

    def _end(self, share: Share, delivered: list[Delivered], count: int, seconds: float) -> None:
        if delivered:
            self._settler.put(share.instance, delivered)
        rest = share.take_rest()
        if share.flow is not None:
            let_go = count + len(rest)
            following = share.flow.end(share, delivered=count, let_go=let_go, seconds=seconds)
            if following is not None:
                self._ready.put(following)
            if share.flow.hungry(self._flows.spare):
                self._wake()
        elif count:
            self._pace = max(seconds / count, 1e-6)
            current = share.current
            if current is not None and seconds / count > _LONGEST_SHARE_SECONDS:
                self._flows.slow(current.service_id, seconds / count)
        if rest and self._stopping.is_set():
            self._give_back([Share(share.instance, rest)])
        elif rest:
            self.hand_over(share.instance, rest)

    def _deliver_batch(self, share: Share) -> list[Delivered] | None:
        """All of it at once, where the service likes that."""
        service = self._service_or_none(share.references[0].service_id)
        if not isinstance(service, BatchService) or not service.batches:
            return None
        references = share.take_all()
        try:
            given = [(each.message, each.attempt) for each in references]
            outcomes = service.deliver_batch(given, now=self._clock())
            if len(outcomes) != len(references):
                raise ValueError(f"{len(outcomes)} outcomes for {len(references)} messages")
        except Exception as error:
            logger.exception("A delivery failed in an unexpected way")
            outcomes = [Suspend(f"Unexpected {type(error).__name__}: {error}")] * len(references)
        settled = []
        for reference, outcome in zip(references, outcomes, strict=True):
            left = self._settler.publish(share.instance, reference, outcome)
            if left is None:
                self._settled(1)
            else:
                settled.append((reference, left))
        return settled

    def _deliver(self, instance: int, reference: Reference) -> Outcome | None:
        """What is left to be recorded; None if it is settled already."""
        if not reference.deaths:
            return self._deliver_now(instance, reference)
        if (reason := too_deadly(reference)) is not None:
            service = self._service_or_none(reference.service_id)
            return Suspend(reason, stops=isinstance(service, StoppingService) and service.stops_on_failure)
        with self._careful.noted(instance, reference) as ours:
            return self._deliver_now(instance, reference) if ours else None

    def _deliver_now(self, instance: int, reference: Reference) -> Outcome | None:
        try:
            service = self._service(reference.service_id)
            if service is None:
                return Suspend(_GONE)
            outcome = service.deliver(reference.message, attempt=reference.attempt, now=self._clock())
            if not isinstance(outcome, Outcome):
                raise TypeError(f"{outcome!r} is no outcome")
        except TransientError as error:
            return Retry(self._clock(), str(error))
        except Exception as error:
            logger.exception("A delivery failed in an unexpected way")
            return Suspend(f"Unexpected {type(error).__name__}: {error}")
        if isinstance(outcome, Answer | Suspend):
            return self._settler.publish(instance, reference, outcome)
        return outcome

    def _service(self, service_id: int) -> Service | None:
        """Looking it up may take the MessageBox, which may be away."""
        while True:
            try:
                return self._services(service_id)
            except TransientError:
                if self._stopping.wait(_RECONNECT_SECONDS):
                    raise

    def _service_or_none(self, service_id: int) -> Service | None:
        try:
            return self._service(service_id)
        except TransientError:
            return None

    def _goes_on(self, share: Share) -> bool:
        """Where the lease is gone with the life of the instance, somebody else may be at work on the line."""
        return not self._stopping.is_set() and self._lives(share.instance)

    # Stopping

    def _unstarted(self) -> list[Share]:
        """What no worker has begun."""
        found: list[Share] = []
        while True:
            try:
                share = self._ready.get_nowait()
            except Empty:
                break
            if share is not None and share is not self._call:
                found.append(share)
        while self._urgent:
            found.append(self._urgent.popleft())
        return found + self._careful.drain() + [share for flow in self._flows.all() for share in flow.drain()]

    def _give_back(self, shares: Sequence[Share]) -> None:
        """Somebody else may take it."""
        unstarted: defaultdict[int, list[int]] = defaultdict(list)
        for share in shares:
            if share.references and share.references[0].line > 0:
                self.lines.deliver(share)  # nothing is delivered any more, and the lease is given up
            else:
                unstarted[share.instance] += [reference.sequence for reference in share.references]
        for instance, sequences in unstarted.items():
            self._settler.persist(partial(self._agent.give_back, self._host_id, instance, sequences))
