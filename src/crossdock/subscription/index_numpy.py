"""The matching loops in numpy: the same arrays and the same answers as the compiled engine, where numba is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crossdock.message.property import Value
from crossdock.subscription.index_access import ASCENDING, NO_ORDER
from crossdock.subscription.index_build import CompiledFilters
from crossdock.subscription.index_codes import (
    ABSENT,
    BITS,
    CODE_MASK,
    KIND_SHIFT,
    LOW_SHIFT,
    LOWEST,
    OUTSIDE,
    PROPERTY_LIMIT,
    PROPERTY_SHIFT,
    SET,
    Flags,
    Int32s,
    Int64s,
    UInt64s,
    spans,
)
from crossdock.subscription.index_encode import EncodedBatch, NumpyEncoder
from crossdock.subscription.index_layout import (
    BY_REFERENCE,
    LENGTH_MASK,
    ORDINAL_MASK,
    ORDINAL_SHIFT,
    SUBSCRIPTION_SHIFT,
    Layout,
)

Pairs = tuple[Int32s, Int32s]


class NumpyEngine:
    """Finds candidates schema by schema and thins them out word by word, a bounded number at a time."""

    name = "numpy"

    def __init__(self, filters: CompiledFilters, *, chunk: int = 262_144) -> None:
        self.layout: Layout = filters.layout
        self.chunk = chunk
        self._encoder = NumpyEncoder(filters.names, filters.constants, case_sensitive=filters.case_sensitive)
        self._bits: list[int] = self.layout.bit_property.tolist()
        self._bounds: dict[int, Int64s] = {}

    def match(self, batch: pa.RecordBatch) -> Iterator[Pairs]:
        """Pairs of message position and position of the subscription, each once, in no particular order."""
        yield from self._match(self._encoder.encode(batch, self._bits))

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """Positions of the subscriptions of one message, in no particular order."""
        encoded = self._encoder.encode_one(promoted, self._bits)
        return [position for _, found in self._match(encoded) for position in found.tolist()]

    def _match(self, batch: EncodedBatch) -> Iterator[Pairs]:
        columns = [self._buckets(number, batch.codes) for number in range(len(self.layout.columns))]
        for schema in range(len(self.layout.column_a)):
            first, count = self._candidates(schema, batch.codes, columns)
            for messages, rows in self._expanded(first, count):
                pairs = self._holding(batch, messages, rows)
                if len(pairs[0]):
                    yield pairs

    def _buckets(self, number: int, codes: npt.NDArray[np.int32]) -> Int64s:
        column = int(self.layout.columns[number])
        code = codes[:, column >> 1].astype(np.int64)
        if column & 1:
            return np.asarray(self.layout.range_bucket[self.layout.column_start[number] + code], np.int64)
        return cast(Int64s, np.where(code & 1, (code - 1) >> 1, 0))

    def _candidates(self, schema: int, codes: npt.NDArray[np.int32], columns: list[Int64s]) -> tuple[Int64s, Int64s]:
        """By message: the first row to look at, and how many."""
        layout = self.layout
        cell = np.full(len(codes), layout.first_cell[schema], np.int64)
        a, b = int(layout.column_a[schema]), int(layout.column_b[schema])
        if a >= 0:
            cell += columns[a] * layout.b_buckets[schema]
        if b >= 0:
            cell += columns[b]
        first = layout.cell_row[cell].astype(np.int64)
        count = layout.cell_row[cell + 1] - first
        if layout.direction[schema] != NO_ORDER:
            self._cut(schema, codes, cell, first, count)
        return first, count

    def _cut(self, schema: int, codes: npt.NDArray[np.int32], cell: Int64s, first: Int64s, count: Int64s) -> None:
        """Only the rows of a cell whose ordering bound the message meets."""
        layout = self.layout
        hit = np.flatnonzero(count)
        code = codes[hit, layout.order_property[schema]].astype(np.int64)
        key = code if layout.direction[schema] == ASCENDING else CODE_MASK - code
        bounds = self._row_bounds(schema)
        begin = int(layout.cell_row[layout.first_cell[schema]])
        sought = (cell[hit] - layout.first_cell[schema]) * (CODE_MASK + 1) + key
        end = begin + np.searchsorted(bounds, sought, side="right")
        count[hit] = np.where(code < LOWEST, 0, end - first[hit])

    def _row_bounds(self, schema: int) -> Int64s:
        if schema not in self._bounds:
            layout = self.layout
            cells = np.append(layout.first_cell, len(layout.cell_row) - 1)[[schema, schema + 1]]
            starts = layout.cell_row[cells[0] : cells[1] + 1].astype(np.int64)
            word = layout.words[layout.row_word[starts[0] : starts[-1]] + 1]
            low = ((word >> np.uint64(LOW_SHIFT)) & np.uint64(CODE_MASK)).astype(np.int64)
            high = low + (word & np.uint64(CODE_MASK)).astype(np.int64)
            key = low if layout.direction[schema] == ASCENDING else CODE_MASK - high
            self._bounds[schema] = np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * (CODE_MASK + 1) + key
        return self._bounds[schema]

    def _expanded(self, first: Int64s, count: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
        """Candidates as message and row, at most about `chunk` at a time."""
        messages = np.flatnonzero(count)
        total = np.cumsum(count[messages])
        begin = 0
        while begin < len(messages):
            done = int(total[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(total, done + self.chunk, side="right")))
            part = messages[begin:end]
            row, place = spans(count[part])
            yield part[row], first[part][row] + place
            begin = end

    def _holding(self, batch: EncodedBatch, messages: Int64s, rows: Int64s) -> Pairs:
        layout = self.layout
        start = layout.row_word[rows].astype(np.int64)
        header = layout.words[start]
        length = (header & np.uint64(LENGTH_MASK)).astype(np.int64)
        kept = self._all_hold(batch, layout.words, start + 1, length, messages)
        messages, header = messages[kept], header[kept]
        subscription = (header >> np.uint64(SUBSCRIPTION_SHIFT)).astype(np.int64)
        ordinal = ((header >> np.uint64(ORDINAL_SHIFT)) & np.uint64(ORDINAL_MASK)).astype(np.int64)
        kept = self._referred_hold(batch, messages, subscription, ordinal, (header & np.uint64(BY_REFERENCE)) != 0)
        kept = kept[self._is_first(batch, messages[kept], subscription[kept], ordinal[kept])]
        return messages[kept].astype(np.int32), subscription[kept].astype(np.int32)

    def _referred_hold(
        self, batch: EncodedBatch, messages: Int64s, subscription: Int64s, ordinal: Int64s, referred: Flags
    ) -> Int64s:
        kept = np.ones(len(messages), np.bool_)
        at = np.flatnonzero(referred)
        if len(at):
            kept[at] = self._clauses_hold(batch, messages[at], self.layout.first_clause[subscription[at]] + ordinal[at])
        return np.flatnonzero(kept)

    def _is_first(self, batch: EncodedBatch, messages: Int64s, subscription: Int64s, ordinal: Int64s) -> Flags:
        """Whether no earlier clause of the subscription matches too, so that each pair is given once."""
        first = np.ones(len(messages), np.bool_)
        for earlier in range(int(ordinal.max(initial=0))):
            at = np.flatnonzero(first & (ordinal > earlier))
            first[at] = ~self._clauses_hold(batch, messages[at], self.layout.first_clause[subscription[at]] + earlier)
        return first

    def _clauses_hold(self, batch: EncodedBatch, messages: Int64s, clauses: npt.NDArray[np.signedinteger]) -> Flags:
        layout = self.layout
        start = layout.clause_word[clauses].astype(np.int64)
        holds = np.zeros(len(messages), np.bool_)
        holds[self._all_hold(batch, layout.words, start, layout.clause_word[clauses + 1] - start, messages)] = True
        return holds

    def _all_hold(self, batch: EncodedBatch, words: UInt64s, start: Int64s, length: Int64s, messages: Int64s) -> Int64s:
        """Positions at which all words hold."""
        alive = np.arange(len(messages))
        for place in range(int(length.max(initial=0))):
            tested = np.flatnonzero(length[alive] > place)
            at = alive[tested]
            fails = np.zeros(len(alive), np.bool_)
            fails[tested] = ~self._hold(batch, words[start[at] + place], messages[at])
            alive = alive[~fails]
        return alive

    def _hold(self, batch: EncodedBatch, word: UInt64s, messages: Int64s) -> Flags:
        kind = word >> np.uint64(KIND_SHIFT)
        property_ = ((word >> np.uint64(PROPERTY_SHIFT)) & np.uint64(PROPERTY_LIMIT - 1)).astype(np.int64)
        low = ((word >> np.uint64(LOW_SHIFT)) & np.uint64(CODE_MASK)).astype(np.int64)
        width = (word & np.uint64(CODE_MASK)).astype(np.int64)
        code = batch.codes[messages, property_].astype(np.int64)
        holds = (code >= low) & (code <= low + width)
        outside = kind == OUTSIDE
        holds[outside] = ~holds[outside] & (code[outside] >= LOWEST)
        for special, test in ((BITS, self._bits_hold), (SET, self._sets_hold)):
            at = np.flatnonzero(kind == special)
            if len(at):
                holds[at] = test(batch, low[at], width[at], code[at], messages[at])
        return holds

    def _bits_hold(self, batch: EncodedBatch, low: Int64s, width: Int64s, code: Int64s, messages: Int64s) -> Flags:
        common = batch.raw[messages, width >> 1] & self.layout.masks[low]
        return np.asarray((code != ABSENT) & ((common != 0) != (width & 1 == 1)))

    def _sets_hold(self, batch: EncodedBatch, low: Int64s, width: Int64s, code: Int64s, messages: Int64s) -> Flags:  # noqa: ARG002
        """Membership by binary search, all candidates in step."""
        layout = self.layout
        begin, end = layout.set_start[low], layout.set_start[low + 1]
        last = end - 1
        while (begin < last).any():
            middle = (begin + last) >> 1
            right = (layout.set_codes[middle] < code) & (begin < last)
            begin, last = np.where(right, middle + 1, begin), np.where(right, last, middle)
        found = layout.set_codes[begin] == code
        return np.asarray((code >= LOWEST) & (found != (width & 1 == 1)))
