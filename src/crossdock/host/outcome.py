"""What can come of a delivery. A service returns one of these; it does not raise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from crossdock.message.message import Message


@dataclass(frozen=True, slots=True)
class Complete:
    """Delivered."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now: try again at this time."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """It will not work by itself."""

    reason: str


Outcome = Complete | Retry | Suspend


class Service(Protocol):
    """Whoever is given messages: a send port."""

    def deliver(self, message: Message, *, attempt: int, now: datetime) -> Outcome:
        """Deliver one message; `attempt` counts the attempts before this one."""
