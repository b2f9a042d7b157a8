"""A segment of the track: messages that were published together, packed into a few columns and compressed.

Ids, contexts and routes are copied as they are; nothing is done for each message. What is unusual about some messages
is kept as publishing wrote it, as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby, pairwise
from struct import Struct
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crossdock.message.property import TOKEN
from crossdock.subscription.router import Int64s

_LEVEL = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What a publisher wrote is JSON, but of any kind and depth.
UNREADABLE = (msgspec.DecodeError, RecursionError)
_SIZES = Struct("<IIIII")
# In a context as it is stored a name follows a brace or a comma, and only there: quotes in a value are escaped.
_TOKEN = TOKEN.encode()
_MEMBER = rb'(?<=[{,])"(%s)":("(?:[^"\\]|\\.)*"|\{[^{}]*\})'


class Origin(NamedTuple):
    """Where so many messages are from: a location or a service, and what was settled by publishing them."""

    messages: int
    location: int | None = None
    service: int | None = None
    instance: str | None = None
    settled: tuple[int, ...] = ()


class Transaction(NamedTuple):
    """In which transaction so many messages were published; `at` is in microseconds since 1970."""

    messages: int
    at: int
    number: int
    epoch: int
    first: int
    last: int


_Run = TypeVar("_Run", Origin, Transaction)


def runs(found: Iterable[_Run]) -> list[_Run]:
    """The same with those beside each other that are alike as one."""
    return [
        alike[0]._replace(messages=sum(each.messages for each in alike))
        for _, run in groupby(found, key=lambda each: each[1:])
        for alike in [list(run)]
    ]


def micros(at: datetime) -> int:
    """A time as a transaction has it."""
    return round((at - _EPOCH) / timedelta(microseconds=1))


def moment(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


class _Head(msgspec.Struct):
    origins: list[Origin]
    transactions: list[Transaction]
    exceptions: dict[str, list[dict[str, Any]]]
    rerouted: bool = False


_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(_Head).decode


@dataclass(slots=True)
class Segment:
    """Messages, and the routes of all as two columns, in order: position and subscription.

    `transactions` is empty where all are of the one that wrote the segment.
    """

    ids: bytes
    contexts: Sequence[bytes]
    positions: Int64s
    subscriptions: Int64s
    origins: Sequence[Origin] = ()
    exceptions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    transactions: Sequence[Transaction] = ()
    rerouted: bool = False

    def __len__(self) -> int:
        return len(self.ids) // 16

    def pack(self) -> bytes:
        head = _encode(_Head(list(self.origins), list(self.transactions), self.exceptions, self.rerouted))
        lengths = np.fromiter(map(len, self.contexts), "<u4", len(self.contexts)).tobytes()
        counts = np.bincount(self.positions, minlength=len(self)).astype("<u4").tobytes()
        routes = counts + self.subscriptions.astype("<i4").tobytes()
        sizes = _SIZES.pack(len(head), len(self.ids), len(lengths), len(routes), 0)
        return compress(b"".join([sizes, head, self.ids, lengths, routes, *self.contexts]))

    @classmethod
    def unpack(cls, packed: bytes) -> Segment:
        data = decompress(packed)
        places = list(accumulate(_SIZES.unpack_from(data)[:4], initial=_SIZES.size))
        head, ids, lengths, routes = (data[begin:end] for begin, end in pairwise(places))
        known, count = _decode(head), len(ids) // 16
        counts = np.frombuffer(routes, "<u4", count)
        return cls(
            ids,
            Contexts(data, places[-1], np.frombuffer(lengths, "<u4")),
            np.repeat(np.arange(count, dtype=np.int64), counts),
            np.frombuffer(routes, "<i4", offset=4 * count).astype(np.int64),
            known.origins,
            known.exceptions,
            known.transactions,
            known.rerouted,
        )

    def id(self, position: int) -> UUID:
        return UUID(bytes=self.ids[16 * position : 16 * position + 16])

    def find(self, ids: Iterable[UUID]) -> list[int]:
        """The positions of these messages, where they are here."""
        halves = np.frombuffer(self.ids, ">u8").reshape(-1, 2)
        found: set[int] = set()
        for id_ in ids:
            high, low = id_.int >> 64, id_.int & (1 << 64) - 1
            found.update(np.flatnonzero((halves[:, 0] == high) & (halves[:, 1] == low)).tolist())
        return sorted(found)

    def bounds(self) -> tuple[UUID, UUID]:
        """The lowest and the highest id."""
        halves = np.frombuffer(self.ids, ">u8").reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))
        return self.id(int(order[0])), self.id(int(order[-1]))


class Contexts(Sequence[bytes]):
    """Contexts that are cut out when they are asked for."""

    def __init__(self, data: bytes, begin: int, lengths: npt.NDArray[Any]) -> None:
        self._data = data
        self._ends = np.cumsum(lengths, dtype=np.int64) + begin
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        end = int(self._ends[position])
        return self._data[end - int(self._lengths[position]) : end]


def compress(data: bytes) -> bytes:
    """The size, which whoever reads it has to know, and the data."""
    packed: bytes = pa.Codec("zstd", compression_level=_LEVEL).compress(data, asbytes=True)
    return len(data).to_bytes(8) + packed


def decompress(packed: bytes) -> bytes:
    data: bytes = pa.Codec("zstd").decompress(packed[8:], int.from_bytes(packed[:8]), asbytes=True)
    return data


def pack_bodies(ids: bytes, bodies: Sequence[bytes]) -> bytes:
    lengths = np.fromiter(map(len, bodies), "<u8", len(bodies)).tobytes()
    return compress(b"".join([len(bodies).to_bytes(8), ids, lengths, *bodies]))


def unpack_bodies(packed: bytes) -> Iterator[tuple[UUID, bytes]]:
    data = decompress(packed)
    count = int.from_bytes(data[:8])
    ids, place = data[8 : 8 + 16 * count], 8 + 24 * count
    for number, length in enumerate(np.frombuffer(data, "<u8", count, offset=8 + 16 * count).tolist()):
        yield UUID(bytes=ids[16 * number : 16 * number + 16]), data[place : place + length]
        place += length


def take_personal(contexts: Sequence[bytes], names: Iterable[str]) -> tuple[list[bytes], list[list[tuple[str, bytes]]]]:
    """The contexts with a mark in the place of the values of these properties, and what each of them had, as JSON.

    Whoever knows the token of a request can answer it: that is kept apart as well.
    """
    apart = {name.encode() for name in names}
    if any(_TOKEN in context for context in contexts):
        apart.add(_TOKEN)
    if not apart:
        return list(contexts), []
    sought = re.compile(_MEMBER % b"|".join(map(re.escape, sorted(apart))))
    marked, taken = [], []
    for context in contexts:
        found = [(name.decode(), value) for name, value in sought.findall(context)]
        marked.append(sought.sub(rb'"\1":{"personal":""}', context) if found else context)
        taken.append(found)
    return marked, taken


def put_back(context: bytes, taken: Sequence[tuple[str, bytes]]) -> bytes:
    """A context with the values that were taken out of it."""
    for name, value in taken:
        mark = f'"{name}":{{"personal":""}}'.encode()
        context = context.replace(mark, f'"{name}":'.encode() + value, 1)
    return context
