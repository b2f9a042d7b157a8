"""What a dead host instance had in hand is delivered with care: one of a service at a time, and each is noted before.

One of them may have ended the process. If it does so again, the note says which were at work, and those are tried
alone. Everything else is delivered as ever, and nothing is written for it.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock

from crossdock.errors import TransientError
from crossdock.host.flow import Share, cut
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Reference

_RECONNECT_SECONDS = 0.5
# The first death is that of an instance which had it in hand, the second one in which it was at work beside others.
_DEATHS_BEFORE_ALONE = 2
_DEATHS_ALONE = 2
# What takes longer hardly ends the process, and the others have waited enough.
_HANGS_SECONDS = 5.0


class Careful:
    """Several threads use it at once. A share that it lets begin has to `end`."""

    def __init__(self, agent: Agent, stopping: Event) -> None:
        self._agent = agent
        self._stopping = stopping
        self._lock = Lock()
        self._at_work: dict[int, Share] = {}  # by service or line
        self._since: dict[int, float] = {}
        self._waiting: defaultdict[int, deque[Share]] = defaultdict(deque)
        self._alone: deque[Share] = deque()
        self._noting = Lock()
        self._noted: defaultdict[int, set[int]] = defaultdict(set)

    def admit(self, share: Share) -> list[Share]:
        """What of it may begin now: all, unless a dead instance had some of it."""
        if not any(reference.deaths for reference in share.references):
            return [share]
        healthy: list[Share] = []
        suspects = [share]
        if not _in_line(share):
            rest = [reference for reference in share.references if not reference.deaths]
            healthy = cut(share.instance, rest, max(1, len(rest)), share.flow)
            suspects = cut(share.instance, [each for each in share.references if each.deaths], 1, share.flow)
        with self._lock:
            for each in suspects:
                first = each.references[0]
                each.careful = max(0, first.line) or first.service_id
                (self._alone if _goes_alone(each) else self._waiting[each.careful]).append(each)
            return healthy + self._begin()

    def end(self, share: Share) -> list[Share]:
        """It is delivered, or given back; gives those that may begin now."""
        if not share.careful:
            return []
        with self._lock:
            self._at_work.pop(share.careful, None)
            return self._begin()

    def overdue(self) -> list[Share]:
        """Those that need not wait any longer behind one that hangs."""
        with self._lock:
            return self._begin()

    def drain(self) -> list[Share]:
        """Everything that waits, for whoever stops."""
        with self._lock:
            drained = [*self._alone, *(share for waiting in self._waiting.values() for share in waiting)]
            self._alone.clear()
            self._waiting.clear()
            return drained

    @contextmanager
    def noted(self, instance: int, reference: Reference) -> Iterator[bool | None]:
        """Around its delivery. False if the instance was taken for dead, and somebody else has it by now.

        None if we are to stop before it could be noted.
        """
        yield self._note(instance, reference.sequence)
        with self._noting:
            self._noted[instance].discard(reference.sequence)

    def _begin(self) -> list[Share]:
        now = time.monotonic()
        recent = [share for key, share in self._at_work.items() if now - self._since[key] < _HANGS_SECONDS]
        if recent and (self._alone or any(map(_goes_alone, recent))):
            return []
        alone = next((share for share in self._alone if share.careful not in self._at_work), None)
        if alone is not None:
            self._alone.remove(alone)
            begun = [alone]
        else:
            free = [key for key, waiting in self._waiting.items() if waiting and key not in self._at_work]
            begun = [self._waiting[key].popleft() for key in free]
        self._at_work |= {share.careful: share for share in begun}
        self._since |= {share.careful: now for share in begun}
        return begun

    def _note(self, instance: int, sequence: int) -> bool | None:
        """All that are at work, in one row: whoever notes the next one leaves out those that are done."""
        while True:
            try:
                with self._noting:
                    self._noted[instance].add(sequence)
                    return self._agent.note_deliveries(instance, list(self._noted[instance]))
            except TransientError:
                if self._stopping.wait(_RECONNECT_SECONDS):
                    return None


def too_deadly(reference: Reference) -> str | None:
    """Why it is not to be delivered again, if so."""
    if reference.deaths < _DEATHS_BEFORE_ALONE + _DEATHS_ALONE:
        return None
    return f"The process that delivered it has ended {reference.deaths} times; it was not tried again."


def _in_line(share: Share) -> bool:
    return share.references[0].line > 0


def _goes_alone(share: Share) -> bool:
    return any(reference.deaths >= _DEATHS_BEFORE_ALONE for reference in share.references)
