"""The compiled arrays of an index, and how clauses are laid out in them.

A schema's cell leads to rows; a row is a header word (subscription, clause number, number of words) and then the words
of the terms that the cell does not already imply. Stored clauses hold all their terms once more: a later clause of a
subscription asks whether an earlier one matched already, and a clause in many cells is tested there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crossdock.subscription.index.access import NARROW_COPIES, Access, order_keys
from crossdock.subscription.index.chances import Buckets, is_equality
from crossdock.subscription.index.codes import (
    BITS,
    CODE_MASK,
    INTERVAL,
    KIND_SHIFT,
    LOW_SHIFT,
    OUTSIDE,
    PROPERTY_SHIFT,
    SET,
    Constants,
    Flags,
    Floats,
    Int32s,
    Int64s,
    UInt64s,
    spans,
    starts,
)
from crossdock.subscription.index.terms import Clauses, Terms

SUBSCRIPTION_SHIFT, ORDINAL_SHIFT, LENGTH_MASK = 32, 16, 0xFFFF
BY_REFERENCE = 1 << 31
ORDINAL_MASK = 0x7FFF


@dataclass(frozen=True, slots=True)
class Layout:
    """Every field is one array, and one file of a saved index."""

    ids: Int64s
    # schemas
    column_a: Int32s
    column_b: Int32s
    order_property: Int32s
    direction: Int32s
    first_cell: Int64s
    b_buckets: Int64s
    cell_row: Int32s  # rows of a cell: cell_row[cell] to cell_row[cell + 1]
    row_word: Int32s  # by row: its header in `words`
    words: UInt64s  # all rows, then all stored clauses
    # stored clauses
    first_clause: Int32s  # by subscription; -1 when none is stored
    clause_word: Int32s  # terms of a stored clause: words[clause_word[clause] : clause_word[clause + 1]]
    # what words point at
    set_start: Int64s
    set_codes: Int32s
    masks: Int64s
    bit_property: Int32s  # properties whose raw values are needed
    # bucket columns in use
    columns: Int32s  # by number used in column_a and column_b: 2 * property, plus 1 for range buckets
    column_start: Int64s  # range columns: where the codes begin in `range_bucket`
    range_bucket: npt.NDArray[np.uint8]


def lay_out(clauses: Clauses, constants: list[Constants], buckets: Buckets, chances: Floats, access: Access) -> Layout:
    terms, bit_property = clauses.terms, _bit_properties(clauses.terms)
    words = _packed(terms, bit_property)
    wide = _by_reference(clauses, access)
    cell, row_clause = _rows(clauses, buckets, access)
    first_cell, cells = _first_cells(buckets, access)
    order = np.lexsort((order_keys(terms, access.order, access.direction[access.schema])[row_clause], cell))
    cell, row_clause = cell[order], row_clause[order]
    start, residual = _residual_words(terms, words, chances, access, wide)
    ordinal, stored = _stored_clauses(clauses, wide)
    row_word, stream = _stream(clauses, row_clause, start, residual, ordinal, wide)
    clause_word, clause_words = _clause_words(terms, words, chances, stored)
    first_clause = np.full(len(clauses.ids), -1, np.int64)
    first = np.flatnonzero(stored & (ordinal == 0))
    first_clause[clauses.subscription[first]] = (np.cumsum(stored) - 1)[first]
    columns, column_a, column_b = _used_columns(access)
    column_start, range_bucket = _range_columns(columns, constants, buckets)
    return Layout(
        clauses.ids, _small(column_a), _small(column_b), _small(access.order_property), _small(access.direction),
        first_cell, np.append(1, buckets.count)[access.column_b + 1],
        _small(starts(cell, cells)), _small(row_word),
        np.concatenate((stream, clause_words)), _small(first_clause), _small(clause_word + len(stream)),
        clauses.set_start, _small(clauses.set_codes), clauses.masks, _small(bit_property),
        _small(columns), column_start, range_bucket,
    )  # fmt: skip


def _small(values: Int64s) -> Int32s:
    return values.astype(np.int32)


def _bit_properties(terms: Terms) -> Int64s:
    used = np.bincount(terms.property[terms.kind == BITS])
    return np.flatnonzero(used)


def _packed(terms: Terms, bit_property: Int64s) -> UInt64s:
    between = (terms.kind == INTERVAL) | (terms.kind == OUTSIDE)
    width = np.where(between, terms.high - terms.low, terms.high)
    by_bit = terms.kind == BITS
    width[by_bit] |= np.searchsorted(bit_property, terms.property[by_bit]) << 1
    word = terms.kind.astype(np.uint64) << np.uint64(KIND_SHIFT)
    word |= terms.property.astype(np.uint64) << np.uint64(PROPERTY_SHIFT)
    word |= terms.low.astype(np.uint64) << np.uint64(LOW_SHIFT)
    return word | (width.astype(np.uint64) & np.uint64(CODE_MASK))


def _by_reference(clauses: Clauses, access: Access) -> Flags:
    """Clauses found by a large IN: many cells lead to them, so their terms are kept once."""
    wide = np.zeros(len(access.first), np.bool_)
    has = access.first >= 0
    term = access.first[has]
    listed = clauses.terms.kind[term] == SET
    sizes = np.diff(clauses.set_start)
    wide[has] = listed & (sizes[np.where(listed, clauses.terms.low[term], 0)] > NARROW_COPIES) if len(sizes) else False
    return wide


def _first_cells(buckets: Buckets, access: Access) -> tuple[Int64s, int]:
    counts = np.append(1, buckets.count)
    sizes = counts[access.column_a + 1] * counts[access.column_b + 1]
    return np.cumsum(sizes) - sizes, int(sizes.sum())


def _rows(clauses: Clauses, buckets: Buckets, access: Access) -> tuple[Int64s, Int64s]:
    """The cells of every clause: all combinations of the buckets of its two atoms."""
    first_cell, _ = _first_cells(buckets, access)
    clause = np.arange(len(access.first))
    clause, one = _spread(clauses, buckets, access.first, clause)
    inner, two = _spread(clauses, buckets, access.second[clause], np.arange(len(clause)))
    clause, one = clause[inner], one[inner]
    term_column = _term_column(clauses.terms, access.first[clause])
    schema = access.schema[clause]
    swapped = (access.second[clause] >= 0) & (access.column_a[schema] != term_column)
    a, b = np.where(swapped, two, one), np.where(swapped, one, two)
    per_a = np.append(1, buckets.count)[access.column_b[schema] + 1]
    return first_cell[schema] + a * per_a + b, clause


def _term_column(terms: Terms, term: Int64s) -> Int64s:
    return np.where(term >= 0, 2 * terms.property[term] + ~_exact(terms, term), -1)


def _exact(terms: Terms, term: Int64s) -> Flags:
    """Whether the atom's column is the equality column, so that its cell implies the term."""
    return np.asarray(is_equality(terms.take(term)) | (terms.kind[term] == SET))


