"""What comes out of the MessageBox: plain values, one per kind of row."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from crossdock.message.message import Message, MessageId


def storable(text: str) -> str:
    """PostgreSQL's text has neither NUL nor half of a surrogate pair, and a reason may quote anything."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Published:
    """What a call put into the MessageBox, without what was published before; `hosts` have new references."""

    interchanges: int = 0
    received: int = 0
    published: int = 0
    unrouted: int = 0
    suspended: int = 0
    references: int = 0
    hosts: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reference:
    """A claim on one message for one service. `attempt` counts the attempts before this one."""

    sequence: int
    service_id: int
    attempt: int
    message: Message


@dataclass(frozen=True, slots=True)
class SuspendedMessage:
    """A message that waits for somebody to look at it."""

    id: MessageId
    kind: str
    reason: str
    source_file: str | None
    receive_location: str | None
    port: str | None
    type: str | None
    bytes: int
    suspended_at: datetime


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the MessageBox holds now, and what went through it since a mark."""

    unread: int = 0
    ready: int = 0
    claimed: int = 0
    waiting: int = 0
    suspended: int = 0
    unrouted: int = 0
    received: int = 0
    published: int = 0
    last_publication: int = 0
    last_delivery: int = 0
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def delivered(self) -> int:
        return sum(self.ports.values())
