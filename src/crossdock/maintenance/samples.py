"""Looks at the whole MessageBox every few seconds, for everybody who watches it: one process at a time does."""

from __future__ import annotations

from dataclasses import dataclass

from crossdock.maintenance import counts
from crossdock.messagebox.agent import Agent

NUMBER = 4
SAMPLE_SECONDS = 5.0
_DUE_AFTER = 0.7 * SAMPLE_SECONDS


@dataclass(frozen=True, slots=True)
class TakeSample:
    """Any number of processes try. Where another has just looked, there is nothing to do."""

    agent: Agent

    def run_once(self) -> int:
        """Gives whether a sample was taken."""
        with self.agent.cleanup.alone(NUMBER) as mine:
            age = self.agent.samples.age() if mine else None
            if not mine or (age is not None and age < _DUE_AFTER):
                return 0
            with self.agent.cleanup.alone(counts.NUMBER) as may_fold:
                if may_fold:  # else another process does just that
                    self.agent.cleanup.fold_counts()
            self.agent.samples.take()
            return 1
