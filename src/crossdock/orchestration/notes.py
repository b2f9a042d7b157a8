"""Notes of what may end this process: which instances are stepped with no message in hand, and what is tried alone.

A message that a process had in hand is known by its claim, a timer by nothing. So before the timers of a batch are
given to the code, one statement notes their instances in the row of the host instance. If the process ends, the next
one counts a death for each, and tries each alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import Lock
from uuid import UUID

from crossdock.orchestration.environment import EngineEnvironment
from crossdock.orchestration.task import Task


class Notes:
    """Threads share it: each note has what all of them have in hand."""

    def __init__(self, environment: EngineEnvironment) -> None:
        self._queues = environment.agent.queues
        self._host_id = environment.host_id
        self._patience = environment.limits.quarantine_seconds
        self._noting = Lock()
        self._quarantine = Lock()
        self._noted: defaultdict[int, _Noted] = defaultdict(_Noted)

    @contextmanager
    def together(self, host_instance: int, tasks: Collection[Task]) -> Iterator[None]:
        """While many instances are stepped. Nothing is written if all of them have messages."""
        timed = {task.id for task in tasks if not task.references}
        if timed:
            with self._noting:
                self._noted[host_instance].together |= timed
                self._note_steps(host_instance)
        try:
            yield
        finally:
            if timed:  # the next note leaves them out
                with self._noting:
                    self._noted[host_instance].together -= timed

    @contextmanager
    def alone(self, host_instance: int, task: Task) -> Iterator[bool]:
        """While one is tried and nothing else that a dead process had in hand; False if we are taken for dead.

        One that hangs hardly ends the process: after a while the others do not wait for it.
        """
        waited = self._quarantine.acquire(timeout=self._patience)
        try:
            with self._in_note(host_instance, task):
                with self._noting:
                    lives = self._note(host_instance)
                yield lives
            with self._noting:
                self._note(host_instance)
        finally:
            if waited:
                self._quarantine.release()

    @contextmanager
    def _in_note(self, host_instance: int, task: Task) -> Iterator[None]:
        noted, sequences = self._noted[host_instance], {each.sequence for each in task.references}
        with self._noting:
            noted.sequences |= sequences
            noted.alone |= {task.id}
        try:
            yield
        finally:
            with self._noting:
                noted.sequences -= sequences
                noted.alone -= {task.id}

    def _note(self, host_instance: int) -> bool:
        sequences = sorted(self._noted[host_instance].sequences)
        return self._queues.note_deliveries(host_instance, sequences) and self._note_steps(host_instance)

    def _note_steps(self, host_instance: int) -> bool:
        noted = self._noted[host_instance]
        return self._queues.note_steps(self._host_id, host_instance, noted.together | noted.alone, alone=noted.alone)


class _Noted:
    """What one host instance has in hand."""

    def __init__(self) -> None:
        self.together: set[UUID] = set()
        self.alone: set[UUID] = set()
        self.sequences: set[int] = set()
