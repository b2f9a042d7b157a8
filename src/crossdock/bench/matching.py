"""How fast subscriptions are found: throughput in batches, one message at a time, building, changing and memory.

Rates are messages per CPU second of one core with encoding included. A run also checks itself against the
specification, and measures what it would replace: numpy alone, and plain Python with a dictionary of equalities.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossdock.bench.workload import CASES, TYPES, draw_messages, draw_subscriptions
from crossdock.errors import CrossdockError, UsageError
from crossdock.message.property import Value
from crossdock.subscription.index.index import SubscriptionIndex
from crossdock.subscription.index.rows import filters_of_table
from crossdock.subscription.match import Matcher, fold
from crossdock.subscription.predicate import Filter, Group, Operator, Predicate

_BATCH = 10_000
_FEW = 500  # messages of a trial run; also the smallest batch that is measured
_ENOUGH_S, _TOO_LONG_S = 1.0, 8.0
_SINGLE_MESSAGES = 2_000
_TURNS = 4
_CHECKED_SUBSCRIPTIONS, _CHECKED_MESSAGES = 500, 100
_BASELINE_SUBSCRIPTIONS = 100_000

Filters = dict[int, tuple[Group, ...]]


def bench_matching(subscriptions: int, case: str = "core") -> dict[str, Any]:
    """Measure one case of the workload; the figures by name, ready for JSON."""
    if case not in CASES:
        raise UsageError(f"Case {case!r} is unknown; choose one of {', '.join(CASES)}")
    rows, messages = draw_subscriptions(subscriptions, case), draw_messages(_BATCH, case, seed=777)
    SubscriptionIndex.build([], TYPES)  # importing numba is no part of building
    started = time.process_time()
    index = SubscriptionIndex.build(rows, TYPES)
    build_s = time.process_time() - started
    check(index, rows, messages)
    rate, batch, pairs = throughput(index, messages)
    singles = single_microseconds(index, messages)
    changed, delta_ms = add_one(index, subscriptions)
    delta_ratio = slowdown(index, changed, messages)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    baseline = baseline_rate(rows, messages)
    return {
        "case": case,
        "subscriptions": subscriptions,
        "messages_per_s": round(rate),
        "batch": batch,
        "pairs": pairs,
        "build_s": round(build_s, 3),
        "index_bytes": index.size,
        "peak_bytes": peak_bytes,
        "single_us_p50": round(float(np.percentile(singles, 50)), 1),
        "single_us_p99": round(float(np.percentile(singles, 99)), 1),
        "delta_ms": round(delta_ms, 2),
        "delta_ratio": round(delta_ratio, 3),
        "baseline_per_s": round(baseline, 1),
        "baseline_subscriptions": min(subscriptions, _BASELINE_SUBSCRIPTIONS),
        "ratio_to_baseline": round(rate / baseline, 1),
    }


def throughput(index: SubscriptionIndex, messages: pa.RecordBatch) -> tuple[float, int, int]:
    """Messages per CPU second, the size of the batches, and the pairs of one batch.

    A case whose output alone would take too long is measured in smaller batches.
    """
    _count_pairs(index, messages.slice(0, _FEW))
    trial, _ = _timed(index, messages.slice(0, _FEW))
    if trial * _BATCH / _FEW > _TOO_LONG_S:
        messages = messages.slice(0, _FEW)
    spent, runs, pairs = 0.0, 0, 0
    while spent < _ENOUGH_S:
        seconds, pairs = _timed(index, messages)
        spent, runs = spent + seconds, runs + 1
    return runs * messages.num_rows / spent, messages.num_rows, pairs


def slowdown(index: SubscriptionIndex, changed: SubscriptionIndex, messages: pa.RecordBatch) -> float:
    """The throughput after a change as a share of that before, in turns: neighbours disturb both alike."""
    rates = [(throughput(index, messages)[0], throughput(changed, messages)[0]) for _ in range(_TURNS)]
    return sum(after for _, after in rates) / sum(before for before, _ in rates)


def single_microseconds(index: SubscriptionIndex, messages: pa.RecordBatch) -> list[float]:
    """Wall time of each single message, given as a mapping."""
    measured = []
    for promoted in promoted_properties(messages.slice(0, _SINGLE_MESSAGES)):
        started = time.perf_counter()
        index.match_one(promoted)
        measured.append((time.perf_counter() - started) * 1e6)
    return measured[len(measured) // 20 :]


def add_one(index: SubscriptionIndex, number: int) -> tuple[SubscriptionIndex, float]:
    """Enlist one subscription more, and the milliseconds until a message finds it."""
    group = (Predicate("Key0", Operator.EQUAL, "new"), Predicate("Count0", Operator.GREATER, 5))
    started = time.perf_counter()
    changed = index.with_changes([(number, (group,))], types=TYPES)
    found = changed.match_one({"Key0": "NEW", "Count0": 6})
    milliseconds = (time.perf_counter() - started) * 1e3
    if number not in found:
        raise CrossdockError("The index does not show a subscription that was added")
    return changed, milliseconds


def check(index: SubscriptionIndex, rows: pa.Table, messages: pa.RecordBatch) -> None:
    """Compare a sample of subscriptions and messages with the specification."""
    ids = pc.unique(rows["subscription"]).to_numpy()
    chosen = np.random.default_rng(1).choice(ids, min(len(ids), _CHECKED_SUBSCRIPTIONS), replace=False)
    filters = filters_of_table(rows.filter(pc.is_in(rows["subscription"], pa.array(chosen))), TYPES)
    few = messages.slice(0, _CHECKED_MESSAGES)
    found = {
        pair
        for positions, matched in index.match(few)
        for pair in zip(positions.tolist(), matched.tolist(), strict=True)
        if pair[1] in filters
    }
    matcher = Matcher()
    expected = {
        (position, number)
        for position, promoted in enumerate(promoted_properties(few))
        for number, groups in filters.items()
        if matcher.matches(Filter(groups), promoted)
    }
    if found != expected:
        raise CrossdockError(f"The index and the specification differ in {len(found ^ expected)} pairs")


def baseline_rate(rows: pa.Table, messages: pa.RecordBatch) -> float:
    """What plain Python does: find groups by one equality in a dictionary, then ask the specification."""
    few = rows.filter(pc.field("subscription") < _BASELINE_SUBSCRIPTIONS)
    matcher = _DictionaryMatcher(filters_of_table(few, TYPES))
    done, started = 0, time.process_time()
    for promoted in promoted_properties(messages):
        matcher.match(promoted)
        done += 1
        if time.process_time() - started > _ENOUGH_S:
            break
    return done / (time.process_time() - started)


def promoted_properties(messages: pa.RecordBatch) -> list[dict[str, Value]]:
    return [{name: value for name, value in row.items() if value is not None} for row in messages.to_pylist()]


def _timed(index: SubscriptionIndex, messages: pa.RecordBatch) -> tuple[float, int]:
    started = time.process_time()
    pairs = _count_pairs(index, messages)
    return time.process_time() - started, pairs


def _count_pairs(index: SubscriptionIndex, messages: pa.RecordBatch) -> int:
    return sum(len(positions) for positions, _ in index.match(messages))


class _DictionaryMatcher:
    """Groups under the first equality they have; those without one are tried for every message."""

    def __init__(self, filters: Filters) -> None:
        self.by_equality: dict[tuple[str, Any], list[tuple[int, Group]]] = defaultdict(list)
        self.others: list[tuple[int, Group]] = []
        self.matcher = Matcher()
        for number, groups in filters.items():
            for group in groups:
                self._place(group).append((number, group))

    def match(self, promoted: Mapping[str, Value]) -> set[int]:
        found = self._holding(self.others, promoted)
        for name, value in promoted.items():
            found |= self._holding(self.by_equality.get((name, fold(value)), ()), promoted)
        return found

    def _place(self, group: Group) -> list[tuple[int, Group]]:
        for predicate in group:
            if predicate.operator is Operator.EQUAL:
                return self.by_equality[predicate.property, fold(predicate.value)]
        return self.others

    def _holding(self, candidates: Iterable[tuple[int, Group]], promoted: Mapping[str, Value]) -> set[int]:
        return {number for number, group in candidates if self.matcher.group_holds(group, promoted)}
