"""What is recorded of an instance: for each step its time, what happened to the code, and what the code did.

Messages are kept by their ids, and commands by a digest, so a step takes a few dozen bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Literal
from uuid import UUID

from msgspec import DecodeError, Struct, msgpack

from crossdock.errors import HistoryError


class Activated(Struct, frozen=True, array_like=True, tag=1):
    """The first event: this message started the instance by the receive of this number, counted from 0.

    What the instance draws later comes of `secret`. It is random, so that who has seen one token of a request cannot
    tell the others.
    """

    message: UUID
    receive: int
    secret: bytes = b""


class Arrived(Struct, frozen=True, array_like=True, tag=2):
    """A message for the correlation set of this name, or the response to the request of this number."""

    message: UUID
    correlation: str | None = None
    request: int | None = None


class TimerFired(Struct, frozen=True, array_like=True, tag=3):
    """The time of a timer is over. A timer that the code no longer waits for is passed over."""

    number: int


class RequestFailed(Struct, frozen=True, array_like=True, tag=4):
    """The port gave up on the request of this number. The reason may quote a message that has these labels."""

    request: int
    reason: str
    labels: tuple[str, ...] = ()


class Raised(Struct, frozen=True, array_like=True):
    """An exception: its class as `module:name`, its arguments as a list in JSON, and its text."""

    kind: str
    arguments: bytes
    text: str


class AtomicDone(Struct, frozen=True, array_like=True, tag=5):
    """What came of an atomic function: its value in JSON, or its error, after which its work was rolled back."""

    number: int
    value: bytes = b"null"
    error: Raised | None = None


class Cancelled(Struct, frozen=True, array_like=True, tag=6):
    """Somebody cancelled the instance: its scopes compensate, and it ends."""


class Resumed(Struct, frozen=True, array_like=True, tag=7):
    """Somebody resumed the suspended instance."""


class Continued(Struct, frozen=True, array_like=True, tag=8):
    """The first event after `continue_with`: everything that the restarted function still needs.

    An argument is a JSON value, or a message by its id. `sets` are contexts as JSON; `inbox` has what nobody took yet.
    """

    arguments: list[ContinuedArgument]
    sets: dict[str, bytes]
    inbox: list[Arrived]
    labels: list[str]
    open_requests: list[UUID]
    patches: dict[str, bool]
    counters: dict[str, int]
    secret: bytes = b""

    @property
    def messages(self) -> list[UUID]:
        """What has to stay stored: nothing else of the time before is read again."""
        passed = [each.message for each in self.arguments if each.message is not None]
        return list(dict.fromkeys([*passed, *(each.message for each in self.inbox), *self.open_requests]))


class ContinuedArgument(Struct, frozen=True, array_like=True):
    """One argument of `continue_with`: a message that the instance was given, or a value in JSON."""

    value: bytes = b"null"
    message: UUID | None = None


Event = Activated | Arrived | TimerFired | RequestFailed | AtomicDone | Cancelled | Resumed | Continued

# `set`: a correlation set is initialized. `timer` and `wait`: what the code waits for. The others are verbs of Process.
Kind = Literal[
    "send", "request", "reply", "start", "set", "wait", "timer", "listen", "parallel", "atomic", "suspend", "patched",
    "continue_with", "end",
]  # fmt: skip


class CommandDigest(Struct, frozen=True, array_like=True):
    """Something the code did: two runs do the same if kind, name and digest are equal. `line` is for people."""

    kind: Kind
    name: str
    digest: bytes
    line: str

    def same_as(self, other: CommandDigest) -> bool:
        return (self.kind, self.name, self.digest) == (other.kind, other.name, other.digest)


class StepRecord(Struct, frozen=True, array_like=True):
    """One row of history. `at` is what `process.now()` gave in the step."""

    at: datetime
    events: list[Event]
    commands: list[CommandDigest]


_encode = msgpack.Encoder(uuid_format="bytes").encode
_decoder = msgpack.Decoder(StepRecord)


def encode_record(record: StepRecord) -> bytes:
    """A record as it is stored."""
    return _encode(record)


def decode_record(stored: bytes) -> StepRecord:
    """A stored record. Raises msgspec.DecodeError if it is none."""
    try:
        return _decoder.decode(stored)
    except UnicodeDecodeError as error:
        raise DecodeError(str(error)) from error


def messages_of(records: Iterable[StepRecord]) -> Iterator[UUID]:
    """The messages that an instance was given, or that it kept when it dropped its history."""
    for event in chain.from_iterable(record.events for record in records):
        match event:
            case Activated(message=message) | Arrived(message=message):
                yield message
            case Continued():
                yield from event.messages


def decode_history(stored: Sequence[bytes]) -> list[StepRecord]:
    """All records of an instance. Raises HistoryError with the number of the first that cannot be read."""
    records = []
    for number, each in enumerate(stored, start=1):
        try:
            records.append(decode_record(each))
        except DecodeError as error:
            raise HistoryError(
                f"The record of step {number} in the history of the instance cannot be read: {error}. "
                "Restore the record from a backup and resume the instance, or terminate the instance"
            ) from error
    return records
