"""The constants of all properties laid end to end, so that one set of files and one compiled call can hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossdock.message.property import PropertyType
from crossdock.subscription.index.codes import Bytes, Constants, Int32s, Int64s, UInt64s

_TYPES = tuple(PropertyType)
_PARTS = ("keys", "high", "low", "offsets", "data", "table", "entries")


@dataclass(frozen=True, slots=True)
class Pool:
    """`starts[part, property]` is where a property begins in the array of that part, in the order of the fields."""

    facts: Int64s  # by property: type, number of constants, shift, whether order matters
    starts: Int64s
    keys: Int64s
    high: Int64s
    low: UInt64s
    offsets: Int64s
    data: Bytes
    table: Int32s
    entries: Int32s


def pool_of(constants: Sequence[Constants]) -> Pool:
    facts = [(_TYPES.index(each.type), each.count, each.shift, int(each.ordered)) for each in constants]
    columns, starts = [], []
    for part in _PARTS:
        arrays = [getattr(each, part) for each in constants]
        starts.append(np.concatenate(([0], np.cumsum([len(array) for array in arrays], dtype=np.int64))))
        empty = np.empty(0, _dtype(part))
        columns.append(np.concatenate([empty, *arrays]))
    return Pool(np.array(facts, np.int64).reshape(-1, 4), np.stack(starts).astype(np.int64), *columns)


def constants_of(pool: Pool) -> tuple[Constants, ...]:
    """The constants of each property, as views into the pool."""
    constants = []
    for number, (type_, count, shift, ordered) in enumerate(pool.facts.tolist()):
        parts = {
            part: getattr(pool, part)[pool.starts[place, number] : pool.starts[place, number + 1]]
            for place, part in enumerate(_PARTS)
        }
        constants.append(Constants(_TYPES[type_], count, shift=shift, ordered=bool(ordered), **parts))
    return tuple(constants)


def _dtype(part: str) -> Any:
    return {"low": np.uint64, "data": np.uint8, "table": np.int32, "entries": np.int32}.get(part, np.int64)
