"""Marks: where a claim begins to look in the queue of a host, so that it does not wade through rows that are gone.

A mark never passes a row that may still appear: sequence numbers up to `s` are settled once every transaction that was
running when `s` had been drawn has ended. Rows that come back with an old number are found by the next sweep.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

PRIORITIES = tuple(range(1, 11))
_SWEEP_SECONDS = 1.0
_IDLE_SWEEP_SECONDS = 0.1


@dataclass(slots=True)
class Marks:
    """The marks of one host in one process, one for each priority."""

    positions: Sequence[int] = (0,) * len(PRIORITIES)
    settled: int = 0
    drawn: int = 0
    drawn_before: int | None = None
    swept_at: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def due(self, *, idle: bool) -> bool:
        """Whether it is time to look again; sooner where the marks found nothing."""
        return time.monotonic() - self.swept_at > (_IDLE_SWEEP_SECONDS if idle else _SWEEP_SECONDS)

    def swept(self, drawn: int, transaction: int, oldest_running: int, lowest: Sequence[int]) -> None:
        """Take in a sweep. `drawn`: the last number drawn when it began; `lowest`: living, of each priority."""
        if self.drawn_before is not None and oldest_running >= self.drawn_before:
            self.settled, self.drawn_before = self.drawn, None
        if self.drawn_before is None:
            self.drawn, self.drawn_before = drawn, transaction
        self.positions = [min(living, self.settled + 1) for living in lowest]
        self.swept_at = time.monotonic()

    def reset(self) -> None:
        """Rows with old numbers have come back: look at everything once."""
        self.positions = (0,) * len(PRIORITIES)
        self.swept_at = 0.0
