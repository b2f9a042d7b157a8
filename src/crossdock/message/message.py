"""A message: an id, a context and parts, one of which is the body. It never changes once it is published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType
from uuid import UUID

from crossdock.message.context import Context

MessageId = NewType("MessageId", UUID)

_POSITION_LOW_BITS = 24
BOX_BITS = 38


@dataclass(frozen=True, slots=True)
class Part:
    """A named run of bytes."""

    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """What a subscriber gets. The first part is the body."""

    id: MessageId
    context: Context
    parts: tuple[Part, ...]

    @property
    def body(self) -> bytes:
        return self.parts[0].body


def message_id(box: int, sequence: int, position: int) -> MessageId:
    """The id of the message at `position` in the source with this ledger `sequence`, in the MessageBox `box`.

    A UUID of version 8: 48 bits of sequence, 36 of position, 38 of the box. It is the same however often the source is
    read again, ordered as the ledger is, and different in every MessageBox.
    """
    value = sequence << 80
    value |= 8 << 76
    value |= (position >> _POSITION_LOW_BITS) << 64
    value |= 0b10 << 62
    value |= (position & ((1 << _POSITION_LOW_BITS) - 1)) << BOX_BITS
    return MessageId(UUID(int=value | box))
