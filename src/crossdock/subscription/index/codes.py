"""Rank codes: every value becomes its rank among the constants that filters mention, so that every comparison of every
type becomes one test of an interval of small integers.

0 is absent and 1 is NaN; with U constants, `3 + 2i` equals constant i and `2 + 2i` lies in the gap before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from itertools import pairwise
from struct import Struct
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crossdock.message.property import PropertyType

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
UInt64s = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

ABSENT = 0
NOT_COMPARABLE = 1
LOWEST = 2

# A term of a clause is one word: kind, property, then for intervals the lowest code and the width.
INTERVAL, OUTSIDE, BITS, SET = range(4)
KIND_SHIFT, PROPERTY_SHIFT, LOW_SHIFT = 62, 50, 25
PROPERTY_LIMIT = 1 << (KIND_SHIFT - PROPERTY_SHIFT)
CODE_LIMIT = 1 << LOW_SHIFT
CODE_MASK = CODE_LIMIT - 1

HASH_SEED, HASH_FACTOR = 0xCBF29CE484222325, 0x100000001B3
_SIGN = 1 << 63
_LOW_HALF = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FLOAT_OF_8_BYTES, _INTEGER_OF_8_BYTES = Struct("<d"), Struct("<q")
_EXACT = Context(prec=120)


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of one property, sorted and distinct; which fields are filled depends on the type."""

    type: PropertyType
    count: int
    keys: Int64s  # integer, float, boolean, datetime
    high: Int64s  # decimal: the unscaled value as 128 bits
    low: UInt64s
    offsets: Int64s  # text: folded, UTF-8
    data: Bytes
    table: Int32s  # numbers: first constant of an equally wide slice of the values; text: first entry of a hash bucket
    entries: Int32s  # text: constants by hash bucket
    shift: int  # numbers: the width of a slice is 2**shift; text: unused
    ordered: bool  # text: whether gaps matter, or only equality

    @property
    def top(self) -> int:
        """The highest code."""
        return LOWEST + 2 * self.count

    def magnitudes(self) -> Floats:
        """The constants as rough numbers; texts have none."""
        if self.type is PropertyType.DECIMAL:
            return self.high.astype(np.float64) * 2.0**64 + self.low.astype(np.float64)
        if self.type is PropertyType.FLOAT:
            return (self.keys ^ ((self.keys >> 63) & np.int64(_SIGN - 1))).view(np.float64)
        return self.keys.astype(np.float64)

    def texts(self) -> list[bytes]:
        data, ends = self.data.tobytes(), self.offsets.tolist()
        return [data[start:end] for start, end in pairwise(ends)]


def number_constants(type_: PropertyType, keys: Int64s) -> Constants:
    keys = sorted_distinct(keys)
    shift, table = _slices(keys)
    return _constants(type_, len(keys), keys=keys, table=table, shift=shift)


def decimal_constants(high: Int64s, low: UInt64s) -> Constants:
    order = sorted_distinct(wide_keys(high, low)).view(">u8").reshape(-1, 2)
    high = (order[:, 0].astype(np.uint64) ^ np.uint64(_SIGN)).view(np.int64)
    low = order[:, 1].astype(np.uint64)
    shift, table = _wide_slices(high, low)
    return _constants(PropertyType.DECIMAL, len(high), high=high, low=low, table=table, shift=shift)


def text_constants(texts: Iterable[bytes], *, ordered: bool) -> Constants:
    distinct = sorted(set(texts))
    data = np.frombuffer(b"".join(distinct), np.uint8)
    offsets = np.concatenate(([0], np.cumsum([len(text) for text in distinct], dtype=np.int64))).astype(np.int64)
    table, entries = _hash_buckets(offsets, data)
    return _constants(
        PropertyType.TEXT, len(distinct), offsets=offsets, data=data, table=table, entries=entries, ordered=ordered
    )


def number_ranks(constants: Constants, keys: Int64s) -> Int32s:
    """The code of each key."""
    return _ranks(constants.keys, keys)


def decimal_ranks(constants: Constants, high: Int64s, low: UInt64s) -> Int32s:
    return _ranks(wide_keys(constants.high, constants.low), wide_keys(high, low))


def text_ranks(known: Sequence[bytes], sought: Sequence[bytes]) -> Int32s:
    """The code of each folded text among the sorted `known` ones."""
    left = [bisect_left(known, text) for text in sought]
    hits = [at < len(known) and known[at] == text for at, text in zip(left, sought, strict=True)]
    return _codes(np.array(left, np.int64), np.array(hits, np.bool_))


def float_keys(values: Floats) -> Int64s:
    """Integers in the order of the floats; -0.0 is 0.0, and NaN must be set aside by the caller."""
    with np.errstate(invalid="ignore"):  # what lies under a null may be anything
        bits = (values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(_SIGN - 1))


