"""The backlog of one service: what waits in memory, what is being delivered, how much at once, and how long it takes.

Every service has one. Slow, limited, batched, ordered and quarantined services differ in their limits only. What a
backlog has no room for stays in the queue, so the services beside it do not notice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from threading import Lock

from crossdock.host.limits import HostLimits
from crossdock.host.quarantine import Quarantine
from crossdock.messagebox.rows import Reference


class Slice:
    """References that one worker delivers one after the other, claimed under one id of the host instance.

    `remaining` gives each of them to one thread only. `late`: its last delivery took long.
    """

    __slots__ = ("backlog", "began", "host_instance", "late", "references", "remaining")

    def __init__(self, backlog: Backlog, host_instance: int, references: Sequence[Reference]) -> None:
        self.backlog = backlog
        self.host_instance = host_instance
        self.references = references
        self.remaining: Iterator[Reference] = iter(references)
        self.began = 0.0
        self.late = False

    def take_rest(self) -> list[Reference]:
        """All that nobody has begun. The list is made in one step, so no other thread gets the same reference."""
        if rest := list(self.remaining):
            self.references = self.references[: -len(rest)]
        return rest

    @property
    def urgent(self) -> bool:
        """Whether a running instance waits for it: what only begins new ones has time."""
        return bool(self.references) and self.references[0].instance is not None

    @property
    def suspect(self) -> bool:
        """Whether a process has ended that had some of it in hand."""
        return any(reference.deaths for reference in self.references)


class Backlog:
    """Threads share it. `limit` is how many slices may be delivered at once; at 0 other instances deliver them all.

    It is `behind` while its queue may hold more than it has room for: then its references are claimed by themselves.
    A `limited` one keeps its references apart from those of quick services, and so does one that is slow. The `shared`
    one is that of all `quick` services: a slice of each would cost more than its delivery.
    """

    def __init__(
        self,
        limits: HostLimits,
        limit: int,
        *,
        batched: bool = False,
        ordered: bool = False,
        shared: bool = False,
    ) -> None:
        self._limits = limits
        self.limit = limit
        self.limited = False
        self.batched = batched
        self.ordered = ordered
        self.shared = shared
        self.services: set[int] = set()  # whose references come here
        self.behind = limit == 0
        self.pace = limits.first_pace  # seconds for one delivery
        self.measured = False
        self.hangs = False  # a slice takes long, whatever the others do
        self.held = 0  # references that wait or are being delivered
        self.waiting: deque[Slice] = deque()
        self.active: set[Slice] = set()
        self._suspects: deque[Slice] = deque()
        self._suspect: Slice | None = None  # the one of them that is being delivered
        self._offered = 0
        self._filling = False
        self._moved_at = 0.0  # when a slice ended, or the first one began
        self._lock = Lock()

    # What comes in

    def add(self, host_instance: int, references: Sequence[Reference], spare: int) -> Sequence[Reference]:
        """Hold what there is room for, and give the rest. All backlogs that are apart have `spare` room together."""
        with self._lock:
            room = self._room(spare)
            self.behind = self.behind or len(references) > room
            self._hold(host_instance, references[:room])
            return references[room:]

    def fill(self, spare: int) -> int:
        """How many to claim for it now, if it is behind; `filled` has to follow."""
        with self._lock:
            room = self._worthwhile(spare)
            self._filling = self._filling or room > 0
            return room

    def filled(self, host_instance: int, references: Sequence[Reference], *, more: bool) -> None:
        """These were claimed for it; there may be `more`."""
        with self._lock:
            self._filling = False
            self.behind = more or self.limit == 0
            self._hold(host_instance, references)

    def wants_more(self, spare: int) -> bool:
        with self._lock:
            return self._worthwhile(spare) > 0

    def put_back(self, slice_: Slice) -> None:
        """What a slice did not get to is the first to be delivered, by as many workers as there may be."""
        with self._lock:
            rest = slice_.take_rest()
            size = min(self._slice_size(len(rest)), -(-len(rest) // max(1, self.limit)))
            self.waiting.extendleft(reversed(self._cut(slice_.host_instance, rest, max(1, size))))

    def _hold(self, host_instance: int, references: Sequence[Reference]) -> None:
        self.held += len(references)
        if self.ordered:
            [slice_] = self._cut(host_instance, references, len(references))
            (self._suspects if slice_.suspect else self.waiting).append(slice_)
            return
        plain: list[Reference] = []
        urgent: list[Reference] = []
        suspects: list[Reference] = []
        for each in references:
            (suspects if each.deaths else plain if each.instance is None else urgent).append(each)
        self.waiting.extend(self._cut(host_instance, plain, self._slice_size(len(plain))))
        self.waiting.extendleft(reversed(self._cut(host_instance, urgent, self._slice_size(len(urgent)))))
        self._suspects.extend(self._cut(host_instance, suspects, 1))

    def _cut(self, host_instance: int, references: Sequence[Reference], size: int) -> list[Slice]:
        starts = range(0, len(references), size)
        return [Slice(self, host_instance, references[start : start + size]) for start in starts]

    def _slice_size(self, count: int) -> int:
        """One where deliveries take time, else so many that handing them over costs little."""
        size = max(1, int(self._limits.slice_seconds / self.pace))
        if self.batched:
            # Not by the pace alone: where a batch takes as long as one message, batches would become ever smaller.
            size = max(size, -(-count // max(1, self.limit)))
        return min(self._limits.slice_size, size)

    # What goes out

    def offer(self) -> tuple[int, bool]:
        """How many more turns it needs, each followed by a `start`, and whether a running instance waits for them."""
        with self._lock:
            urgent = bool(self.waiting) and self.waiting[0].urgent
            startable = len(self.waiting) + bool(self._suspects and self._suspect is None)
            free = self.limit - len(self.active)
            # The turns that it has already may come late: urgent ones do not wait for them.
            unused = min(free, 2 * self.limit - self._offered) if urgent else free - self._offered
            turns = max(0, min(unused, startable))
            self._offered += turns
            return turns, urgent

    def start(self, quarantine: Quarantine, *, crowded: bool) -> Slice | None:
        """The next slice to deliver, if it may begin now. Where it is `crowded`, slow ones may not."""
        with self._lock:
            self._offered -= 1
            if len(self.active) >= self.limit or (crowded and self.waits and not self.ordered):
                return None
            if self._suspects and self._suspect is None and quarantine.enter(self._suspects[0]):
                slice_ = self._suspect = self._suspects.popleft()
            elif self.waiting:
                slice_ = self.waiting.popleft()
            else:
                return None
            slice_.began = time.monotonic()
            if not self.active:
                self._moved_at = slice_.began
            self.active.add(slice_)
            return slice_

    def blame(self, late: Backlog, slice_: Slice) -> None:
        """A shared slice waits for this service, which has slices of its own from now on: this is the first."""
        with self._lock:
            if slice_ in self.active:
                self.active.remove(slice_)
                self.held -= len(slice_.references)
                slice_.backlog = late
                late._take_over(slice_)

    def _take_over(self, slice_: Slice) -> None:
        with self._lock:
            self.active.add(slice_)
            self.held += len(slice_.references)
            self._moved_at = time.monotonic()
            self.pace = max(self.pace, self._moved_at - slice_.began)

    def finish(self, slice_: Slice, *, delivered: int, released: int) -> bool:
        """So many of a slice are delivered, and so many are no longer held here. False if it is another backlog's."""
        with self._lock:
            if slice_ not in self.active:
                return False
            now = time.monotonic()
            self.active.remove(slice_)
            self.hangs = self.hangs and bool(self.active)
            self.held -= released
            self._moved_at = now
            if slice_ is self._suspect:
                self._suspect = None
            if delivered:
                pace = max((now - slice_.began) / delivered, 1e-6)
                self.pace += (pace - self.pace) * self._weight(pace)
                self.measured = True
            return True

    def change(self, limit: int) -> None:
        with self._lock:
            self.limit = limit
            self.behind = self.behind or limit == 0

    def overdue(self) -> list[Slice]:
        """Slices that take long."""
        with self._lock:
            since = time.monotonic() - self._limits.slow_seconds
            found = [slice_ for slice_ in self.active if slice_.began < since]
            self.hangs = bool(found) and not self.shared
            return found

    def excess(self) -> list[Slice]:
        """Slices for which there is no room, as slow as the service has become; they are no longer held here.

        Not for a pace that goes up and down: only when it holds twice as much as it should, or has stalled.
        """
        with self._lock:
            excess: list[Slice] = []
            most = self._most()
            if not (self.ordered or self.shared) and (self.held > 2 * most or most == self._least()):
                while self.held > most and (waiting := self.waiting or self._suspects):
                    excess.append(waiting.pop())
                    self.held -= len(excess[-1].references)
                    self.behind = True
            return excess

    def drain(self) -> list[Slice]:
        """Everything that nobody has begun; it is no longer held here."""
        with self._lock:
            drained = [*self.waiting, *self._suspects]
            self.waiting.clear()
            self._suspects.clear()
            if not self.ordered:
                drained += [Slice(self, each.host_instance, each.take_rest()) for each in self.active]
            self.held -= sum(len(each.references) for each in drained)
            return drained

    def _weight(self, pace: float) -> float:
        """A slice may take long only because others had the processor: a quick one says more."""
        if not self.measured:
            return 1.0
        return self._limits.slower_weight if pace > self.pace else self._limits.quicker_weight

    # How it is

    @property
    def quick(self) -> bool:
        """Whether its references may share slices with those of other services."""
        return self.measured and self.pace <= self._limits.busy_pace and not (self.held or self.behind or self.limited)

    @property
    def waits(self) -> bool:
        """Whether its workers mostly wait."""
        return self.hangs or self.ordered or self.pace > self._limits.waiting_pace

    @property
    def apart(self) -> bool:
        return self.limited or self.hangs or self.pace > self._limits.slow_pace

    def _worthwhile(self, spare: int) -> int:
        """Room for so many, where it is enough to claim for."""
        if not self.behind or self._filling:
            return 0
        room = self._room(spare)
        return room if room >= self._limits.refill_fraction * min(self._most(), max(spare, self._least())) else 0

    def _room(self, spare: int) -> int:
        return max(0, self._least() - self.held, min(self._most() - self.held, spare))

    def _most(self) -> int:
        """About a second's work, and enough to keep every delivery busy."""
        least = self._least()
        if self.active and time.monotonic() - self._moved_at > self._limits.stalled_seconds:
            return least
        return min(self._limits.most_held, max(least, int(self.limit / self.pace)))

    def _least(self) -> int:
        limits = self._limits
        return (limits.least_held_batched if self.batched else limits.least_held) * self.limit
