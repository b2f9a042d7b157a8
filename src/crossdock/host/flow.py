"""How the deliveries of one service go: how many at once, how long they take, and what waits for its turn in memory.

A service that is slow holds a bounded number of workers and of messages; the rest of its messages is left in its queue
until there is room. So the services beside it do not notice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from crossdock.messagebox.rows import Reference

SHARE_SECONDS = 0.005
LARGEST_SHARE = 500
SLOW_SECONDS = 0.1
_MOST_HELD = 3_000  # what a host instance takes at most: a quick service need not leave anything
_LEAST, _LEAST_BATCH = 2, 64  # for each delivery at once
_RATE_SECONDS = 0.25
# A flow is no longer needed after so many quick deliveries in so long a time: quick enough not to have another soon.
_QUICK_SECONDS, _QUICK_DELIVERIES, _QUICK_FOR_SECONDS = SLOW_SECONDS / 4, 100, 60.0
_WORTHWHILE = 4  # claim more for it when one part in so many of its room is free


@dataclass(eq=False, slots=True)
class Share:
    """References to deliver one after the other, under the instance that claimed them.

    `careful` is the service or line of which no other share is delivered meanwhile, if it is a matter of care.
    """

    instance: int
    references: Sequence[Reference]
    flow: Flow | None = None
    began: float = 0.0
    careful: int = 0
    _next: int = 0
    _lock: Lock = field(default_factory=Lock)

    def take(self) -> Reference | None:
        """The next one to deliver."""
        with self._lock:
            if self._next >= len(self.references):
                return None
            reference = self.references[self._next]
            self._next += 1
            self.began = time.monotonic()
            return reference

    def take_all(self) -> Sequence[Reference]:
        """Everything, to be delivered at once."""
        with self._lock:
            self._next = len(self.references)
            self.began = time.monotonic()
            return self.references

    def take_rest(self) -> Sequence[Reference]:
        """All that nobody has begun; whoever asks delivers them, or gives them back."""
        with self._lock:
            rest = self.references[self._next :]
            self.references = self.references[: self._next]
            return rest

    @property
    def urgent(self) -> bool:
        """Whether a running instance waits for it: what only begins new ones has time."""
        return bool(self.references) and self.references[0].instance is not None

    @property
    def current(self) -> Reference | None:
        """The one that is being delivered, or was last."""
        return self.references[self._next - 1] if self._next else None


class Flow:
    """Of one service at one host instance. `limit` is how many of its shares may be delivered at once.

    The limit may change. While it is 0 others deliver: nothing is held here, and what is in the queue stays there.

    Where it takes `batches`, a share is one, and what is there is dealt out evenly. It is `behind` while more may be in
    the queue than it has room for: then it is claimed for by itself, as many as there is room.
    """

    def __init__(self, limit: int, pace: float, *, batches: bool = False) -> None:
        self.limit = limit
        self.batches = batches
        self.behind = limit == 0
        self.pace = pace  # seconds for one delivery, as it was last time
        self._rate = limit / pace  # deliveries per second, as it was lately
        self._since, self._delivered = 0.0, 0  # since when, and how many, for the next rate
        self._lock = Lock()
        self._active: set[Share] = set()
        self._waiting: deque[Share] = deque()
        self._held = 0
        self._refilling = False
        self._slow_at, self._quick = time.monotonic(), 0  # when it was slow last, and what it has delivered since

    @property
    def held(self) -> int:
        """How many references wait in memory, or are being delivered."""
        return self._held

    def admit(
        self, instance: int, references: Sequence[Reference], spare: int
    ) -> tuple[list[Share], Sequence[Reference]]:
        """What may be held in memory, in shares, and what has to go back. All flows together have `spare` room."""
        with self._lock:
            room = self._room(spare)
            kept = references[:room]
            self.behind = self.behind or len(references) > room
            return self._take(instance, kept), references[room:]

    def begin(self, share: Share, *, crowded: bool = False) -> bool:
        """Whether it may be delivered now; else it waits for its turn, and `end` of another gives it.

        Where it is `crowded`, only those begin that have been quick since they were last slow.
        """
        with self._lock:
            if len(self._active) >= self.limit or (crowded and not self._quick):
                (self._waiting.appendleft if share.urgent else self._waiting.append)(share)
                return False
            if not self._active:
                self._since, self._delivered = time.monotonic(), 0
            self._active.add(share)
            return True

    def end(self, share: Share, *, delivered: int, let_go: int, seconds: float) -> Share | None:
        """So many of a share are delivered, and so many are no longer held here; gives the next one."""
        with self._lock:
            self._active.discard(share)
            self._held -= let_go
            self._delivered += delivered
            if delivered:
                self.pace = max(seconds / delivered, 1e-6)
                self._quick += delivered
            if self.pace > _QUICK_SECONDS:
                self._was_slow()
            if (passed := time.monotonic() - self._since) > _RATE_SECONDS:
                self._rate = self._delivered / passed
                self._since, self._delivered = time.monotonic(), 0
            return self._waiting.popleft() if self._waiting and len(self._active) < self.limit else None

    def change(self, limit: int) -> None:
        """From now on so many at once; `startable` gives those that need not wait any more."""
        with self._lock:
            self.limit = limit
            self.behind = self.behind or limit == 0

    def startable(self) -> list[Share]:
        """Shares that waited for a limit that has been raised since: else they would begin one by one."""
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), self.limit - len(self._active)))]

    def lags(self) -> None:
        """A delivery takes long, whatever the others of its share did."""
        with self._lock:
            self._was_slow()

    def needless(self) -> bool:
        """Whether it has been quick for a while."""
        return self._quick >= _QUICK_DELIVERIES and time.monotonic() - self._slow_at > _QUICK_FOR_SECONDS

    def excess(self) -> list[Share]:
        """Shares for which there is no room, as slow as it has become; they are no longer held here.

        Not for a rate that goes up and down: only once it holds two seconds' work, or hardly delivers at all.
        """
        with self._lock:
            excess: list[Share] = []
            most = self._most()
            while self._waiting and self._held > most and (excess or most == self._least() or self._held > 2 * most):
                share = self._waiting.pop()
                self._held -= len(share.references)
                self.behind = True
                excess.append(share)
            return excess

    def drain(self) -> list[Share]:
        """Everything that waits, for whoever stops."""
        with self._lock:
            drained = list(self._waiting)
            self._waiting.clear()
            return drained

    def refill(self, spare: int) -> int:
        """How many to claim for it now, if it is behind: room is kept for them, and `refilled` has to follow."""
        with self._lock:
            room = self._worthwhile(spare) if self.behind and not self._refilling else 0
            self._refilling = self._refilling or room > 0
            self._held += room
            return room

    def refilled(self, instance: int, references: Sequence[Reference], room: int, *, caught_up: bool) -> list[Share]:
        """These were claimed for the room that was kept; `caught_up`: there were no more."""
        with self._lock:
            self._refilling = False
            self.behind = not caught_up or self.limit == 0
            self._held -= room
            return self._take(instance, references)

    def hungry(self, spare: int) -> bool:
        """Whether it is behind and has room."""
        with self._lock:
            return self.behind and not self._refilling and self._worthwhile(spare) > 0

    def _was_slow(self) -> None:
        self._slow_at, self._quick = time.monotonic(), 0

    def _take(self, instance: int, references: Sequence[Reference]) -> list[Share]:
        self._held += len(references)
        # Not by the pace alone: where a batch takes as long as one message, that would make them ever smaller.
        dealt = -(-len(references) // max(1, self.limit)) if self.batches else 1
        return cut(instance, references, min(LARGEST_SHARE, max(dealt, share_size(self.pace))), self)

    def _worthwhile(self, spare: int) -> int:
        """Room for so many, where it is enough to claim for."""
        room = self._room(spare)
        return room if room * _WORTHWHILE >= min(self._most(), max(spare, self._least())) else 0

    def _room(self, spare: int) -> int:
        return max(0, self._least() - self._held, min(self._most() - self._held, spare))

    def _most(self) -> int:
        """About a second's work, and enough to keep everybody busy."""
        if self.limit == 0:
            return 0
        passed = time.monotonic() - self._since
        hangs = self._active and passed > 2 * _RATE_SECONDS
        rate = self._delivered / passed if hangs else self._rate
        return min(_MOST_HELD, max(self._least(), int(rate)))

    def _least(self) -> int:
        return (_LEAST_BATCH if self.batches else _LEAST) * self.limit


def share_size(pace: float) -> int:
    """One at a time where deliveries take time, else so many that handing over costs little beside them."""
    return max(1, min(LARGEST_SHARE, int(SHARE_SECONDS / pace)))


def cut(instance: int, references: Sequence[Reference], size: int, flow: Flow | None = None) -> list[Share]:
    return [Share(instance, references[start : start + size], flow) for start in range(0, len(references), size)]
