"""Where a claim begins to look in the queue of a host, so that it does not wade through rows that are gone.

The start never passes a row that may still appear: sequence numbers up to `s` are settled once every transaction that
was running when `s` had been drawn has ended. A claim moves the start behind what it took; rows that come back with an
old number, or that somebody else had locked and gave up, are found by the next sweep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

# What running instances wait for comes before everything that would begin a new one.
CORRELATED = 0
PRIORITIES = (CORRELATED, *range(1, 11))
_SWEEP_SECONDS = 1.0
_IDLE_SWEEP_SECONDS = 0.1
_SETTLE_SECONDS = 0.2
# A sweep walks over everything that is gone and not yet cleaned away: it may take one part in so many of the time.
_SHARE_OF_TIME = 30
_LONGEST_SECONDS = 10.0
# Where messages come one by one, somebody waits for each. The next claim, which finds nothing, has time for this.
_HURRY = 10


@dataclass(slots=True)
class ScanStart:
    """For one host in one process: a position for each priority."""

    positions: Sequence[int] = (0,) * len(PRIORITIES)
    settled: int = 0
    drawn: int = 0
    drawn_before: int | None = None
    swept_at: float = -math.inf
    sweep_seconds: float = 0.0
    settled_at: float = -math.inf
    resets: int = 0
    sweeping: Lock = field(default_factory=Lock)
    _moving: Lock = field(default_factory=Lock)

    def sweep_due(self, *, idle: bool, hurry: bool = False) -> bool:
        """Whether it is time to look at everything again; sooner where a claim found nothing, later in a `hurry`."""
        interval, longest = (_IDLE_SWEEP_SECONDS, _SWEEP_SECONDS) if idle else (_SWEEP_SECONDS, _LONGEST_SECONDS)
        pause = max(interval, min(_SHARE_OF_TIME * self.sweep_seconds, longest))
        return time.monotonic() - self.swept_at > (min(pause * _HURRY, _LONGEST_SECONDS) if hurry else pause)

    def settle_due(self, *, hurry: bool = False) -> bool:
        """Whether it is time to ask again how far the start may go."""
        return time.monotonic() - self.settled_at > _SETTLE_SECONDS * (_HURRY if hurry else 1)

    def settle(self, drawn: int, transaction: int, oldest_running: int) -> None:
        """`drawn`: the last number drawn before `transaction`, of which `oldest_running` was the oldest running one."""
        if self.drawn_before is not None and oldest_running >= self.drawn_before:
            self.settled, self.drawn_before = self.drawn, None
        if self.drawn_before is None:
            self.drawn, self.drawn_before = drawn, transaction
        self.settled_at = time.monotonic()

    def swept(self, lowest: Sequence[int], *, seconds: float, resets: int) -> None:
        """Take in the lowest living number of each priority, seen after the last `settle` and so many resets."""
        with self._moving:
            if resets == self.resets:
                self.positions = [min(living, self.settled + 1) for living in lowest]
                self.swept_at, self.sweep_seconds = time.monotonic(), seconds

    def claimed(self, began: Sequence[int], highest: Mapping[int, int], *, settled: int) -> None:
        """A claim that began at these positions took, or found locked, everything up to `highest` of each priority.

        `settled` is how far the numbers were settled when it began: it saw everything up to there.
        """
        with self._moving:
            if self.positions is began:  # else they were set back, or set anew, meanwhile
                self.positions = [
                    max(position, min(highest.get(priority, 0), settled) + 1)
                    for priority, position in zip(PRIORITIES, began, strict=True)
                ]

    def reset(self) -> None:
        """Rows with old numbers have come back: look at everything once."""
        with self._moving:
            self.positions = (0,) * len(PRIORITIES)
            self.swept_at = -math.inf
            self.resets += 1

    def lower(self, sequence: int) -> None:
        """Rows have come back, none of them with a lower number than this."""
        with self._moving:
            self.positions = [min(position, sequence) for position in self.positions]
            self.resets += 1
