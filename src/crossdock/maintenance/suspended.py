"""Ends what has been suspended for too long, if somebody said how long that is. Nothing is purged unasked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from crossdock.messagebox.agent import Agent


@dataclass(frozen=True, slots=True)
class PurgeSuspended:
    """`after` is the age at which a suspended reference is ended; None keeps everything."""

    agent: Agent
    after: timedelta | None

    def run_once(self) -> int:
        """Gives how many references were ended."""
        return 0 if self.after is None else sum(iter(partial(self.agent.suspended.purge, age=self.after), 0))


@dataclass(frozen=True, slots=True)
class PurgeOriginals:
    """Forgets the originals of edited messages when they have been kept for so long."""

    agent: Agent
    after: timedelta = timedelta(days=7)

    def run_once(self) -> int:
        """Gives how many references were ended."""
        return sum(iter(partial(self.agent.suspended.purge_originals, age=self.after), 0))
