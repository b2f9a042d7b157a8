"""The workers of a host instance: threads that deliver what it has claimed.

Quick services share the workers as they come. One that is slow, takes only so many at once or likes batches has a flow
of its own, so that it holds neither workers nor memory that others need; what there is no room for stays in the queue.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread

from crossdock.host.careful import Careful
from crossdock.host.delivery import Delivery
from crossdock.host.flow import SLOW_SECONDS, Flow, Share, cut, share_size
from crossdock.host.flows import Flows, Services
from crossdock.host.lines import Lines
from crossdock.host.settler import Delivered, Settler
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Reference

_QUICK_WORKERS = 8  # where deliveries take no time, more only get in each other's way
MOST_WORKERS = 1_024
_FOR_THE_QUICK = 64  # of these
_LONGEST_SHARE_SECONDS = 0.05
_QUICK_SECONDS = 0.0005
_WAITS_SECONDS = 0.01  # whoever takes longer mostly waits, and others can work meanwhile


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
        self._flows = Flows(services)
        self._settler = settler
        self._careful = Careful(agent, stopping)
        self._delivery = Delivery(services, settler, self._careful, clock=clock, stopping=stopping, settled=settled)
        self._count = count
        self._stopping = stopping
        self._settled = settled
        self._wake = wake
        self._lives = lives
        self._thread = thread
        self._ready: SimpleQueue[Share | None] = SimpleQueue()
        self._urgent: deque[Share] = deque()  # each with a call among the ready ones, for whoever is idle
        self._call = Share(0, ())
        self._at_work: dict[int, Share] = {}
        self._held_up: set[int] = set()  # workers of lines, of flows, and of whoever turned out to be slow
        self.lines = Lines(
            agent,
            host_id,
            settler,
            clock=clock,
            deliver=self._delivery.one,
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

    @property
    def crowded(self) -> bool:
        """Whether the slow hold all the workers that they may."""
        return len(self._held_up) >= MOST_WORKERS - _FOR_THE_QUICK

    def tend(self) -> None:
        """Now and then: let nobody wait behind a slow delivery, and have as many workers as are not held up."""
        at_work = list(self._at_work.items())
        busy = any(self._takes_time(share) for _, share in at_work)
        slow = sum(self._is_held_up(number, share) for number, share in at_work)
        self._flows.forget_needless()
        self._put(self._careful.overdue())
        for flow in self._flows.all():
            for share in flow.startable() if not self.crowded else ():
                self._ready.put(share)
            for excess in flow.excess():
                self._settler.give_back(excess.instance, excess.references)
                self._put(self._careful.end(excess))
        count = self._count if busy else min(self._count, _QUICK_WORKERS)
        self._grow(min(MOST_WORKERS, count + slow))

    def _takes_time(self, share: Share) -> bool:
        """Whether more workers are of use beside it."""
        return share.current is not None and (share.current.line > 0 or self._pace_of(share) > _QUICK_SECONDS)

    def _is_held_up(self, number: int, share: Share) -> bool:
        """Whether its worker mostly waits; what lies behind a slow delivery goes to others."""
        if (current := share.current) is None:
            return False
        apart = share.flow is not None or current.line > 0
        if time.monotonic() - share.began <= SLOW_SECONDS:
            return apart and self._pace_of(share) > _WAITS_SECONDS
        if self._at_work.get(number) is share:
            self._held_up.add(number)
        if share.flow is not None:
            share.flow.lags()
            rest = () if share.flow.batches else share.take_rest()
            for single in cut(share.instance, rest, 1, share.flow):
                self._ready.put(single)
        elif not apart:
            self._flows.slow(current.service_id, time.monotonic() - share.began)
            self.hand_over(share.instance, share.take_rest())
        return True

    def _pace_of(self, share: Share) -> float:
        """Seconds for one delivery of its kind, as it was last time."""
        if share.flow is not None:
            return share.flow.pace
        line = 0 if share.current is None else share.current.line
        return self.lines.pace(line) if line > 0 else self._pace

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
            admitted = [share] if share.careful else self._careful.admit(share)
            if share not in admitted and share.careful:
                self.lines.set_aside(share)
            for each in admitted:
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
                self._held_up.add(number)
                self.lines.deliver(share)
            elif share.flow is None and self._became_slow(share):
                self.hand_over(share.instance, share.take_rest())
            elif share.flow is None or share.flow.begin(share, crowded=self.crowded):
                self._at_work[number] = share
                if share.flow is not None:
                    self._held_up.add(number)
                self._deliver_share(share)
            else:
                continue  # it waits in its flow
            self._at_work.pop(number, None)
            self._held_up.discard(number)
            self._put(self._careful.end(share))

    def _most_urgent(self, ready: Share) -> Share | None:
        """What instances wait for comes before what is ready, which goes to the end; None for a call that was heard."""
        try:
            urgent = self._urgent.popleft() if self._urgent else None
        except IndexError:  # another worker has it
            urgent = None
        if urgent is None:
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
        if share.flow is not None and not share.careful and (batch := self._delivery.batch(share)) is not None:
            count, delivered = len(share.references), batch
        else:
            while (reference := share.take()) is not None:
                outcome = self._delivery.one(share.instance, reference)
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
