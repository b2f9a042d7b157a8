"""How each clause is found: by one or two cells of its most selective terms, in rows ordered by the bound of a third.

A schema is such a choice of columns. It is kept only where it saves more candidates per message than its probe costs;
probabilities come from the constants themselves, or from a sample of messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crossdock.subscription.index_codes import (
    ABSENT,
    CODE_MASK,
    INTERVAL,
    LOWEST,
    OUTSIDE,
    SET,
    Constants,
    Flags,
    Floats,
    Int64s,
    sorted_distinct,
    spans,
)
from crossdock.subscription.index_terms import Clauses, Terms

RANGE_BUCKETS = 64
NARROW_COPIES = 6  # a clause is written into at most so many cells with its terms, and beyond that by reference
WIDE_COPIES = 4096
NO_ORDER, ASCENDING, DESCENDING = range(3)

_WORTH = 0.4  # candidates per message: what probing one more schema costs
_SPACIOUS = 65_536  # cells that a schema may always have
_NEVER = 1e9
_COLUMN_BITS = 14


@dataclass(frozen=True, slots=True)
class Buckets:
    """Columns that cells are made of. Column 2p: the constant that property p equals; 2p + 1: its range bucket."""

    count: Int64s  # by column: buckets, with 0 for values that no clause asks for
    code_start: Int64s  # by property: where its codes begin in `of_code`
    of_code: npt.NDArray[np.uint8]
    cumulated: Floats  # by property and code: probability of all lower codes

    def probability(self, property_: Int64s, low: Int64s, high: Int64s) -> Floats:
        start = self.code_start[property_]
        return np.asarray(self.cumulated[start + high + 1] - self.cumulated[start + low])


@dataclass(frozen=True, slots=True)
class Access:
    """By clause: its terms used for cells and order (-1 for none), its schema and the columns of every schema."""

    first: Int64s
    second: Int64s
    order: Int64s
    schema: Int64s
    column_a: Int64s
    column_b: Int64s
    order_property: Int64s
    direction: Int64s


def build_buckets(constants: list[Constants], weights: list[Floats]) -> Buckets:
    """Range buckets of about equal probability."""
    sizes = np.array([known.top + 2 for known in constants], np.int64)
    cumulated = [np.concatenate(([0.0], np.cumsum(weight) / weight.sum())) for weight in weights]
    of_code = []
    for chances in cumulated:
        bucket = np.minimum(chances[:-1] * RANGE_BUCKETS, RANGE_BUCKETS - 1).astype(np.uint8) + 1
        bucket[:LOWEST] = 0
        of_code.append(np.append(bucket, np.uint8(0)))
    counts = np.array([size for known in constants for size in (known.count + 1, RANGE_BUCKETS + 1)], np.int64)
    starts = np.cumsum(sizes) - sizes
    return Buckets(
        counts, starts, np.concatenate([*of_code, np.empty(0, np.uint8)]), np.concatenate([*cumulated, [0.0]])
    )


def expected_weights(constants: list[Constants], clauses: Clauses) -> list[Floats]:
    """Without a sample: values are as common in messages as in filters, and thresholds are equally far apart."""
    terms = clauses.terms
    sizes = np.array([known.top + 1 for known in constants], np.int64)
    starts = np.cumsum(sizes) - sizes
    equal = is_equality(terms)
    uses = np.bincount(starts[terms.property[equal]] + terms.low[equal], minlength=int(sizes.sum()))
    ranged = (terms.kind == INTERVAL) & (terms.low >= LOWEST) & ~equal
    ranges = np.bincount(terms.property[ranged], minlength=len(constants))
    weights = []
    for start, size, has_ranges in zip(starts, sizes, ranges, strict=True):
        weight = uses[start : start + size].astype(np.float64)
        weight[LOWEST + 1 :: 2] += 1
        weight[LOWEST::2] = 1 if has_ranges else 0
        weight[LOWEST] += 1
        weight[ABSENT] = 0.3 * weight.sum()
        weights.append(weight)
    return weights


def sampled_weights(constants: list[Constants], codes: npt.NDArray[np.int32]) -> list[Floats]:
    """From the codes of sample messages, with a little for every code that the sample happens to miss."""
    weights = []
    for number, known in enumerate(constants):
        counts = np.bincount(codes[:, number], minlength=known.top + 1).astype(np.float64)
        weights.append(counts + len(codes) / 1000 / len(counts))
    return weights


def term_probabilities(clauses: Clauses, buckets: Buckets) -> Floats:
    """How often each term holds, roughly."""
    terms = clauses.terms
    chances = np.full(len(terms.clause), 0.5)
    between = (terms.kind == INTERVAL) | (terms.kind == OUTSIDE)
    inside = buckets.probability(terms.property[between], terms.low[between], terms.high[between])
    chances[between] = np.where(terms.kind[between] == INTERVAL, inside, 1 - inside)
    listed = np.flatnonzero(terms.kind == SET)
    lengths = np.diff(clauses.set_start)[terms.low[listed]]
    row, place = spans(lengths)
    code = clauses.set_codes[clauses.set_start[terms.low[listed]][row] + place]
    inside = np.bincount(row, buckets.probability(terms.property[listed][row], code, code), minlength=len(listed))
    chances[listed] = np.where(terms.high[listed] == 0, inside, 1 - inside)
    return np.clip(chances, 1e-9, 0.99)


def choose_access(clauses: Clauses, buckets: Buckets, chances: Floats) -> Access:
    """The cheapest schema for every clause, among schemas that pay."""
    count = len(clauses.subscription)
    atoms = _atoms(clauses, buckets, chances)
    first, second = _best_two(clauses.terms.clause, atoms, count)
    order, direction, order_chance = _best_order(clauses.terms, buckets, count, first)
    first, second = _without_overlap(atoms, first, second)
    options = _options(clauses.terms, atoms, first, second, order, direction, order_chance)
    chosen = _keep_what_pays(options, buckets)
    return _access(options, chosen, first, second, order)


@dataclass(frozen=True, slots=True)
class _Atoms:
    """By term: whether it can pick cells, which column, how many copies it takes, how often a message probes them."""

    column: Int64s
    copies: Int64s
    chance: Floats


def _atoms(clauses: Clauses, buckets: Buckets, chances: Floats) -> _Atoms:
    terms = clauses.terms
    equal = is_equality(terms)
    listed = (terms.kind == SET) & (terms.high == 0)
    ranged = (terms.kind == INTERVAL) & (terms.low >= LOWEST) & ~equal
    start = buckets.code_start[terms.property]
    low_bucket = buckets.of_code[np.where(ranged, start + terms.low, 0)].astype(np.int64)
    high_bucket = buckets.of_code[np.where(ranged, start + terms.high, 0)].astype(np.int64)
    copies = np.where(ranged, high_bucket - low_bucket + 1, 1)
    copies[listed] = np.diff(clauses.set_start)[terms.low[listed]]
    chance = np.where(ranged, np.maximum(chances, copies / RANGE_BUCKETS), chances)
    chance = np.where(listed & (copies > NARROW_COPIES), chances * 4, chance)
    usable = equal | (listed & (copies <= WIDE_COPIES)) | (ranged & (copies <= NARROW_COPIES))
    return _Atoms(2 * terms.property + ranged, copies, np.where(usable, chance, _NEVER))


def is_equality(terms: Terms) -> Flags:
    """One constant: odd codes are constants, even ones the gaps between them."""
    return (terms.kind == INTERVAL) & (terms.low == terms.high) & (terms.low > LOWEST) & (terms.low & 1 == 1)


def _best_two(clause: Int64s, atoms: _Atoms, count: int) -> tuple[Int64s, Int64s]:
    """The two most selective atoms of each clause; -1 where there is none."""
    usable = np.flatnonzero(atoms.chance < _NEVER)
    ranked = usable[np.lexsort((atoms.chance[usable], clause[usable]))]
    owner = clause[ranked]
    start = np.searchsorted(owner, np.arange(count + 1))
    best = np.full((2, count), -1, np.int64)
    for place in range(2):
        has = start[:-1] + place < start[1:]
        best[place, has] = ranked[start[:-1][has] + place]
    return best[0], best[1]


def _without_overlap(atoms: _Atoms, first: Int64s, second: Int64s) -> tuple[Int64s, Int64s]:
    """A second atom must be of another property, and both together must not take too many copies."""
    both = (first >= 0) & (second >= 0)
    copies = atoms.copies[first] * atoms.copies[second]
    other = atoms.column[first] >> 1 != atoms.column[second] >> 1
    return first, np.where(both & other & (copies <= NARROW_COPIES), second, -1)


def _best_order(terms: Terms, buckets: Buckets, count: int, first: Int64s) -> tuple[Int64s, Int64s, Floats]:
    """The interval whose lower or upper bound alone excludes most; rows of a cell are scanned up to that bound."""
    free = (terms.kind == INTERVAL) & (terms.low >= LOWEST) & ~is_equality(terms)
    free[first[first >= 0]] = False
    rows = np.flatnonzero(free)
    top = np.append(buckets.code_start[1:], len(buckets.of_code))[terms.property[rows]]
    top = top - buckets.code_start[terms.property[rows]] - 2
    above = buckets.probability(terms.property[rows], terms.low[rows], top)
    below = buckets.probability(terms.property[rows], np.full(len(rows), LOWEST), terms.high[rows])
    chance = np.minimum(above, below)
    ranked = np.lexsort((chance, terms.clause[rows]))
    owner = terms.clause[rows[ranked]]
    place = ranked[np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))] if len(rows) else ranked
    order, direction, best = np.full(count, -1, np.int64), np.zeros(count, np.int64), np.full(count, _NEVER)
    at = terms.clause[rows[place]]
    order[at], best[at] = rows[place], np.maximum(chance[place], 1e-9)
    direction[at] = np.where(above[place] <= below[place], ASCENDING, DESCENDING)
    return order, direction, best


@dataclass(frozen=True, slots=True)
class _Options:
    """Four ways to find each clause: first atom alone, with the second, with the order, with both."""

    key: list[Int64s]
    chance: list[Floats]
    cells: list[tuple[Int64s, Int64s]]  # the two columns, -1 for none


def _options(
    terms: Terms, atoms: _Atoms, first: Int64s, second: Int64s, order: Int64s, direction: Int64s, order_chance: Floats
) -> _Options:
    none = np.full(len(first), -1, np.int64)
    column_1 = np.where(first >= 0, atoms.column[first], -1) if len(atoms.column) else none
    column_2 = np.where(second >= 0, atoms.column[second], -1) if len(atoms.column) else none
    chance_1 = np.where(first >= 0, atoms.chance[first], 1.0) if len(atoms.column) else np.ones(0)
    chance_2 = np.where(second >= 0, atoms.chance[second], _NEVER) if len(atoms.column) else np.ones(0)
    wide = (first >= 0) & (atoms.copies[first] > NARROW_COPIES) if len(atoms.column) else np.zeros(0, np.bool_)
    chance_o = np.where(wide, _NEVER, order_chance)
    clash = np.where(order == second, _NEVER, 1.0)
    ordered = np.where(order >= 0, (terms.property[order] + 1) << 2 | direction, 0) if len(atoms.column) else none
    low, high = np.minimum(column_1, column_2), np.maximum(column_1, column_2)
    pair = ((high + 1) << _COLUMN_BITS | (low + 1)) << (_COLUMN_BITS + 2)
    single = (column_1 + 1) << (2 * _COLUMN_BITS + 2)
    return _Options(
        [single, pair, single | ordered, pair | ordered],
        [chance_1, chance_1 * chance_2, chance_1 * chance_o, chance_1 * chance_2 * chance_o * clash],
        [(column_1, none), (high, low), (column_1, none), (high, low)],
    )


def _keep_what_pays(options: _Options, buckets: Buckets) -> Int64s:
    """Let every clause take its best option, strike the schemas that save too little, and choose again."""
    count = len(options.key[0])
    chances = np.stack(options.chance) if count else np.empty((4, 0))
    for _ in range(4):
        chosen = np.argmin(np.minimum(chances, _NEVER), axis=0)
        key = np.choose(chosen, options.key) if count else np.empty(0, np.int64)
        known = sorted_distinct(key)
        number = np.searchsorted(known, key)
        saved = np.bincount(number, chances[0] - chances[chosen, np.arange(count)], minlength=len(known))
        clauses = np.bincount(number, minlength=len(known))
        poor = (saved < _WORTH) | (_cells(known, buckets) > np.maximum(_SPACIOUS, 4 * clauses))
        struck = (chosen > 0) & poor[number] if count else np.zeros(0, np.bool_)
        if not struck.any():
            break
        gone = sorted_distinct(key[struck])
        for option in range(1, 4):
            chances[option, np.isin(options.key[option], gone)] = _NEVER
    else:
        chosen = np.where(struck, 0, chosen)
    return chosen


def _cells(keys: Int64s, buckets: Buckets) -> Int64s:
    counts = np.append(1, buckets.count)
    mask = (1 << _COLUMN_BITS) - 1
    return counts[keys >> (2 * _COLUMN_BITS + 2)] * counts[(keys >> (_COLUMN_BITS + 2)) & mask]


def _access(options: _Options, chosen: Int64s, first: Int64s, second: Int64s, order: Int64s) -> Access:
    key = np.choose(chosen, options.key) if len(chosen) else np.empty(0, np.int64)
    known = sorted_distinct(key)
    mask = (1 << _COLUMN_BITS) - 1
    ordered = known & ((1 << (_COLUMN_BITS + 2)) - 1)
    return Access(
        first,
        np.where((chosen == 1) | (chosen == 3), second, -1),
        np.where(chosen >= 2, order, -1),
        np.searchsorted(known, key),
        (known >> (2 * _COLUMN_BITS + 2)) - 1,
        ((known >> (_COLUMN_BITS + 2)) & mask) - 1,
        (ordered >> 2) - 1,
        ordered & 3,
    )


def order_keys(terms: Terms, order: Int64s, direction: Int64s) -> Int64s:
    """Rows of a cell are sorted by this: a scan can stop at the first bound that the message misses."""
    if not len(terms.clause):
        return np.zeros(len(order), np.int64)
    key = np.where(direction == ASCENDING, terms.low[order], CODE_MASK - terms.high[order])
    return np.where(direction == NO_ORDER, 0, key)
