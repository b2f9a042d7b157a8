"""Gives back the space of indexes that are large over tables that are nearly empty."""

from __future__ import annotations

from dataclasses import dataclass

from crossdock.messagebox.agent import Agent

NUMBER = 3


@dataclass(frozen=True, slots=True)
class Compact:
    """Takes milliseconds, since there is hardly anything to index; skips what is in use."""

    agent: Agent

    def run_once(self) -> int:
        """Gives how many indexes were built anew."""
        with self.agent.alone(NUMBER) as mine:
            return len(self.agent.compact()) if mine else 0
