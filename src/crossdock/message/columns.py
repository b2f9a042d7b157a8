"""The messages of one source as columns: what they have in common is kept once.

The bulk lane publishes tens of thousands a second; making an object of each would take longer than storing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload
from uuid import UUID

import numpy as np

from crossdock.message.context import Context
from crossdock.message.message import POSITION_LOW_BITS, POSITIONS, RANDOM_BITS, Message, MessageId, Part
from crossdock.message.property import Value

BODY = "body"
# By the name of a property what each of many messages has of it, or None.
Columns = Mapping[str, Sequence[Value | None]]


@dataclass(frozen=True, slots=True)
class MessageColumns(Sequence[Message]):
    """Messages with one part each. `ids` are 16 bytes each; `contexts` are as `Context.to_json` writes them.

    A column of `own` holds what each of them has of a promoted property, or None; the others are the same in all.
    """

    ids: bytes
    contexts: Sequence[bytes]
    bodies: Sequence[bytes]
    own: Columns
    shared: Mapping[str, Value]
    labels: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, position: int) -> Message: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Message]: ...
    def __getitem__(self, position: int | slice) -> Message | Sequence[Message]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        at = range(len(self))[position]
        id_ = MessageId(UUID(bytes=self.ids[16 * at : 16 * at + 16]))
        return Message(id_, Context.from_json(self.contexts[at]), (Part(BODY, self.bodies[at]),))

    def column(self, name: str) -> Sequence[Value | None]:
        """The promoted values of a property, None where there is none."""
        return self.own[name] if name in self.own else [self.shared.get(name)] * len(self)


def message_ids(bits: int, sequence: int, positions: Sequence[int]) -> bytes:
    """What `message_id` gives for each position, 16 bytes each."""
    position = np.asarray(positions, np.uint64)
    if len(position) and position.max() >= POSITIONS:
        raise OverflowError(f"an id cannot hold the position {position.max():,}")
    low = position & np.uint64((1 << POSITION_LOW_BITS) - 1)
    halves = np.empty((len(position), 2), ">u8")
    halves[:, 0] = np.uint64(sequence << 16 | 8 << 12) | position >> np.uint64(POSITION_LOW_BITS)
    halves[:, 1] = np.uint64(0b10 << 62 | bits) | low << np.uint64(RANDOM_BITS)
    return halves.tobytes()


def id_texts(ids: bytes) -> list[bytes]:
    """Ids as they are written, with their hyphens."""
    digits = np.frombuffer(ids.hex().encode(), np.uint8).reshape(-1, 32)
    written = np.full((len(digits), 36), ord("-"), np.uint8)
    for start, end, hyphens in ((0, 8, 0), (8, 12, 1), (12, 16, 2), (16, 20, 3), (20, 32, 4)):
        written[:, start + hyphens : end + hyphens] = digits[:, start:end]
    together = written.tobytes()
    return [together[start : start + 36] for start in range(0, len(together), 36)]
