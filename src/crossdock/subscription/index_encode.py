"""Messages into codes with numpy and Arrow alone: a batch becomes one matrix of rank codes, a row per message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crossdock.message.property import PropertyType, Value
from crossdock.subscription.index_codes import (
    ABSENT,
    NOT_COMPARABLE,
    Constants,
    Flags,
    Int32s,
    Int64s,
    UInt64s,
    decimal_ranks,
    encoded,
    float_key,
    float_keys,
    halves_of_decimal,
    microseconds,
    number_ranks,
    text_ranks,
)
from crossdock.subscription.match import fold

ARROW_TYPES: dict[PropertyType, Any] = {
    PropertyType.TEXT: pa.string(),
    PropertyType.INTEGER: pa.int64(),
    PropertyType.DECIMAL: pa.decimal128(38, 18),
    PropertyType.FLOAT: pa.float64(),
    PropertyType.BOOLEAN: pa.bool_(),
    PropertyType.DATETIME: pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """`codes[message, property]`, and `raw[message, number]` for the integers that bits are asked of."""

    codes: npt.NDArray[np.int32]
    raw: npt.NDArray[np.int64]


class NumpyEncoder:
    """Knows the constants of every property; keeps the sorted texts once a text column was met."""

    def __init__(self, names: Sequence[str], constants: Sequence[Constants], *, case_sensitive: bool) -> None:
        self.names = tuple(names)
        self.constants = tuple(constants)
        self.case_sensitive = case_sensitive
        self._texts: dict[int, list[bytes]] = {}

    def encode(self, batch: pa.RecordBatch, bit_property: Sequence[int]) -> EncodedBatch:
        codes = np.zeros((batch.num_rows, len(self.names)), np.int32)
        raw = np.zeros((batch.num_rows, len(bit_property)), np.int64)
        positions = {name: position for position, name in enumerate(batch.schema.names)}
        for number, name in enumerate(self.names):
            if name in positions:
                column = as_type(batch.column(positions[name]), self.constants[number].type)
                codes[:, number] = self.column_codes(number, column)
                if number in bit_property:
                    raw[:, list(bit_property).index(number)] = column.fill_null(0).to_numpy()
        return EncodedBatch(codes, raw)

    def encode_one(self, promoted: Mapping[str, Value], bit_property: Sequence[int]) -> EncodedBatch:
        codes = np.zeros((1, len(self.names)), np.int32)
        raw = np.zeros((1, len(bit_property)), np.int64)
        for number, name in enumerate(self.names):
            value = promoted.get(name)
            if value is not None:
                codes[0, number] = self._code(number, value)
                if number in bit_property:
                    raw[0, list(bit_property).index(number)] = int(cast(int, value))
        return EncodedBatch(codes, raw)

    def _code(self, number: int, value: Value) -> int:
        known = self.constants[number]
        if known.type is PropertyType.TEXT:
            folded = encoded(fold(value, case_sensitive=self.case_sensitive))
            return int(text_ranks(self._known_texts(number), [folded])[0])
        state, first, second = number_parts(known.type, value)
        if state == NOT_COMPARABLE:
            return NOT_COMPARABLE
        key = np.array([first], np.int64)
        if known.type is PropertyType.DECIMAL:
            return int(decimal_ranks(known, key, np.array([second], np.int64).view(np.uint64))[0])
        return int(number_ranks(known, key)[0])

    def _known_texts(self, number: int) -> list[bytes]:
        if number not in self._texts:
            self._texts[number] = self.constants[number].texts()
        return self._texts[number]

    def column_codes(self, number: int, column: pa.Array) -> Int32s:
        known = self.constants[number]
        if known.type is PropertyType.TEXT:
            return self._text_codes(number, column)
        if known.type is PropertyType.DECIMAL:
            codes = decimal_ranks(known, *decimal_halves(column))
        else:
            keys, comparable = number_keys(column, known.type)
            codes = np.where(comparable, number_ranks(known, keys), np.int32(NOT_COMPARABLE))
        return np.where(present(column), codes, np.int32(ABSENT))

    def _text_codes(self, number: int, column: pa.Array) -> Int32s:
        """Each distinct text of the batch is folded and ranked once."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        texts = column.dictionary.to_pylist()
        folded = [encoded(fold(text, case_sensitive=self.case_sensitive)) for text in texts]
        ranks = np.append(text_ranks(self._known_texts(number), folded), np.int32(ABSENT))
        return cast(Int32s, ranks[column.indices.fill_null(len(folded)).to_numpy(zero_copy_only=False)])


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


def present(column: pa.Array) -> Flags:
    return cast(Flags, column.is_valid().to_numpy(zero_copy_only=False))


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
