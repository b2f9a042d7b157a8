"""Frees what dead host instances had claimed, also where no instance of their host runs that would notice."""

from __future__ import annotations

from dataclasses import dataclass

from crossdock.messagebox.agent import Agent


@dataclass(frozen=True, slots=True)
class ReleaseDead:
    """The statement itself makes sure that only one process frees a reference."""

    agent: Agent

    def run_once(self) -> int:
        """Gives how many references came free."""
        return sum(self.agent.queues.release_dead(host) for host in self.agent.configuration.hosts().values())
