"""Says in the log how full the spool and the queues are, and how old the oldest is. `get hosts` shows the queues."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from crossdock.messagebox.agent import Agent

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReportStatistics:
    """Counting takes a while on a large spool, so it is done once a minute."""

    agent: Agent

    def run_once(self) -> int:
        """Gives the number of messages in the spool."""
        spool = self.agent.cleanup.spool_statistics()
        logger.info(
            "Spool: %d messages of %d bytes, the oldest of %s; database %d bytes",
            spool.messages,
            spool.bytes,
            spool.oldest,
            spool.database_bytes,
        )
        for host in self.agent.configuration.list_hosts():
            logger.info(
                "Host %s: %d ready, %d waiting, %d suspended, the oldest of %s",
                host.name,
                host.ready,
                host.waiting,
                host.suspended,
                host.oldest,
            )
        return spool.messages
