"""Which promoted values occur in a segment of the track: a split-block Bloom filter over hashes of name and value.

Equal values have equal hashes, as `subscription/match.py` takes them for equal: text is folded, and numbers are hashed
by what they are. A block has 32 bytes, and one of them says whether a value may be there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crossdock.message.property import Value
from crossdock.subscription.index.codes import sorted_distinct
from crossdock.subscription.match import fold

Hashes = npt.NDArray[np.uint64]
# By the name of a property the values that it has.
Values = Mapping[str, Collection[Value]]

_BITS_PER_VALUE = 12
_BLOCK_BITS, _WORDS = 256, 8
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_END = "\x01"
_FACTOR = 0x9E3779B97F4A7C15  # odd, so that it can be taken back
_INVERSE = pow(_FACTOR, -1, 1 << 64)
_TEXTS_TOGETHER = 8_192  # to hash them takes forty times the memory of the texts


class Bits(NamedTuple):
    """Where a value is looked for: `place` is that of its block, in parts of 2**32, and `mask` has its bits."""

    place: int
    mask: str


def distinct(values: Sequence[Value | None]) -> Collection[Value]:
    """Each value once, but decimals as often as they come.

    A sender can choose half a million decimals that have one hash, and a set would compare every two of them.
    """
    found: set[Any]
    if Decimal in set(map(type, values)):
        found = {value for value in values if value is not None and not isinstance(value, Decimal)}
        return [*found, *(value for value in values if isinstance(value, Decimal))]
    found = set(values)
    found.discard(None)
    return found


def make_filter(values: Values, *, case_sensitive: bool) -> bytes:
    """The filter of these values."""
    found = [hashes(name, each, case_sensitive=case_sensitive) for name, each in values.items() if each]
    together = sorted_distinct(np.concatenate([np.empty(0, np.uint64), *found]))
    blocks = max(1, -(-len(together) * _BITS_PER_VALUE // _BLOCK_BITS))
    bits = np.zeros(blocks * _BLOCK_BITS, np.bool_)
    block = ((together >> np.uint64(32)) * np.uint64(blocks) >> np.uint64(32)).astype(np.int64)
    bits[(block * _BLOCK_BITS)[:, None] + _places(together)] = True
    return np.packbits(bits).tobytes()


def bits_of(name: str, value: Value, *, case_sensitive: bool) -> Bits:
    """Where any filter has this value, if it has it."""
    hash_ = hashes(name, [value], case_sensitive=case_sensitive)
    mask = np.zeros(_BLOCK_BITS, np.uint8)
    mask[_places(hash_)[0]] = 1
    return Bits(int(hash_[0] >> np.uint64(32)), "".join(map(str, mask.tolist())))


def may_hold(filter_: bytes, bits: Bits) -> bool:
    """Whether a filter has all these bits. PostgreSQL asks the same of many filters (`search_segments`)."""
    block = bits.place * (len(filter_) // 32) >> 32
    found = int.from_bytes(filter_[32 * block : 32 * block + 32])
    mask = int(bits.mask, 2)
    return found & mask == mask


def hashes(name: str, values: Collection[Value], *, case_sensitive: bool) -> Hashes:
    """Of each value that this property has."""
    kinds = set(map(type, values))
    texts: Collection[str] = [value for value in values if isinstance(value, str)] if str in kinds else ()
    others = values if str not in kinds else [value for value in values if not isinstance(value, str)]
    [salt] = _text_hashes([name])
    return _mixed(np.concatenate([_folded_hashes(texts, case_sensitive=case_sensitive), _number_hashes(others)]) ^ salt)


def _number_hashes(values: Collection[Value]) -> Hashes:
    """Python's hash of a number does not change from process to process; that of a time does."""
    if any(isinstance(value, datetime) for value in values):
        values = [value.timestamp() if isinstance(value, datetime) else value for value in values]
    return np.fromiter(map(hash, values), np.int64, len(values)).view(np.uint64)


def _folded_hashes(texts: Collection[str], *, case_sensitive: bool) -> Hashes:
    every = list(texts)
    cut = (every[start : start + _TEXTS_TOGETHER] for start in range(0, len(every), _TEXTS_TOGETHER))
    return np.concatenate(
        [np.empty(0, np.uint64), *(_some_folded(each, case_sensitive=case_sensitive) for each in cut)]
    )


def _some_folded(texts: Sequence[str], *, case_sensitive: bool) -> Hashes:
    together = _END.join(texts) + _END
    if together.isascii() and f" {_END}" not in together:  # then small letters and folding are the same
        data = (together if case_sensitive else together.lower()).encode()
        return _hashes(data, np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    return _text_hashes([fold(text, case_sensitive=case_sensitive) for text in texts])


def _text_hashes(texts: Iterable[str]) -> Hashes:
    encoded = [(text + _END).encode("utf-8", "surrogatepass") for text in texts]
    return _hashes(b"".join(encoded), np.fromiter(map(len, encoded), np.int64, len(encoded)))


def _hashes(data: bytes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """A polynomial in the bytes of each text, modulo 2**64, worked out for all texts at once.

    The sum over all bytes up to a place has every text multiplied by a power of the factor, which is then taken back.
    """
    ends = np.cumsum(lengths)
    terms = _powers(_FACTOR, len(data))
    terms *= np.frombuffer(data, np.uint8)
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(terms, out=sums[1:])
    starts = ends - lengths
    return _mixed((sums[ends] - sums[starts]) * _powers(_INVERSE, len(data) + 1)[starts])


def _powers(factor: int, count: int) -> Hashes:
    powers = np.full(count, factor, np.uint64)
    if count:
        powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """Every bit of the value changes half of the bits."""
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        values = (values ^ values >> np.uint64(shift)) * np.uint64(factor)
    return values ^ values >> np.uint64(33)


def _places(values: Hashes) -> npt.NDArray[np.int64]:
    """The eight bits of each value in its block, one in each word."""
    words = (values.astype(np.uint32)[:, None] * _SALTS) >> np.uint32(27)
    return words + np.arange(_WORDS) * 32
