"""Compile predicate rows into the arrays of an index. The steps, in order: rank constants, turn predicates into terms,
choose how each clause is found, lay out the arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from crossdock.errors import FilterError
from crossdock.subscription.index.access import choose_access
from crossdock.subscription.index.chances import (
    build_buckets,
    expected_weights,
    likeliest_first,
    term_probabilities,
)
from crossdock.subscription.index.codes import Constants
from crossdock.subscription.index.layout import LENGTH_MASK, ORDINAL_MASK, Layout, lay_out
from crossdock.subscription.index.pool import Pool, constants_of, pool_of
from crossdock.subscription.index.rows import PredicateRows
from crossdock.subscription.index.terms import Clauses, compile_clauses, compile_constants


@dataclass(frozen=True, slots=True)
class CompiledFilters:
    """Immutable: the properties that filters use, their constants, and the arrays."""

    names: tuple[str, ...]
    constants: tuple[Constants, ...]
    pool: Pool
    layout: Layout
    case_sensitive: bool

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(
            getattr(holder, field.name).nbytes for holder in (self.pool, self.layout) for field in fields(holder)
        )


def compile_filters(rows: PredicateRows, *, case_sensitive: bool = False) -> CompiledFilters:
    """The index of these rows."""
    constants, code, prefix_end = compile_constants(rows, case_sensitive=case_sensitive)
    clauses = compile_clauses(rows, constants, code, prefix_end)
    _check_limits(clauses)
    buckets = build_buckets(constants, expected_weights(constants, clauses))
    chances = term_probabilities(clauses, buckets)
    clauses = likeliest_first(clauses, chances)
    access = choose_access(clauses, buckets, chances)
    layout = lay_out(clauses, constants, buckets, chances, access)
    pool = pool_of(constants)
    for arrays in (pool, layout):
        _freeze(arrays)
    return CompiledFilters(rows.names, constants_of(pool), pool, layout, case_sensitive)


def _freeze(arrays: Pool | Layout) -> None:
    """Read-only, as memory-mapped arrays are: numba compiles once per kind of array."""
    for field in fields(arrays):
        getattr(arrays, field.name).flags.writeable = False


def _check_limits(clauses: Clauses) -> None:
    for what, owner, limit in (("groups", clauses.subscription, ORDINAL_MASK),
                               ("predicates in one group", clauses.terms.clause, LENGTH_MASK)):  # fmt: skip
        if len(owner) and int(np.bincount(owner).max()) > limit:
            raise FilterError(f"a filter has more than {limit} {what}, and the index cannot hold it; split the filter")