def float_key(value: float) -> int:
    """The same for one float."""
    (bits,) = _INTEGER_OF_8_BYTES.unpack(_FLOAT_OF_8_BYTES.pack(value + 0.0))
    return int(bits ^ (_SIGN - 1)) if bits < 0 else int(bits)


def wide_keys(high: Int64s, low: UInt64s) -> npt.NDArray[np.bytes_]:
    """128-bit integers as 16 bytes that sort in their order."""
    halves = np.empty((len(high), 2), ">u8")
    halves[:, 0] = high.view(np.uint64) ^ np.uint64(_SIGN)
    halves[:, 1] = low
    return halves.view("S16").ravel()


def microseconds(value: datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND


def halves_of_decimal(value: Decimal | int) -> tuple[int, int]:
    """The unscaled value, 18 digits after the point, as the signed high and the unsigned low half of 128 bits."""
    unscaled = int(_EXACT.scaleb(Decimal(value), 18).to_integral_value(ROUND_FLOOR))
    return unscaled >> 64, unscaled & _LOW_HALF


def encoded(text: str) -> bytes:
    """UTF-8, whose order is the order of code points; half a surrogate pair keeps its place in it."""
    return text.encode("utf-8", "surrogatepass")


def sorted_distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What np.unique gives, many times faster for integers: it hashes, and a sort does not."""
    values = np.sort(values)
    keep = np.ones(len(values), np.bool_)
    keep[1:] = values[1:] != values[:-1]
    return values[keep]


def spans(lengths: Int64s) -> tuple[Int64s, Int64s]:
    """For ragged rows laid end to end: the row of each element, and its place within the row."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def starts(numbers: Int64s, count: int) -> Int64s:
    """For sorted numbers below `count`: where each begins, and the end."""
    return np.concatenate(([0], np.cumsum(np.bincount(numbers, minlength=count))))


def _ranks(known: npt.NDArray[Any], sought: npt.NDArray[Any]) -> Int32s:
    left = np.searchsorted(known, sought)
    if not len(known):
        return _codes(left, np.zeros(len(left), np.bool_))
    return _codes(left, np.asarray(known[np.minimum(left, len(known) - 1)] == sought))


def _codes(left: npt.NDArray[np.int64], equal: Flags) -> Int32s:
    return cast(Int32s, (LOWEST + 2 * left + equal).astype(np.int32))


def _constants(type_: PropertyType, count: int, **filled: Any) -> Constants:
    empty: dict[str, Any] = {
        "keys": np.empty(0, np.int64), "high": np.empty(0, np.int64), "low": np.empty(0, np.uint64),
        "offsets": np.zeros(1, np.int64), "data": np.empty(0, np.uint8), "table": np.zeros(2, np.int32),
        "entries": np.empty(0, np.int32), "shift": 0, "ordered": True,
    }  # fmt: skip
    return Constants(type_, count, **{**empty, **filled})


def _slices(keys: Int64s) -> tuple[int, Int32s]:
    if not len(keys):
        return 0, np.zeros(2, np.int32)
    distance = keys.view(np.uint64) - keys.view(np.uint64)[0]
    shift = max(0, int(distance[-1]).bit_length() - len(keys).bit_length())
    return shift, _first_of_slice((distance >> np.uint64(shift)).astype(np.int64))


def _wide_slices(high: Int64s, low: UInt64s) -> tuple[int, Int32s]:
    if not len(high):
        return 0, np.zeros(2, np.int32)
    values = [(int(upper) << 64) | int(lower) for upper, lower in zip(high, low, strict=True)]
    shift = max(0, (values[-1] - values[0]).bit_length() - len(values).bit_length())
    return shift, _first_of_slice(np.array([(value - values[0]) >> shift for value in values], np.int64))


def _first_of_slice(slices: Int64s) -> Int32s:
    return starts(slices, int(slices[-1]) + 1).astype(np.int32)


def _hash_buckets(offsets: Int64s, data: Bytes) -> tuple[Int32s, Int32s]:
    count = len(offsets) - 1
    buckets = 1 << max(0, (2 * count - 1).bit_length()) if count else 1
    at = (text_hashes(offsets, data) & np.uint64(buckets - 1)).astype(np.int64)
    entries = np.argsort(at, kind="stable")
    return starts(at, buckets).astype(np.int32), entries.astype(np.int32)


def text_hashes(offsets: Int64s, data: Bytes) -> UInt64s:
    """FNV-1a of each text, mixed once more so that its low bits can be used; the compiled loops do the same."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.full(len(lengths), HASH_SEED, np.uint64)
    alive = np.arange(len(lengths))
    for place in range(int(lengths.max(initial=0))):
        alive = alive[lengths[alive] > place]
        hashes[alive] = (hashes[alive] ^ data[starts[alive] + place]) * np.uint64(HASH_FACTOR)
    return hashes ^ (hashes >> np.uint64(32))
