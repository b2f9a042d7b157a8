"""What an engine keeps in memory: the code of instances that are busy, and the references that found no instance."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from uuid import UUID

from crossdock.messagebox.rows import Reference
from crossdock.orchestration.task import Live

_KEPT_RUNS = 4_000
_KEPT_SEEN = 10_000


class Runs:
    """The code of instances that are busy, the last used ones. Threads share it; each run is with one of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[UUID, Live] = OrderedDict()

    def take(self, instance: UUID) -> Live | None:
        with self._lock:
            return self._kept.pop(instance, None)

    def keep(self, live: Live) -> None:
        with self._lock:
            self._kept[live.id] = live
            old = self._kept.popitem(last=False)[1] if len(self._kept) > _KEPT_RUNS else None
        if old is not None:
            old.run.drop()

    def forget(self, instance: UUID) -> None:
        if (live := self.take(instance)) is not None:
            live.run.drop()

    def clear(self) -> None:
        with self._lock:
            dropped, self._kept = self._kept, OrderedDict()
        for live in dropped.values():
            live.run.drop()


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
