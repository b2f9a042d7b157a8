"""Matches by compiled filters: record batches are encoded straight from their Arrow buffers, in compiled loops."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crossdock.message.property import PropertyType, Value
from crossdock.subscription.index import kernels
from crossdock.subscription.index.build import CompiledFilters
from crossdock.subscription.index.codes import ABSENT, NOT_COMPARABLE, Constants, Int32s, encoded, float_keys
from crossdock.subscription.index.encode import as_type, number_parts
from crossdock.subscription.match import fold

Pairs = tuple[Int32s, Int32s]

_CHUNK, _SMALL_CHUNK = 262_144, 2_048
_NO_BITS = np.empty((1, 0), np.int64)
_TEXT, _INTEGER = PropertyType.TEXT, PropertyType.INTEGER  # faster to reach than through the class
_ALL_VALID = np.frombuffer(b"", np.uint8)


class CompiledMatcher:
    """Holds the arrays in the shapes the kernels take."""

    def __init__(self, filters: CompiledFilters, *, chunk: int = _CHUNK) -> None:
        layout = filters.layout
        self.filters = filters
        self.schemas = frozen(
            np.stack(
                [layout.column_a, layout.column_b, layout.order_property, layout.direction, layout.first_cell,
                 layout.b_buckets], axis=1).astype(np.int64)
        )  # fmt: skip
        self.arrays = (
            self.schemas, layout.cell_row, layout.row_word, layout.words, layout.first_clause, layout.clause_word,
            layout.set_start, layout.set_codes, layout.masks,
        )  # fmt: skip
        self.pool = tuple(getattr(filters.pool, field.name) for field in fields(filters.pool))
        largest_cell = int(np.diff(layout.cell_row).max(initial=0))
        self.chunk, self.small_chunk = max(chunk, largest_cell), max(_SMALL_CHUNK, largest_cell)
        self.numbers = {name: number for number, name in enumerate(filters.names)}
        self.types = [known.type for known in filters.constants]
        self.bits = {int(number): place for place, number in enumerate(layout.bit_property)}

    def match(self, batch: pa.RecordBatch) -> Iterator[Pairs]:
        """Pairs of message position and position of the subscription, each once, in no particular order."""
        if not len(self.schemas) or not batch.num_rows:
            return
        by_property, raw = self.encode(batch)
        yield from self.match_codes(by_property, raw, min(self.chunk, self.small_chunk + 64 * batch.num_rows))

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """Positions of the subscriptions of one message, in no particular order."""
        if not len(self.schemas):
            return []
        codes, raw = self._encode_message(promoted)
        return [position for _, found in self.match_codes(codes, raw, self.small_chunk) for position in found.tolist()]

    def _encode_message(self, promoted: Mapping[str, Value]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        count, text, types, numbers_of = len(self.types), bytearray(), self.types, self.numbers
        given = array("q", bytes(24 * count))  # by property its state, then two numbers, see `encode_message`
        for name, value in promoted.items():
            number = numbers_of.get(name)
            if number is None or value is None:
                continue
            type_ = types[number]
            if type_ is _TEXT:
                given[count + number] = len(text)
                given[number] = 2 if value.isascii() else 3  # type: ignore[union-attr]
                text += value.encode() if value.isascii() else self._folded(value)  # type: ignore[union-attr, arg-type]
                given[2 * count + number] = len(text)
            elif type_ is _INTEGER:
                given[number], given[count + number] = 2, value  # type: ignore[assignment]
            else:
                given[number], given[count + number], given[2 * count + number] = number_parts(type_, value)
        numbers = np.frombuffer(given, np.int64).reshape(3, count)
        codes = np.empty((count, 1), np.uint32)
        texts, lower = np.frombuffer(text or b"\0", np.uint8), not self.filters.case_sensitive
        kernels.encode_message(numbers, texts, lower, *self.pool, _ALL_VALID, codes)
        return codes, numbers[1:2, self.filters.layout.bit_property] if self.bits else _NO_BITS

    def _folded(self, value: str) -> bytes:
        return encoded(fold(value, case_sensitive=self.filters.case_sensitive))

    def match_codes(
        self, by_property: npt.NDArray[np.uint32], raw: npt.NDArray[np.int64], chunk: int
    ) -> Iterator[Pairs]:
        layout = self.filters.layout
        buckets = np.empty((max(1, len(layout.columns)), by_property.shape[1]), np.uint32)
        kernels.fill_buckets(by_property, layout.columns, layout.column_start, layout.range_bucket, buckets)
        codes = np.ascontiguousarray(by_property.T).ravel()
        resume = np.zeros(2, np.int64)
        while resume[0] < len(self.schemas):
            messages, subscriptions = np.empty(chunk, np.int32), np.empty(chunk, np.int32)
            found = kernels.match_messages(
                *self.arrays, by_property, codes, buckets, raw.ravel(), len(self.bits), resume, messages, subscriptions
            )
            if found:
                yield messages[:found], subscriptions[:found]

    def encode(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Codes by property and message, and raw integers by message for those that bits are asked of."""
        names, constants = self.filters.names, self.filters.constants
        codes = np.zeros((len(names), batch.num_rows), np.uint32)
        raw = np.zeros((batch.num_rows, len(self.bits)), np.int64)
        positions = {name: position for position, name in enumerate(batch.schema.names)}
        for number, name in enumerate(names):
            if name in positions:
                column = as_type(batch.column(positions[name]), constants[number].type)
                self._encode_column(constants[number], column, codes[number])
                if number in self.bits:
                    raw[:, self.bits[number]] = column.fill_null(0).to_numpy()
        return codes, raw

    def _encode_column(self, known: Constants, column: pa.Array, codes: npt.NDArray[np.uint32]) -> None:
        validity = _buffer(column, 0, np.uint8) if column.null_count else _ALL_VALID
        window = slice(column.offset, column.offset + len(column))
        if known.type is PropertyType.TEXT:
            self._encode_texts(known, column, codes)
        elif known.type is PropertyType.DECIMAL:
            halves = _buffer(column, 1, np.int64)[2 * window.start : 2 * window.stop]
            kernels.encode_decimals(
                halves, validity, column.offset, known.high, known.low, known.table, known.shift, codes
            )
        elif known.type is PropertyType.FLOAT:
            self._encode_floats(known, column, _buffer(column, 1, np.float64)[window], codes)
        else:
            if known.type is PropertyType.BOOLEAN:
                values = frozen(column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64))
            else:
                values = _buffer(column, 1, np.int64)[window]
            kernels.encode_numbers(values, validity, column.offset, known.keys, known.table, known.shift, codes)

    def _encode_floats(
        self, known: Constants, column: pa.Array, values: npt.NDArray[np.float64], codes: npt.NDArray[np.uint32]
    ) -> None:
        validity = _buffer(column, 0, np.uint8) if column.null_count else _ALL_VALID
        keys = frozen(float_keys(values))
        kernels.encode_numbers(keys, validity, column.offset, known.keys, known.table, known.shift, codes)
        codes[np.isnan(values) & (codes != ABSENT)] = NOT_COMPARABLE

    def _encode_texts(self, known: Constants, column: pa.Array, codes: npt.NDArray[np.uint32]) -> None:
        if pa.types.is_dictionary(column.type):
            distinct = np.zeros(len(column.dictionary) + 1, np.uint32)
            self._encode_texts(known, column.dictionary, distinct[:-1])
            codes[:] = distinct[column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)]
            return
        foreign = np.empty(len(column), np.int64)
        validity = _buffer(column, 0, np.uint8) if column.null_count else _ALL_VALID
        positions = _buffer(column, 1, np.int32)[column.offset : column.offset + len(column) + 1]
        if not len(column):
            return
        count = kernels.encode_texts(
            positions, _buffer(column, 2, np.uint8), validity, column.offset, not self.filters.case_sensitive,
            known.ordered, known.offsets, known.data, known.table, known.entries, codes, foreign,
        )  # fmt: skip
        if count:
            self._encode_foreign(known, column, foreign[:count], codes)

    def _encode_foreign(
        self, known: Constants, column: pa.Array, rows: npt.NDArray[np.int64], codes: npt.NDArray[np.uint32]
    ) -> None:
        """Texts beyond ASCII are folded by Python, each distinct one once."""
        foreign = column.take(pa.array(rows)).dictionary_encode()
        folded = [encoded(fold(text)) for text in foreign.dictionary.to_pylist()]
        ranks = self.text_codes(known, folded)
        codes[rows] = ranks[foreign.indices.to_numpy()]

    def text_codes(self, known: Constants, folded: Sequence[bytes]) -> npt.NDArray[np.uint32]:
        data = np.frombuffer(b"".join(folded) or b"\0", np.uint8)
        positions = frozen(np.concatenate(([0], np.cumsum([len(text) for text in folded]))).astype(np.int32))
        codes = np.empty(len(folded), np.uint32)
        kernels.encode_texts(
            positions, data, _ALL_VALID, 0, False, known.ordered, known.offsets, known.data, known.table,
            known.entries, codes, np.empty(0, np.int64),
        )  # fmt: skip
        return codes


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Read-only, as memory-mapped and Arrow arrays are: numba compiles once per kind of array."""
    array.flags.writeable = False
    return array


def _buffer(column: pa.Array, place: int, type_: Any) -> npt.NDArray[Any]:
    buffer = column.buffers()[place]
    if buffer is None or not buffer.size:
        return np.frombuffer(b"", type_)
    return np.frombuffer(buffer, type_, count=buffer.size // np.dtype(type_).itemsize)
