"""Says in the log how full the spool and the queues are, and how old the oldest is. `get hosts` shows the queues."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from crossdock.messagebox.agent import Agent

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReportStatistics:
    """Counts nothing itself: it reads the newest sample."""

    agent: Agent

    def run_once(self) -> int:
        """Gives the number of messages in the spool."""
        sample = self.agent.samples.newest()
        if sample is None:
            return 0
        box = sample.box
        logger.info("Spool: %d messages; database %d bytes", box.spool_messages, box.database_bytes)
        for host in box.hosts:
            logger.info(
                "Host %s: %d ready, %d waiting, %d suspended, the oldest %.0f s old",
                host.name,
                host.ready,
                host.waiting,
                host.suspended,
                host.oldest_seconds or 0,
            )
        return box.spool_messages
