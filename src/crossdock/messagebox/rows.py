"""What comes out of the MessageBox, and what came of it: plain values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from crossdock.errors import TerminalError, brief
from crossdock.message.message import Message, MessageId
from crossdock.message.property import Value


def storable(text: str) -> str:
    """PostgreSQL's text has neither NUL nor half of a surrogate pair, and a reason may quote anything."""
    return brief(text).replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Published:
    """What a call put into the MessageBox, without what was published before; `hosts` have new references.

    `refused` are requests that nobody was given, or that more than one partner would have answered, and why; they are
    among the unrouted. `reference_counts` says how many references each message got, in the order of the
    publications, `held` how many of them wait because their service is stopped. `reasons` say why nobody was given a
    message. `match_seconds` were spent on finding the subscriptions.
    """

    publications: int = 0
    received: int = 0
    published: int = 0
    unrouted: int = 0
    suspended: int = 0
    references: int = 0
    hosts: frozenset[int] = frozenset()
    refused: Mapping[MessageId, str] = field(default_factory=dict)
    reference_counts: Sequence[int] = field(default=(), compare=False)
    held: Sequence[int] = field(default=(), compare=False)
    reasons: Mapping[UUID, str] = field(default_factory=dict, compare=False)
    match_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class ServerTime:
    """What the clock of PostgreSQL said, and our monotonic clock when we heard it."""

    said: datetime
    heard: float

    def now(self) -> datetime:
        """The time by the clock of PostgreSQL, or a little earlier, however wrong the clock of this machine is."""
        return self.said + timedelta(seconds=time.monotonic() - self.heard)


class Reference(Struct, frozen=True):  # made for every delivery: a dataclass takes five times as long
    """A claim on one message for one service. `attempt` counts the attempts before this one.

    `subqueue` is not 0 where it is one of an ordered service, or only for this host instance. `instance` is the running
    instance it is for, if its subscription is one of an instance. `claim` tells this claim from those before and after.
    `deaths` are those of processes that had it in hand: the first in any way, the others while they delivered it.
    `claimed_at` is the time of the claim, `host_id` the host at which it was made.
    Where it is `undeliverable` the message is no longer stored or cannot be read, and here it is empty: it is to be
    suspended for that reason.
    """

    sequence: int
    service_id: int
    attempt: int
    message: Message
    claimed_at: ServerTime
    subqueue: int = 0
    instance: UUID | None = None
    subscription_id: int = 0
    claim: int = 0
    deaths: int = 0
    undeliverable: TerminalError | None = None
    host_id: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One suspended delivery: the host at which it is, and its number there."""

    host_id: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SuspendedMessage:
    """A delivery, or a message without one, that waits for somebody to look at it.

    `promoted` is what filters can see, None if it cannot be read. `stored`: the message is there. `instance` is the
    running instance it is for.
    """

    id: MessageId
    kind: str
    code: str
    reason: str
    source_file: str | None
    receive_location: str | None
    port: str | None
    type: str | None
    bytes: int
    suspended_at: datetime | None
    host_id: int
    sequence: int
    nearest_misses: Sequence[Mapping[str, Any]] | None = None
    attempt: int = 0
    application: str | None = None
    instance: UUID | None = None
    promoted: Mapping[str, Value] | None = field(default=None, repr=False)
    stored: bool = True

    @property
    def delivery(self) -> Delivery:
        return Delivery(self.host_id, self.sequence)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the MessageBox holds now, and what has gone through it.

    `instances` are those of orchestrations. They are counted among the waiting, or among the suspended, too.
    """

    unread: int = 0
    ready: int = 0
    claimed: int = 0
    waiting: int = 0
    suspended: int = 0
    unrouted: int = 0
    instances: int = 0
    received: int = 0
    published: int = 0
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def delivered(self) -> int:
        return sum(self.ports.values())

    def since(self, begin: Statistics) -> Statistics:
        """The same, with what went through it counted from there on."""
        ports = {name: count - begin.ports.get(name, 0) for name, count in self.ports.items()}
        received, published = self.received - begin.received, self.published - begin.published
        return replace(self, received=received, published=published, ports=ports)
