"""Quarantine: what a dead host instance had in hand is delivered one of a service at a time, and each is noted before.

One of these references may have ended the process. If it does so again, the note says which were being delivered, and
each of those is tried alone. Nothing is written for any other reference.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from crossdock.errors import DeathsError, TransientError
from crossdock.host.environment import HostEnvironment
from crossdock.messagebox.rows import Reference

if TYPE_CHECKING:
    from crossdock.host.backlog import Backlog, Slice


class Quarantine:
    """Threads share it. A slice that may `enter` has to `leave`; a backlog that may not is among those `refused`."""

    def __init__(self, host: HostEnvironment) -> None:
        self._host = host
        self._limits = host.limits
        self._lock = Lock()
        self._inside: dict[Slice, float] = {}  # since when
        self._refused: dict[Backlog, None] = {}
        self._alone: dict[Backlog, float] = {}  # those with a slice to be tried alone, and when it was refused last
        self._noting = Lock()
        self._noted: defaultdict[int, set[int]] = defaultdict(set)

    def enter(self, slice_: Slice) -> bool:
        """Whether it may be delivered now: beside one that is tried alone nothing else from quarantine is."""
        alone, backlog = self._goes_alone(slice_), slice_.backlog
        with self._lock:
            now = time.monotonic()
            recently = now - self._limits.quarantine_seconds
            recent = [each for each, since in self._inside.items() if since > recently]
            awaited = any(since > recently for each, since in self._alone.items() if each is not backlog)
            if (recent and (alone or any(map(self._goes_alone, recent)))) or (awaited and not alone):
                self._refused[backlog] = None
                if alone:
                    self._alone[backlog] = now
                return False
            self._alone.pop(backlog, None)
            self._inside[slice_] = now
            return True

    def leave(self, slice_: Slice) -> list[Backlog]:
        """It is delivered; gives the backlogs that may try again."""
        if slice_ not in self._inside:  # hardly any is, and threads would wait for each other at the lock
            return []
        with self._lock:
            del self._inside[slice_]
        return self.refused()

    def refused(self) -> list[Backlog]:
        """The backlogs that may try again, first those with a slice to be tried alone."""
        with self._lock:
            refused, self._refused = self._refused, {}
            return sorted(refused, key=lambda backlog: backlog not in self._alone)

    @contextmanager
    def noted(self, host_instance: int, reference: Reference) -> Iterator[bool | None]:
        """Around its delivery. False if the instance was taken for dead, and another one has the reference by now.

        None if the instance has to stop before it could be noted.
        """
        yield self._note(host_instance, reference.sequence)
        with self._noting:
            self._noted[host_instance].discard(reference.sequence)

    def too_deadly(self, reference: Reference) -> DeathsError | None:
        """Why it is not to be delivered again, if so."""
        if reference.deaths < self._limits.deaths_before_alone + self._limits.deaths_alone:
            return None
        return DeathsError(f"The process that delivered it has ended {reference.deaths} times; it was not tried again.")

    def _goes_alone(self, slice_: Slice) -> bool:
        return any(reference.deaths >= self._limits.deaths_before_alone for reference in slice_.references)

    def _note(self, host_instance: int, sequence: int) -> bool | None:
        """All that are being delivered, in one row: the next note leaves out those that are done."""
        while True:
            try:
                with self._noting:
                    self._noted[host_instance].add(sequence)
                    return self._host.agent.queues.note_deliveries(host_instance, list(self._noted[host_instance]))
            except TransientError:
                if self._host.stopping.wait(self._limits.reconnect_seconds):
                    return None
