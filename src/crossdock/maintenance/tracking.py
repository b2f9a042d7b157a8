"""Keeps the track small: packs what was tracked a few at a time, makes partitions ahead and drops old ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from crossdock.messagebox.agent import Agent

PACK_NUMBER, KEEP_NUMBER = 7, 8


@dataclass(frozen=True, slots=True)
class PackTrack:
    """Packing gives a few messages the filter by which they are found."""

    agent: Agent

    def run_once(self) -> int:
        """Gives how many rows were packed."""
        with self.agent.cleanup.alone(PACK_NUMBER) as mine:
            if not mine:
                return 0
            packed = self.agent.cleanup.pack_track()
            self.agent.cleanup.rewrite_erased()  # after it: what has just been packed may be marked
            return packed


@dataclass(frozen=True, slots=True)
class KeepTrack:
    """Whole days are forgotten: no row is deleted."""

    agent: Agent
    kept: timedelta
    bodies_kept: timedelta

    def run_once(self) -> int:
        """Gives how many partitions came or went."""
        with self.agent.cleanup.alone(KEEP_NUMBER) as mine:
            if not mine:
                return 0
            cleanup = self.agent.cleanup
            return cleanup.make_track_partitions() + cleanup.drop_track_partitions(self.kept, self.bodies_kept)
