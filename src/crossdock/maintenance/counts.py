"""Adds up what was published and delivered, so that only sums stay: in all, and by the minute. Forgets what is old."""

from __future__ import annotations

from dataclasses import dataclass

from crossdock.messagebox.agent import Agent

NUMBER = 2


@dataclass(frozen=True, slots=True)
class FoldCounts:
    """Sums and rows change in one statement, so that nobody sees a count twice or not at all."""

    agent: Agent

    def run_once(self) -> int:
        with self.agent.cleanup.alone(NUMBER) as mine:
            if mine:
                self.agent.cleanup.fold_counts()
                self.agent.cleanup.forget_removals()
                self.agent.cleanup.forget_versions()
                self.agent.samples.forget_minutes()
            return int(mine)
