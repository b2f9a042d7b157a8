"""What a source becomes: the ledger row it is known by, and the interchange of messages and failures read from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from crossdock.message.message import Message
from crossdock.message.property import Value


@dataclass(frozen=True, slots=True)
class IntakeItem:
    """A source in the intake ledger, still to be read; `attempts` may have ended the process that read it."""

    sequence: int
    location_id: int
    identity: bytes
    size: int
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Bytes that did not become a routable message, kept as they came, and why."""

    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The claimed reference in whose stead something is published; `delivered` if its partner got the message."""

    host_id: int
    instance: int
    sequence: int
    delivered: bool = True


@dataclass(frozen=True, slots=True)
class Awaited:
    """Somebody waits, in the memory of a host instance, for a response with these values."""

    id: UUID
    service_id: int
    host_id: int
    values: Mapping[str, Value]
    bound_to: int


@dataclass(frozen=True, slots=True)
class Interchange:
    """What one range of a source became. Published as a whole or not at all; (sequence, range_start) is its key.

    A source that is read whole is one range. The ranges of a large one begin where the one before ends; after the
    `last` all of it is published.

    Without a sequence there is no source in the ledger: it is published every time it is asked for. `replaces` names
    the suspended reference (host, sequence) whose place it takes; it is published if that is still there. `settles` is
    the same for a claimed one. With `awaits` it is a request: whoever waits for the response is subscribed with it. A
    `standard` one is not published at all if somebody is missing who wants one of its messages.
    """

    sequence: int | None
    location_id: int | None
    host_id: int
    messages: Sequence[Message]
    failures: tuple[Failure, ...] = ()
    range_start: int = 0
    range_end: int | None = None
    last: bool = True
    replaces: tuple[int, int] | None = None
    settles: Settled | None = None
    awaits: Awaited | None = None
    standard: bool = False
