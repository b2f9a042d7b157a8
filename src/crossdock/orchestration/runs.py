"""What an engine keeps in memory: the code of instances that are busy, and the references that found no instance."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from uuid import UUID

from crossdock.messagebox.rows import Reference
from crossdock.orchestration.task import Live

_KEPT_RUNS = 4_000
_KEPT_BYTES = 256 * 1024 * 1024  # of their messages; what is left out is replayed when it goes on
_KEPT_SEEN = 10_000


class Runs:
    """The code of instances that are busy, the last used ones. Threads share it; each run is with one of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[UUID, Live] = OrderedDict()
        self._bytes = 0

    def take(self, instance: UUID) -> Live | None:
        with self._lock:
            return self._taken(instance)

    def keep(self, live: Live) -> None:
        dropped = []
        with self._lock:
            self._taken(live.id)
            self._kept[live.id] = live
            self._bytes += live.tools.size
            while len(self._kept) > _KEPT_RUNS or (self._bytes > _KEPT_BYTES and len(self._kept) > 1):
                dropped.append(self._kept.popitem(last=False)[1])
                self._bytes -= dropped[-1].tools.size
        for old in dropped:
            old.run.drop()

    def forget(self, instance: UUID) -> None:
        if (live := self.take(instance)) is not None:
            live.run.drop()

    def clear(self) -> None:
        with self._lock:
            dropped, self._kept, self._bytes = self._kept, OrderedDict(), 0
        for live in dropped.values():
            live.run.drop()

    def _taken(self, instance: UUID) -> Live | None:
        live = self._kept.pop(instance, None)
        if live is not None:
            self._bytes -= live.tools.size
        return live


class SeenOnce:
    """References that were looked at once, in vain. Threads share it; the oldest are forgotten.

    One that is forgotten is looked at once more, which does no harm.
    """

    def __init__(self, most: int = _KEPT_SEEN) -> None:
        self._lock = Lock()
        self._most = most
        self._seen: OrderedDict[tuple[int, UUID], None] = OrderedDict()

    def again(self, reference: Reference, instance: UUID) -> bool:
        """Whether it was seen before, for this instance. Every second look is one."""
        key = (reference.sequence, instance)
        with self._lock:
            if key in self._seen:
                del self._seen[key]
                return True
            self._seen[key] = None
            if len(self._seen) > self._most:
                self._seen.popitem(last=False)
            return False

    def __len__(self) -> int:
        return len(self._seen)
