"""Predicate rows into terms: per clause (one group of one subscription) and property one test in code space.

Intervals on one property of a clause are intersected; clauses that can never hold are dropped here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from crossdock.errors import FilterError
from crossdock.message.property import PropertyType
from crossdock.subscription.index.codes import (
    ABSENT,
    BITS,
    CODE_LIMIT,
    INTERVAL,
    LOWEST,
    NOT_COMPARABLE,
    OUTSIDE,
    PROPERTY_LIMIT,
    SET,
    Constants,
    Flags,
    Int64s,
    decimal_constants,
    decimal_ranks,
    encoded,
    number_constants,
    number_ranks,
    sorted_distinct,
    text_constants,
    text_ranks,
)
from crossdock.subscription.index.rows import OPERATORS, PredicateRows, Values
from crossdock.subscription.match import fold, fold_prefix
from crossdock.subscription.predicate import Operator

_ORDERED = (
    Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL,
    Operator.PREFIX, Operator.NOT_PREFIX,
)  # fmt: skip
_SMALLEST_EXCLUDED_SET = 3


@dataclass(frozen=True, slots=True)
class Terms:
    """Tests by clause. `low` and `high` are codes; for BITS and SET the number of the mask or set, and its negation."""

    clause: Int64s
    property: Int64s
    kind: Int64s
    low: Int64s
    high: Int64s

    def take(self, rows: Int64s | Flags) -> Terms:
        return Terms(self.clause[rows], self.property[rows], self.kind[rows], self.low[rows], self.high[rows])


@dataclass(frozen=True, slots=True)
class Clauses:
    """Living clauses with at least one term each; their subscriptions, and sets and masks that terms point at."""

    subscription: Int64s  # by clause: position of its subscription in `ids`
    ids: Int64s
    terms: Terms
    set_start: Int64s
    set_codes: Int64s
    masks: Int64s


def compile_constants(rows: PredicateRows, *, case_sensitive: bool) -> tuple[list[Constants], Int64s, Int64s]:
    """The constants of every property, and per row the code of its constant and of the end of its prefix."""
    if len(rows.names) > PROPERTY_LIMIT:
        raise FilterError(f"filters use {len(rows.names)} properties, and {PROPERTY_LIMIT} is the most")
    code, prefix_end = np.zeros(len(rows.operator), np.int64), np.zeros(len(rows.operator), np.int64)
    by_bit, ordered = rows.is_operator(Operator.ANY_BIT, Operator.NO_BIT), rows.is_operator(*_ORDERED)
    prefixed = rows.is_operator(Operator.PREFIX, Operator.NOT_PREFIX)
    constants = []
    for type_, values in zip(rows.types, rows.values, strict=True):
        if type_ is PropertyType.TEXT:
            known = _text_codes(values, prefixed[values.rows], bool(ordered[values.rows].any()), case_sensitive,
                                code, prefix_end)  # fmt: skip
        elif type_ is PropertyType.DECIMAL:
            known = decimal_constants(values.keys, values.low)
            code[values.rows] = decimal_ranks(known, values.keys, values.low)
        else:
            compared = ~by_bit[values.rows]
            known = number_constants(type_, values.keys[compared])
            code[values.rows[compared]] = number_ranks(known, values.keys[compared])
        if known.top >= CODE_LIMIT:
            raise FilterError(f"filters use {known.count} different values of one property, which is too many")
        constants.append(known)
    return constants, code, prefix_end


def compile_clauses(rows: PredicateRows, constants: list[Constants], code: Int64s, prefix_end: Int64s) -> Clauses:
    """Clauses as terms: every operator turned into one of the four kinds."""
    ids, subscription = _positions(rows.subscription)
    place, clause = _distinct_numbers(subscription, rows.group)
    owner = subscription[place]
    sets, masks = _Sets(), cast(list[int], [])
    tops = np.array([known.top for known in constants], np.int64)
    terms = _merge(
        [
            _intersected(_interval_terms(rows, clause, code, prefix_end, tops)),
            *_excluded_terms(rows, clause, code, prefix_end, sets),
            _included_sets(rows, clause, code, sets),
            *_bit_terms(rows, clause, masks),
        ]
    )
    return _living(Clauses(owner, ids, terms, sets.starts(), sets.codes(), np.array(masks, np.int64)))


def _text_codes(
    values: Values, prefixed: Flags, ordered: bool, case_sensitive: bool, code: Int64s, prefix_end: Int64s
) -> Constants:
    """Fold each distinct text once; a prefix is the interval from itself to the next text that does not start so."""
    folded = [encoded(fold(text, case_sensitive=case_sensitive)) for text in values.texts]
    prefixes = [encoded(fold_prefix(text, case_sensitive=case_sensitive)) for text in values.texts]
    plain, used_as_prefix = set(values.keys[~prefixed].tolist()), set(values.keys[prefixed].tolist())
    starts = {prefixes[number] for number in used_as_prefix}
    known = text_constants(
        {folded[number] for number in plain} | starts | {_after_prefix(prefix) for prefix in starts if prefix},
        ordered=ordered,
    )
    sorted_texts = known.texts()
    rank_of = dict(zip(sorted_texts, text_ranks(sorted_texts, sorted_texts).tolist(), strict=True))
    ranks = np.array([rank_of.get(text, 0) for text in folded], np.int64)
    low = np.array([rank_of.get(text, 0) for text in prefixes], np.int64)
    end = np.array([rank_of.get(_after_prefix(text), known.top + 1) if text else known.top + 1 for text in prefixes],
                   np.int64)  # fmt: skip
    code[values.rows] = np.where(prefixed, low[values.keys], ranks[values.keys])
    prefix_end[values.rows] = end[values.keys] - 1
    return known


def _after_prefix(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes([prefix[-1] + 1])  # UTF-8 never uses the highest byte


def _interval_terms(rows: PredicateRows, clause: Int64s, code: Int64s, prefix_end: Int64s, tops: Int64s) -> Terms:
    top = tops[rows.property]
    bounds: dict[Operator, tuple[Int64s | int, Int64s | int]] = {
        Operator.EQUAL: (code, code),
        Operator.LESS: (LOWEST, code - 1),
        Operator.LESS_OR_EQUAL: (LOWEST, code),
        Operator.GREATER: (code + 1, top),
        Operator.GREATER_OR_EQUAL: (code, top),
        Operator.EXISTS: (NOT_COMPARABLE, top),
        Operator.NOT_EXISTS: (ABSENT, ABSENT),
        Operator.PREFIX: (code, prefix_end),
    }
    low, high = np.zeros_like(code), np.zeros_like(code)
    for operator, (lowest, highest) in bounds.items():
        here = rows.operator == OPERATORS.index(operator)
        low[here] = lowest if isinstance(lowest, int) else lowest[here]
        high[here] = highest if isinstance(highest, int) else highest[here]
    every = Terms(clause, rows.property, np.full_like(code, INTERVAL), low, high)
    return every.take(rows.is_operator(*bounds))


def _intersected(terms: Terms) -> Terms:
    """One interval per clause and property; empty ones stay, so that their clause can be dropped."""
    if not len(terms.clause):
        return terms
    key = terms.clause * PROPERTY_LIMIT + terms.property
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    low = np.maximum.reduceat(terms.low[order], first)
    high = np.minimum.reduceat(terms.high[order], first)
    return replace(terms.take(order[first]), low=low, high=high)


def _excluded_terms(
    rows: PredicateRows, clause: Int64s, code: Int64s, prefix_end: Int64s, sets: _Sets
) -> tuple[Terms, Terms]:
    """!= and NOT PREFIX: outside an interval, or outside a set when one clause excludes many values."""
    excluded = np.flatnonzero(rows.is_operator(Operator.NOT_EQUAL, Operator.NOT_PREFIX))
    high = np.where(rows.operator == OPERATORS.index(Operator.NOT_PREFIX), prefix_end, code)
    key = clause[excluded] * PROPERTY_LIMIT + rows.property[excluded]
    order = np.argsort(key, kind="stable")
    excluded, key = excluded[order], key[order]
    starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1]))) if len(key) else np.empty(0, np.int64)
    lengths = np.diff(np.append(starts, len(key)))
    point = np.ones(len(starts), np.bool_)
    np.logical_and.at(point, np.repeat(np.arange(len(starts)), lengths), code[excluded] == high[excluded])
    crowded = point & (lengths >= _SMALLEST_EXCLUDED_SET)
    single = excluded[~np.repeat(crowded, lengths)]
    outside = Terms(clause[single], rows.property[single], np.full(len(single), OUTSIDE), code[single], high[single])
    numbers = [sets.add(code[excluded[start : start + length]])
               for start, length in zip(starts[crowded].tolist(), lengths[crowded].tolist(), strict=True)]  # fmt: skip
    return outside, _set_terms(clause, rows.property, excluded[starts[crowded]], numbers, negated=True)


def _included_sets(rows: PredicateRows, clause: Int64s, code: Int64s, sets: _Sets) -> Terms:
    """IN: the rows of one predicate are one set."""
    listed = np.flatnonzero(rows.is_operator(Operator.IN))
    place, number = _distinct_numbers(clause[listed], rows.predicate[listed])
    order = np.argsort(number, kind="stable")
    parts = np.split(code[listed[order]], np.searchsorted(number[order], np.arange(1, len(place))))
    return _set_terms(
        clause, rows.property, listed[place], [sets.add(part) for part in parts if len(part)], negated=False
    )


def _set_terms(clause: Int64s, property_: Int64s, rows: Int64s, numbers: list[int], *, negated: bool) -> Terms:
    low = np.array(numbers, np.int64)
    return Terms(clause[rows], property_[rows], np.full(len(rows), SET), low, np.full(len(rows), int(negated)))


def _bit_terms(rows: PredicateRows, clause: Int64s, masks: list[int]) -> list[Terms]:
    numbers: dict[int, int] = {}
    found = []
    for values in rows.values:
        for operator in (Operator.ANY_BIT, Operator.NO_BIT):
            here = rows.operator[values.rows] == OPERATORS.index(operator)
            at = values.rows[here]
            low = [numbers.setdefault(mask, len(numbers)) for mask in values.keys[here].tolist()] if len(at) else []
            found.append(
                Terms(clause[at], rows.property[at], np.full(len(at), BITS), np.array(low, np.int64),
                      np.full(len(at), int(operator is Operator.NO_BIT)))
            )  # fmt: skip
    masks.extend(numbers)
    return found


def _merge(parts: list[Terms]) -> Terms:
    columns = ("clause", "property", "kind", "low", "high")
    return Terms(*(np.concatenate([getattr(part, name) for part in parts]).astype(np.int64) for name in columns))


def _living(clauses: Clauses) -> Clauses:
    """Without the clauses that have an empty interval; clauses are numbered anew, by subscription."""
    terms = clauses.terms
    dead = np.zeros(len(clauses.subscription), np.bool_)
    dead[terms.clause[(terms.kind == INTERVAL) & (terms.low > terms.high)]] = True
    number = np.cumsum(~dead) - 1
    terms = terms.take(~dead[terms.clause])
    return replace(clauses, subscription=clauses.subscription[~dead], terms=replace(terms, clause=number[terms.clause]))


def _positions(subscription: Int64s) -> tuple[Int64s, Int64s]:
    """The sorted ids, and by row the position of its id among them."""
    fresh = subscription[1:] != subscription[:-1]
    if (subscription[1:] < subscription[:-1]).any() or not len(subscription):
        ids = sorted_distinct(subscription)
        return ids, np.searchsorted(ids, subscription)
    return subscription[np.concatenate(([True], fresh))], np.concatenate(([0], np.cumsum(fresh)))


def _distinct_numbers(major: Int64s, minor: Int64s) -> tuple[Int64s, Int64s]:
    """Number the distinct pairs in order: the place of one row of each pair, and the number of each row."""
    if not len(major):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    key = major * (int(minor.max()) + 1) + minor
    order = np.argsort(key, kind="stable")
    fresh = np.concatenate(([True], key[order][1:] != key[order][:-1]))
    number = np.empty(len(key), np.int64)
    number[order] = np.cumsum(fresh) - 1
    return order[fresh], number


class _Sets:
    """Sorted sets of codes laid end to end; equal sets are kept once."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._parts: list[Int64s] = []

    def add(self, codes: Int64s) -> int:
        codes = cast(Int64s, sorted_distinct(codes))
        number = self._numbers.setdefault(codes.tobytes(), len(self._parts))
        if number == len(self._parts):
            self._parts.append(codes)
        return number

    def starts(self) -> Int64s:
        return np.concatenate(([0], np.cumsum([len(part) for part in self._parts], dtype=np.int64))).astype(np.int64)

    def codes(self) -> Int64s:
        return np.concatenate(self._parts) if self._parts else np.empty(0, np.int64)
