"""Values in the forms that are ranked: columns in the one Arrow type of their property, numbers as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossdock.message.property import PropertyType
from crossdock.subscription.index.codes import (
    Flags,
    Int64s,
    UInt64s,
    float_key,
    float_keys,
    halves_of_decimal,
    microseconds,
)

ARROW_TYPES: dict[PropertyType, Any] = {
    PropertyType.TEXT: pa.string(),
    PropertyType.INTEGER: pa.int64(),
    PropertyType.DECIMAL: pa.decimal128(38, 18),
    PropertyType.FLOAT: pa.float64(),
    PropertyType.BOOLEAN: pa.bool_(),
    PropertyType.DATETIME: pa.timestamp("us", tz="UTC"),
}


def number_parts(type_: PropertyType, value: Any) -> tuple[int, int, int]:
    """State and the two numbers that stand for a value that is not text: there or NaN, then the key or the halves."""
    if type_ is PropertyType.INTEGER or type_ is PropertyType.BOOLEAN:
        return 2, int(value), 0
    if type_ is PropertyType.DECIMAL:
        high, low = halves_of_decimal(value)
        return 2, high, low - (1 << 64) if low >> 63 else low
    if type_ is PropertyType.FLOAT:
        return (1, 0, 0) if value != value else (2, float_key(value), 0)
    return 2, microseconds(value), 0


def as_type(column: pa.Array, type_: PropertyType) -> pa.Array:
    """The column in the one form the encoders read; other widths and units are cast when nothing is lost."""
    if type_ is PropertyType.TEXT:
        return _as_text(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    wanted = ARROW_TYPES[type_]
    return column if column.type == wanted else pc.cast(column, wanted)


def _as_text(column: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())
    if column.dictionary.null_count or not pa.types.is_string(column.dictionary.type):
        return pc.cast(column.dictionary_decode(), pa.string())
    return column


def number_keys(column: pa.Array, type_: PropertyType) -> tuple[Int64s, Flags]:
    """Integers in the order of the values, and which values can be compared at all (NaN cannot)."""
    if type_ is PropertyType.FLOAT:
        values = column.fill_null(0.0).to_numpy()
        return float_keys(values), ~np.isnan(values)
    if type_ is PropertyType.BOOLEAN:
        keys = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        keys = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
    return keys, np.ones(len(keys), np.bool_)


def decimal_halves(column: pa.Array) -> tuple[Int64s, UInt64s]:
    """The two halves of the 128-bit integers under a decimal column."""
    pairs = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]
    return np.ascontiguousarray(pairs[:, 1]), np.ascontiguousarray(pairs[:, 0]).view(np.uint64)
