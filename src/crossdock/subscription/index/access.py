"""How each clause is found: by one or two cells of its most selective terms, in rows ordered by the bound of a third.

A schema is such a choice of columns. It is kept only where it saves more candidates per message than its probe costs;
probabilities come from the constants themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossdock.subscription.index.chances import RANGE_BUCKETS, Buckets, is_equality
from crossdock.subscription.index.codes import (
    CODE_MASK,
    INTERVAL,
    LOWEST,
    SET,
    Flags,
    Floats,
    Int64s,
    sorted_distinct,
    starts,
)
from crossdock.subscription.index.terms import Clauses, Terms

NARROW_COPIES = 6  # a clause is written into at most so many cells with its terms, and beyond that by reference
PAIR_COPIES = 12
WIDE_COPIES = 4096
NO_ORDER, ASCENDING, DESCENDING = range(3)

_WORTH = 1.5  # candidates per message: what probing one more schema costs
_SPACIOUS = 65_536  # cells that a schema may always have
_NEVER = np.inf
_COLUMN_BITS = 14


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


def choose_access(clauses: Clauses, buckets: Buckets, chances: Floats) -> Access:
    """The cheapest schema for every clause, among schemas that pay."""
    count = len(clauses.subscription)
    atoms = _atoms(clauses, buckets, chances)
    first, second = _best_two(clauses.terms.clause, atoms, count)
    orders = _orders(clauses.terms, buckets, first)
    order, direction, order_chance = _best_order(clauses.terms, orders, count)
    second = _without_overlap(atoms, first, second)
    options = _options(clauses.terms, atoms, first, second, order, direction, order_chance)
    chosen = _keep_what_pays(options, buckets)
    key = np.choose(chosen, options.key)
    second = np.where((chosen == 1) | (chosen == 3), second, -1)
    order = np.where(chosen >= 2, order, -1)
    _join_kept(clauses.terms, atoms, orders, first, second, order, key)
    return _access(key, first, second, order)


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


def _best_two(clause: Int64s, atoms: _Atoms, count: int) -> tuple[Int64s, Int64s]:
    """The two most selective atoms of each clause; -1 where there is none."""
    usable = np.flatnonzero(atoms.chance < _NEVER)
    ranked = usable[np.lexsort((atoms.chance[usable], clause[usable]))]
    owner = clause[ranked]
    start = starts(owner, count)
    best = np.full((2, count), -1, np.int64)
    for place in range(2):
        has = start[:-1] + place < start[1:]
        best[place, has] = ranked[start[:-1][has] + place]
    return best[0], best[1]


def _without_overlap(atoms: _Atoms, first: Int64s, second: Int64s) -> Int64s:
    """A second atom must be of another property, and both together must not take too many copies."""
    both = (first >= 0) & (second >= 0)
    return np.where(both & _fit(atoms, first, second), second, -1)


def _fit(atoms: _Atoms, first: Int64s, second: Int64s) -> Flags:
    other = atoms.column[first] >> 1 != atoms.column[second] >> 1
    return np.asarray(other & (atoms.copies[first] * atoms.copies[second] <= PAIR_COPIES))


@dataclass(frozen=True, slots=True)
class _Orders:
    """Terms that rows can be ordered by: how many messages lie above the lower bound, and below the upper one."""

    rows: Int64s
    above: Floats
    below: Floats


def _orders(terms: Terms, buckets: Buckets, first: Int64s) -> _Orders:
    free = (terms.kind == INTERVAL) & (terms.low >= LOWEST) & ~is_equality(terms)
    free[first[first >= 0]] = False
    rows = np.flatnonzero(free)
    top = np.append(buckets.code_start[1:], len(buckets.of_code))[terms.property[rows]]
    top = top - buckets.code_start[terms.property[rows]] - 2
    above = buckets.probability(terms.property[rows], terms.low[rows], top)
    below = buckets.probability(terms.property[rows], np.full(len(rows), LOWEST), terms.high[rows])
    return _Orders(rows, np.maximum(above, 1e-9), np.maximum(below, 1e-9))


def _best_order(terms: Terms, orders: _Orders, count: int) -> tuple[Int64s, Int64s, Floats]:
    """The interval whose lower or upper bound alone excludes most; rows of a cell are scanned up to that bound."""
    chance = np.minimum(orders.above, orders.below)
    owner, place = _best_of_clause(terms.clause[orders.rows], chance)
    order, direction, best = np.full(count, -1, np.int64), np.zeros(count, np.int64), np.full(count, _NEVER)
    order[owner], best[owner] = orders.rows[place], chance[place]
    direction[owner] = np.where(orders.above[place] <= orders.below[place], ASCENDING, DESCENDING)
    return order, direction, best


def _best_of_clause(clause: Int64s, chance: Floats) -> tuple[Int64s, Int64s]:
    """Each clause that occurs, and the place of its lowest chance."""
    ranked = np.lexsort((chance, clause))
    owner = clause[ranked]
    fresh = np.ones(len(owner), np.bool_)
    fresh[1:] = owner[1:] != owner[:-1]
    return owner[fresh], ranked[fresh]


@dataclass(frozen=True, slots=True)
class _Options:
    """Four ways to find each clause: first atom alone, with the second, with the order, with both."""

    key: list[Int64s]
    chance: list[Floats]


def _options(
    terms: Terms, atoms: _Atoms, first: Int64s, second: Int64s, order: Int64s, direction: Int64s, order_chance: Floats
) -> _Options:
    column_1 = np.where(first >= 0, atoms.column[first], -1)
    column_2 = np.where(second >= 0, atoms.column[second], -1)
    chance_1 = np.where(first >= 0, atoms.chance[first], 1.0)
    chance_2 = np.where(second >= 0, atoms.chance[second], _NEVER)
    wide = (first >= 0) & (atoms.copies[first] > NARROW_COPIES)
    chance_o = np.where(wide, _NEVER, order_chance)
    clash = np.where(order == second, _NEVER, 1.0)
    ordered = np.where(order >= 0, _order_key(terms.property[order], direction), 0)
    low, high = np.minimum(column_1, column_2), np.maximum(column_1, column_2)
    single, pair = _single_key(column_1), _pair_key(high, low)
    return _Options(
        [single, pair, single | ordered, pair | ordered],
        [chance_1, chance_1 * chance_2, chance_1 * chance_o, chance_1 * chance_2 * chance_o * clash],
    )


def _keep_what_pays(options: _Options, buckets: Buckets) -> Int64s:
    """Let every clause take its best option, strike the schemas that save too little, and choose again."""
    count = len(options.key[0])
    chances = np.stack(options.chance)
    for _ in range(4):
        chosen = np.argmin(chances, axis=0)
        key = np.choose(chosen, options.key)
        known = sorted_distinct(key)
        number = np.searchsorted(known, key)
        saved = np.bincount(number, chances[0] - chances[chosen, np.arange(count)], minlength=len(known))
        clauses = np.bincount(number, minlength=len(known))
        poor = (saved < _WORTH) | (_cells(known, buckets) > np.maximum(_SPACIOUS, 4 * clauses))
        struck = (chosen > 0) & poor[number]
        if not struck.any():
            break
        gone = sorted_distinct(key[struck])
        for option in range(1, 4):
            chances[option, np.isin(options.key[option], gone)] = _NEVER
    else:
        chosen = np.where(struck, 0, chosen)
    return np.asarray(chosen)


def _join_kept(
    terms: Terms, atoms: _Atoms, orders: _Orders, first: Int64s, second: Int64s, order: Int64s, key: Int64s
) -> None:
    """Clauses left with one atom join a schema that others keep, if one of their other terms fits it."""
    lonely = (second < 0) & (order < 0) & (first >= 0)
    lonely[lonely] = atoms.copies[first[lonely]] <= NARROW_COPIES
    kept = sorted_distinct(key)
    ordered = orders.rows[lonely[terms.clause[orders.rows]]]
    chances = [side[lonely[terms.clause[orders.rows]]] for side in (orders.above, orders.below)]
    paired = np.flatnonzero(lonely[terms.clause] & (atoms.chance < _NEVER))
    paired = paired[_fit(atoms, first[terms.clause[paired]], paired)]
    term = np.concatenate((ordered, ordered, paired))
    clause = terms.clause[term]
    one, two = atoms.column[first[clause]], atoms.column[term]
    new_key = _pair_key(np.maximum(one, two), np.minimum(one, two))
    for place, direction in enumerate((ASCENDING, DESCENDING)):
        part = slice(place * len(ordered), (place + 1) * len(ordered))
        new_key[part] = _single_key(one[part]) | _order_key(terms.property[ordered], direction)
    at = np.searchsorted(kept, new_key)
    usable = np.flatnonzero((at < len(kept)) & (kept[np.minimum(at, len(kept) - 1)] == new_key) if len(kept) else at)
    owner, best = _best_of_clause(clause[usable], np.concatenate((*chances, atoms.chance[paired]))[usable])
    chosen = usable[best]
    key[owner] = new_key[chosen]
    by_order = chosen < 2 * len(ordered)
    order[owner[by_order]] = term[chosen[by_order]]
    second[owner[~by_order]] = term[chosen[~by_order]]


def _single_key(column: Int64s) -> Int64s:
    return (column + 1) << (2 * _COLUMN_BITS + 2)


def _pair_key(high: Int64s, low: Int64s) -> Int64s:
    return ((high + 1) << _COLUMN_BITS | (low + 1)) << (_COLUMN_BITS + 2)


def _order_key(property_: Int64s, direction: Int64s | int) -> Int64s:
    return (property_ + 1) << 2 | direction


def _cells(keys: Int64s, buckets: Buckets) -> Int64s:
    counts = np.append(1, buckets.count)
    mask = (1 << _COLUMN_BITS) - 1
    return np.asarray(counts[keys >> (2 * _COLUMN_BITS + 2)] * counts[(keys >> (_COLUMN_BITS + 2)) & mask])


def _access(key: Int64s, first: Int64s, second: Int64s, order: Int64s) -> Access:
    known = sorted_distinct(key)
    mask = (1 << _COLUMN_BITS) - 1
    ordered = known & ((1 << (_COLUMN_BITS + 2)) - 1)
    column_a = (known >> (2 * _COLUMN_BITS + 2)) - 1
    column_b = ((known >> (_COLUMN_BITS + 2)) & mask) - 1
    return Access(
        first, second, order, np.searchsorted(known, key), column_a, column_b, (ordered >> 2) - 1, ordered & 3
    )


def order_keys(terms: Terms, order: Int64s, direction: Int64s) -> Int64s:
    """Rows of a cell are sorted by this: a scan can stop at the first bound that the message misses."""
    key = np.where(direction == ASCENDING, terms.low[order], CODE_MASK - terms.high[order])
    return np.where(direction == NO_ORDER, 0, key)
