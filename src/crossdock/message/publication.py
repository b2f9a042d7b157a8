"""What is published together, why, and what that settles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from crossdock.errors import DocumentError
from crossdock.message.message import Message
from crossdock.message.property import Value


@dataclass(frozen=True, slots=True)
class Failure:
    """Bytes that did not become a routable message, kept as they came, and why, with the code of the error."""

    message: Message
    reason: str
    code: str = DocumentError.code


@dataclass(frozen=True, slots=True)
class FromSource:
    """A range of a source in the ledger. (sequence, start) is its key: it is published once, however often it is read.

    A source that is read whole is one range. The ranges of a large one begin where the one before ends; after the
    `last` all of it is published. The ledger row is the one with this sequence and these `random_bits`: after a restore
    another source may have the same number.
    """

    sequence: int
    location_id: int
    random_bits: int
    start: int = 0
    end: int | None = None
    last: bool = True


@dataclass(frozen=True, slots=True)
class InPlaceOf:
    """Takes the place of a suspended reference, if that is still there."""

    host_id: int
    sequence: int
    location_id: int


@dataclass(frozen=True, slots=True)
class Settles:
    """Settles a claimed reference, if that is still ours; `delivered` if its partner got the message."""

    host_id: int
    host_instance: int
    sequence: int
    delivered: bool = True


@dataclass(frozen=True, slots=True)
class Express:
    """Running code publishes it, every time that it is asked to. `location_id`: somebody pushed it to us there."""

    location_id: int | None = None


Cause = FromSource | InPlaceOf | Settles | Express


@dataclass(frozen=True, slots=True)
class Awaited:
    """A running instance of a service waits for messages with these values.

    `bound_to` is the host instance in whose memory it waits, if so: nobody else is given them. `name` is that of the
    correlation set, if it is one of an orchestration.
    """

    id: UUID
    service_id: int
    host_id: int
    values: Mapping[str, Value]
    bound_to: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """Messages that are published together or not at all, by a host, and what of their source failed.

    With `awaits` it is a request: whoever waits for the response is subscribed with it. `all_or_nothing`: it is not
    published if nobody wants one of its messages.

    For the track: the service whose delivery or code published it, the instance whose step it was, and the references
    that the same transaction settled.
    """

    host_id: int
    messages: Sequence[Message]
    failures: tuple[Failure, ...] = ()
    cause: Cause = Express()
    awaits: Awaited | None = None
    all_or_nothing: bool = False
    service_id: int | None = None
    instance: UUID | None = None
    settled: tuple[int, ...] = ()
