"""Where an index has least to hold on to: hot keys, skew, wide ranges, not-equals, long lists. Right, and bounded."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from crossdock.bench.matching import bench_matching, promoted_properties
from crossdock.bench.workload import CASES, TYPES, draw_messages, draw_subscriptions
from crossdock.message.property import PropertyType, Value
from crossdock.subscription.index.index import SubscriptionIndex
from crossdock.subscription.index.rows import filters_of_table
from crossdock.subscription.predicate import Group, Operator, Predicate
from index_cases import found, predicate_rows, record_batch, specified


@pytest.mark.parametrize("case", CASES)
def test_every_case_of_the_workload_agrees_with_the_specification(case: str) -> None:
    rows, messages = draw_subscriptions(1_500, case), draw_messages(25, case, seed=1)
    expected = specified(list(filters_of_table(rows, TYPES).items()), promoted_properties(messages))

    assert found(SubscriptionIndex.build(rows, TYPES), messages) == expected


def test_lists_of_500_values_included_and_excluded_agree_with_the_specification() -> None:
    types = {"Customer": PropertyType.TEXT, "Amount": PropertyType.INTEGER}
    drawn = random.Random(7)
    names = [f"Customer {number}" for number in range(3_000)]
    filters: list[tuple[int, tuple[Group, ...]]] = []
    for number in range(40):
        listed = Predicate("Customer", Operator.IN, tuple(drawn.sample(names, 500)))
        excluded = tuple(Predicate("Customer", Operator.NOT_EQUAL, name) for name in drawn.sample(names, 500))
        filters.append((number, ((listed, Predicate("Amount", Operator.GREATER, number)), excluded, (listed,))))
    rows: list[dict[str, Value]] = [{"Customer": drawn.choice(names), "Amount": drawn.randrange(60)} for _ in range(15)]

    index = SubscriptionIndex.build(filters, types)

    assert found(index, record_batch([*rows, {}], types)) == specified(filters, [*rows, {}])


def test_a_list_of_500_values_costs_memory_by_its_length_and_not_by_its_neighbours() -> None:
    types = {"Customer": PropertyType.INTEGER} | {f"P{number}": PropertyType.INTEGER for number in range(20)}
    others = tuple(Predicate(f"P{number}", Operator.NOT_EQUAL, 1) for number in range(20))
    filters = [
        (number, ((Predicate("Customer", Operator.IN, tuple(range(number, number + 500))), *others),))
        for number in range(200)
    ]

    index = SubscriptionIndex.build(filters, types)

    assert index.size < 200 * 500 * 20


def test_output_of_a_case_where_everything_matches_comes_in_bounded_chunks() -> None:
    index = SubscriptionIndex.build(draw_subscriptions(2_000, "neq"), TYPES)
    messages = draw_messages(1_500, "neq", seed=3)
    next(index.match(messages))  # compiled and mapped before memory is watched
    tracemalloc.start()

    sizes = [len(positions) for positions, _ in index.match(messages)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert sum(sizes) > 2_000_000
    assert max(sizes) <= 262_144 + 2_000
    assert peak < 64_000_000


def test_predicate_rows_read_back_as_the_filters_they_came_from() -> None:
    listed = Predicate("Key0", Operator.IN, ("a", "b"))
    filters = [(4, ((listed, Predicate("Count0", Operator.LESS, 3)), (Predicate("Ratio", Operator.EXISTS),)))]

    assert filters_of_table(predicate_rows(filters), TYPES) == dict(filters)
    changed = SubscriptionIndex.build([], TYPES).with_changes(predicate_rows(filters), types=TYPES)
    assert changed.match_one({"Key0": "B", "Count0": 2}) == [4]


def test_one_subscription_more_is_seen_at_once_and_the_old_answers_stay() -> None:
    rows, messages = draw_subscriptions(2_000, "core"), draw_messages(50, "core", seed=4)
    index = SubscriptionIndex.build(rows, TYPES)
    changed = index.with_changes([(9_999, ((Predicate("Key0", Operator.EXISTS),),))], [5], types=TYPES)

    expected = [pair for pair in found(index, messages) if pair[1] != 5] + [(at, 9_999) for at in range(50)]
    assert found(changed, messages) == sorted(expected)
    assert (changed.delta_size, changed.tombstones, changed.needs_compaction) == (1, 1, False)


def test_an_epoch_with_changes_shares_the_files_of_its_base(tmp_path: Path) -> None:
    SubscriptionIndex.build(draw_subscriptions(500, "core"), TYPES).save(tmp_path / "1")

    opened = SubscriptionIndex.open(tmp_path / "1")
    opened.with_changes(removed=[3], types=TYPES).save(tmp_path / "2")

    assert (tmp_path / "1/base/words.npy").samefile(tmp_path / "2/base/words.npy")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_batch_of_any_length_is_matched_with_its_own_positions() -> None:
    filters = [(1, ((Predicate("Count0", Operator.LESS, 2),),))]
    batch = pa.RecordBatch.from_pydict({"Count0": pa.array(np.arange(50_000)[::-1])})

    assert found(SubscriptionIndex.build(filters, TYPES), batch) == [(49_998, 1), (49_999, 1)]


def test_filters_over_a_thousand_properties() -> None:
    types = {f"P{number}": PropertyType.INTEGER for number in range(1_000)}
    filters = [(number, ((Predicate(f"P{number}", Operator.GREATER, number),),)) for number in range(1_000)]
    rows: list[dict[str, Value]] = [{f"P{number}": number + number % 2 for number in range(9)}, {"P999": 1_000}]

    index = SubscriptionIndex.build(filters, types)

    assert found(index, record_batch(rows, types)) == specified(filters, rows)


def test_text_columns_of_other_width_and_dictionaries_are_read() -> None:
    index = SubscriptionIndex.build([(1, ((Predicate("Key0", Operator.EQUAL, "x"),),))], TYPES)
    for type_ in (
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ):
        column = pa.array(["X ", None, "y"], pa.string()).cast(type_)

        assert found(index, pa.RecordBatch.from_arrays([column], ["Key0"])) == [(0, 1)]


@pytest.mark.slow
def test_the_benchmark_reports_every_figure() -> None:
    figures = bench_matching(300, "full")

    assert figures["pairs"] > 0
    assert np.isfinite([value for value in figures.values() if isinstance(value, int | float)]).all()
    assert {"messages_per_s", "build_s", "index_bytes", "peak_bytes", "single_us_p50", "single_us_p99", "delta_ms",
            "baseline_per_s", "ratio_to_baseline"} <= set(figures)  # fmt: skip
