"""Deletes messages and parts that nobody references: swaps the logs, sums the closed one, deletes at zero."""

from __future__ import annotations

from dataclasses import dataclass

from crossdock.messagebox.agent import Agent
from crossdock.messagebox.cleanup import Kind

NUMBER = 1


@dataclass(frozen=True, slots=True)
class CleanReferences:
    """One round for messages, then one for parts: a part goes in the round after its last message."""

    agent: Agent

    def run_once(self) -> int:
        """Gives how many messages and parts were deleted; 0 if another process is at it."""
        with self.agent.cleanup.alone(NUMBER) as mine:
            if not mine:
                return 0
            return self._clean("message") + self._clean("part")

    def _clean(self, kind: Kind) -> int:
        cleanup = self.agent.cleanup
        return cleanup.sum_log(kind, cleanup.swap_log(kind)) if cleanup.may_be_unreferenced(kind) else 0
