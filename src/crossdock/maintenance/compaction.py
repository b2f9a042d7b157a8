"""Gives back the space of tables that are large and nearly empty, and of their indexes."""

from __future__ import annotations

from dataclasses import dataclass

from crossdock.messagebox.agent import Agent

NUMBER = 3


@dataclass(frozen=True, slots=True)
class Compact:
    """Takes milliseconds, since there is hardly anything left; skips what is in use."""

    agent: Agent

    def run_once(self) -> int:
        """Gives how many tables and indexes are smaller now."""
        with self.agent.cleanup.alone(NUMBER) as mine:
            return len(self.agent.cleanup.compact()) if mine else 0