def _spread(clauses: Clauses, buckets: Buckets, term: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Each row once per bucket of its term: the row, and the bucket. Without a term, bucket 0."""
    terms = clauses.terms
    listed = (term >= 0) & (terms.kind[term] == SET)
    ranged = (term >= 0) & ~_exact(terms, term)
    start = buckets.code_start[terms.property[term]]
    low = buckets.of_code[np.where(ranged, start + terms.low[term], 0)].astype(np.int64)
    high = buckets.of_code[np.where(ranged, start + terms.high[term], 0)].astype(np.int64)
    copies = np.where(ranged, high - low + 1, 1)
    copies[listed] = np.diff(clauses.set_start)[terms.low[term[listed]]]
    row, place = spans(copies)
    bucket = np.where(ranged, low, np.where(term >= 0, (terms.low[term] - 1) >> 1, 0))[row] + place
    member = listed[row]
    codes = clauses.set_codes[clauses.set_start[terms.low[term[row[member]]]] + place[member]]
    bucket[member] = (codes - 1) >> 1
    return rows[row], bucket


def _residual_words(
    terms: Terms, words: UInt64s, chances: Floats, access: Access, wide: Flags
) -> tuple[Int64s, UInt64s]:
    """By clause the words still to be tested in its cell: the ordering term first, then the most selective."""
    rank = chances.copy()
    rank[access.order[access.order >= 0]] = -1
    kept = ~wide[terms.clause]
    for atom in (access.first, access.second):
        used = atom[atom >= 0]
        kept[used[_exact(terms, used)]] = False
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((rank[rows], terms.clause[rows]))]
    return starts(terms.clause[rows], len(access.first)), words[rows]


def _stored_clauses(clauses: Clauses, wide: Flags) -> tuple[Int64s, Flags]:
    """By clause: its number within its subscription, and whether all its terms are stored once more."""
    owner = clauses.subscription
    start = starts(owner, len(clauses.ids))
    several = np.diff(start) > 1
    several[owner[wide]] = True
    return np.arange(len(owner)) - start[owner], several[owner]


def _clause_words(terms: Terms, words: UInt64s, chances: Floats, stored: Flags) -> tuple[Int64s, UInt64s]:
    rows = np.flatnonzero(stored[terms.clause])
    rows = rows[np.lexsort((chances[rows], terms.clause[rows]))]
    number = (np.cumsum(stored) - 1)[terms.clause[rows]]
    return starts(number, int(stored.sum())), words[rows]


def _stream(
    clauses: Clauses, row_clause: Int64s, start: Int64s, residual: UInt64s, ordinal: Int64s, wide: Flags
) -> tuple[Int64s, UInt64s]:
    lengths = np.diff(start)[row_clause]
    row, place = spans(lengths)
    row_word = np.cumsum(lengths + 1) - (lengths + 1)
    stream = np.empty(len(row) + len(row_clause), np.uint64)
    header = clauses.subscription[row_clause].astype(np.uint64) << np.uint64(SUBSCRIPTION_SHIFT)
    header |= (ordinal[row_clause] << ORDINAL_SHIFT | lengths | np.where(wide[row_clause], BY_REFERENCE, 0)).astype(
        np.uint64
    )
    stream[row_word] = header
    stream[row_word[row] + 1 + place] = residual[start[row_clause[row]] + place]
    return row_word, stream


def _used_columns(access: Access) -> tuple[Int64s, Int64s, Int64s]:
    """Columns renumbered to those in use; -1 stays none."""
    used = np.flatnonzero(np.bincount(np.concatenate((access.column_a, access.column_b)) + 1))
    used = used[used > 0] - 1
    number = np.full(int(used.max(initial=-1)) + 2, -1, np.int64)
    number[used] = np.arange(len(used))
    return used, number[access.column_a], number[access.column_b]


def _range_columns(
    columns: Int64s, constants: list[Constants], buckets: Buckets
) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    parts, starts, size = [np.empty(0, np.uint8)], [], 0
    for column in columns.tolist():
        starts.append(size)
        if column & 1:
            begin = int(buckets.code_start[column >> 1])
            parts.append(buckets.of_code[begin : begin + constants[column >> 1].top + 1])
            size += len(parts[-1])
    return np.array(starts, np.int64), np.concatenate(parts)
