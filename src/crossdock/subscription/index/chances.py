"""How often a message probably meets each term, told from the constants themselves.

Buckets cut the codes of a property into ranges of about equal probability.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from crossdock.subscription.index.codes import (
    ABSENT,
    INTERVAL,
    LOWEST,
    OUTSIDE,
    SET,
    Constants,
    Flags,
    Floats,
    Int64s,
    spans,
)
from crossdock.subscription.index.terms import Clauses, Terms

RANGE_BUCKETS = 64


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
    """Values are as common in messages as in filters, and lie between thresholds half by rank and half by distance."""
    terms = clauses.terms
    sizes = np.array([known.top + 1 for known in constants], np.int64)
    starts = np.cumsum(sizes) - sizes
    equal = is_equality(terms)
    uses = np.bincount(starts[terms.property[equal]] + terms.low[equal], minlength=int(sizes.sum()))
    ranged = (terms.kind == INTERVAL) & (terms.low >= LOWEST) & ~equal
    ranges = np.bincount(terms.property[ranged], minlength=len(constants))
    weights = []
    for known, start, size, has_ranges in zip(constants, starts, sizes, ranges, strict=True):
        weight = uses[start : start + size].astype(np.float64)
        weight[LOWEST + 1 :: 2] += 1
        weight[LOWEST::2] = _gap_weights(known) if has_ranges else 0
        weight[LOWEST] += 1
        weight[ABSENT] = 0.3 * weight.sum()
        weights.append(weight)
    return weights


def _gap_weights(known: Constants) -> Floats:
    weights = np.ones(known.count + 1)
    with np.errstate(all="ignore"):  # infinities, and distances too small or too large for a float
        distances = np.diff(known.magnitudes())
        shares = distances / distances.sum()
    if len(shares) and np.isfinite(shares).all():
        weights[1:-1] = 0.5 + 0.5 * shares * len(shares)
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
    mass = np.bincount(row, buckets.probability(terms.property[listed][row], code, code), minlength=len(listed))
    chances[listed] = np.where(terms.high[listed] == 0, mass, 1 - mass)
    return np.asarray(np.clip(chances, 1e-9, 0.99))


def likeliest_first(clauses: Clauses, chances: Floats) -> Clauses:
    """Number the clauses of each subscription by how often they hold: a later one that holds asks the earlier ones."""
    terms = clauses.terms
    chance = np.bincount(terms.clause, np.log(chances), minlength=len(clauses.subscription))
    order = np.lexsort((-chance, clauses.subscription))
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return replace(clauses, terms=replace(terms, clause=number[terms.clause]))


def is_equality(terms: Terms) -> Flags:
    """One constant: odd codes are constants, even ones the gaps between them."""
    one = (terms.low == terms.high) & (terms.low > LOWEST) & (terms.low & 1 == 1)
    return np.asarray((terms.kind == INTERVAL) & one)
