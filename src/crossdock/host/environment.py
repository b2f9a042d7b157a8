"""What all parts of one host instance work with."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field
from threading import Event

from crossdock.host.in_hand import InHand
from crossdock.host.limits import HostLimits
from crossdock.host.outcome import Services
from crossdock.host.threads import Threads
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.outage import is_refusal, one_line

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """`stopping` is set when the instance is to stop."""

    agent: Agent
    host_id: int
    services: Services
    limits: HostLimits
    threads: Threads
    in_hand: InHand = field(default_factory=InHand)
    stopping: Event = field(default_factory=Event)
    _said: dict[str, float] = field(default_factory=dict)

    def refused(self, error: Exception, what: str) -> None:
        """The MessageBox refuses something for good: say so, now and then, and go on. Anything else is raised.

        A row that cannot be is somebody's forgery or our mistake; neither is a reason to end the process.
        """
        if not is_refusal(error):
            raise error
        now = time.monotonic()
        if now - self._said.get(what, -math.inf) >= self.limits.say_again_seconds:
            self._said[what] = now
            logger.error("Host %d: %s: the MessageBox refuses it: %s", self.host_id, what, one_line(error))
