"""A message: an id, a context and parts, one of which is the body. It never changes once it is published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from secrets import randbits
from typing import Any, BinaryIO, NewType
from uuid import UUID

from msgspec import Struct

from crossdock.message.context import Context
from crossdock.message.document import parse_json, parse_xml
from crossdock.message.property import Value

MessageId = NewType("MessageId", UUID)

POSITIONS = 2**36
POSITION_LOW_BITS = 24
RANDOM_BITS = 38
_CHUNK_BYTES = 1024 * 1024


class Part(Struct, frozen=True):
    """A named run of bytes."""

    name: str
    body: bytes

    def chunks(self) -> Iterator[bytes]:
        yield self.body


class StreamedPart(Struct, frozen=True):
    """A part that is too large to hold; every call of `open` reads it from its beginning."""

    name: str
    open: Callable[[], BinaryIO]

    def chunks(self) -> Iterator[bytes]:
        """The content, 1 MB at a time."""
        with self.open() as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk


class Message(Struct, frozen=True):
    """What a subscriber gets. The first part is the body. Where a send pipeline has made it, `origin` is what from."""

    id: MessageId
    context: Context
    parts: tuple[Part | StreamedPart, ...]
    origin: Message | None = None

    @property
    def body(self) -> bytes:
        """The whole body; `parts[0].chunks()` does not hold a large one in memory."""
        return b"".join(self.parts[0].chunks())

    def part(self, name: str) -> bytes:
        """The whole content of the first part of this name; `parts` has all of them. Raises KeyError."""
        for part in self.parts:
            if part.name == name:
                return b"".join(part.chunks())
        raise KeyError(f"message {self.id} of type {self.type!r} has no part {name!r}")

    @property
    def type(self) -> str:
        """The message type; empty if the message has none."""
        return str(self.context.get("BTS.MessageType") or "")

    def json(self) -> Any:
        """The body as a value; a number with a point or an exponent is a Decimal. Raises DocumentError."""
        return parse_json(self.body)

    def xml(self) -> Any:
        """The body as an element tree (lxml). A document type declaration is refused. Raises DocumentError."""
        return parse_xml(self.body)

    def __getitem__(self, name: str) -> Value:
        """The value of a property, promoted or only written. A short name is a declared property, else `BTS.<name>`."""
        value = self.context.get(name)
        if value is None:
            value = self.context.get(f"BTS.{name}")
        if value is None:
            raise KeyError(f"message {self.id} of type {self.type!r} has no property {name!r}")
        return value

    def __contains__(self, name: str) -> bool:
        return self.context.get(name) is not None or self.context.get(f"BTS.{name}") is not None


def random_bits() -> int:
    """What tells ids apart that have the same sequence and position, drawn in this process.

    Not by the database: a copy of it may go on from the same state as the original, and nothing inside differs.
    """
    return randbits(RANDOM_BITS)


def message_id(bits: int, sequence: int, position: int) -> MessageId:
    """The id of the message at `position` in the source with this ledger `sequence` and these random bits.

    A UUID of version 8: 48 bits of sequence, 36 of position, 38 random ones. It is the same however often the source is
    read again, ordered as the ledger is, and different in every MessageBox and every copy of one.
    """
    if position >= POSITIONS:
        raise OverflowError(f"an id cannot hold the position {position:,}")
    value = sequence << 80
    value |= 8 << 76
    value |= (position >> POSITION_LOW_BITS) << 64
    value |= 0b10 << 62
    value |= (position & ((1 << POSITION_LOW_BITS) - 1)) << RANDOM_BITS
    return MessageId(UUID(int=value | bits))


def short_id(id_: UUID) -> str:
    """`SEQUENCE-POSITION`, as people write it. In one MessageBox only copies of a restored one have it twice."""
    sequence, position = places_of(id_)
    return f"{sequence}-{position}"


def places_of(id_: UUID) -> tuple[int, int]:
    """(sequence, position) of a message id."""
    low = (id_.int >> RANDOM_BITS) & ((1 << POSITION_LOW_BITS) - 1)
    return id_.int >> 80, (id_.int >> 64 & 0xFFF) << POSITION_LOW_BITS | low


def ids_at(sequence: int, position: int) -> tuple[MessageId, MessageId]:
    """The lowest and the highest id that a message at this place can have."""
    return message_id(0, sequence, position), message_id((1 << RANDOM_BITS) - 1, sequence, position)
