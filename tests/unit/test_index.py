"""The index agrees with the specification, however it came to be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossdock.errors import FilterError
from crossdock.message.property import PropertyType, Value
from crossdock.subscription.index import access
from crossdock.subscription.index.index import SubscriptionIndex
from crossdock.subscription.predicate import Filter, Group, Operator, Predicate
from crossdock.subscription.text import parse_filter
from index_cases import (
    EXAMPLES,
    REGISTRY,
    TYPES,
    found,
    groups,
    messages,
    predicate_rows,
    record_batch,
    specified,
    subscriptions,
)

Filters = list[tuple[int, tuple[Group, ...]]]
Messages = list[dict[str, Value]]


def examples(count: int) -> settings:
    return settings(
        max_examples=int(count * EXAMPLES),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@examples(800)
@given(filters=subscriptions(), rows=st.lists(messages(), max_size=8), case_sensitive=st.booleans())
def test_the_index_agrees_with_the_specification(filters: Filters, rows: Messages, case_sensitive: bool) -> None:
    expected = specified(filters, rows, case_sensitive=case_sensitive)

    index = SubscriptionIndex.build(filters, TYPES, case_sensitive=case_sensitive)

    assert found(index, record_batch(rows)) == expected
    for position, promoted in enumerate(rows):
        assert index.match_one(promoted) == [number for at, number in expected if at == position]


@examples(400)
@given(filters=subscriptions(30), rows=st.lists(messages(), min_size=1, max_size=8))
def test_pairs_of_cells_and_ordered_rows_agree_with_the_specification(filters: Filters, rows: Messages) -> None:
    """So few filters would never earn a schema of two cells or an order, so here every schema is worth its while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "_WORTH", 0.0)
        index = SubscriptionIndex.build(filters, TYPES)

        assert found(index, record_batch(rows)) == specified(filters, rows)


@examples(200)
@given(filters=subscriptions(), rows=st.lists(messages(), min_size=1, max_size=8), case_sensitive=st.booleans())
def test_predicate_rows_build_the_same_index_as_filters(filters: Filters, rows: Messages, case_sensitive: bool) -> None:
    index = SubscriptionIndex.build(predicate_rows(filters), REGISTRY, case_sensitive=case_sensitive)

    assert found(index, record_batch(rows)) == specified(filters, rows, case_sensitive=case_sensitive)


@examples(100)
@given(filters=subscriptions(), rows=st.lists(messages(), min_size=1, max_size=8))
def test_a_saved_index_opens_as_the_same_index(filters: Filters, rows: Messages) -> None:
    with TemporaryDirectory() as folder:
        SubscriptionIndex.build(filters, TYPES).save(Path(folder) / "1")

        opened = SubscriptionIndex.open(Path(folder) / "1")

        assert found(opened, record_batch(rows)) == specified(filters, rows)
        assert opened.match_one(rows[0]) == [number for at, number in specified(filters, rows) if at == 0]


@examples(200)
@given(
    filters=subscriptions(),
    changes=st.lists(st.tuples(subscriptions(4), st.lists(st.integers(0, 11), max_size=3)), min_size=1, max_size=3),
    rows=st.lists(messages(), min_size=1, max_size=6),
    reopened=st.booleans(),
)
def test_changes_give_what_a_rebuilt_index_gives(
    filters: Filters, changes: list[tuple[Filters, list[int]]], rows: Messages, reopened: bool
) -> None:
    index, current = SubscriptionIndex.build(filters, TYPES), dict(filters)
    with TemporaryDirectory() as folder:
        for epoch, (added, places) in enumerate(changes):
            removed = [list(current)[place] for place in places if place < len(current)]
            changed = [*added, *((number, added[0][1]) for number in list(current)[:1] if added)]
            added_last = {number: groups_ for number, groups_ in changed if number not in removed}
            current = {number: groups_ for number, groups_ in current.items() if number not in removed} | added_last
            index = index.with_changes(added_last.items(), removed, types=TYPES)
            if reopened:
                index.save(Path(folder) / str(epoch))
                index = SubscriptionIndex.open(Path(folder) / str(epoch))

        expected = specified(list(current.items()), rows)
        assert found(index, record_batch(rows)) == expected
        assert index.match_one(rows[0]) == [number for at, number in expected if at == 0]


@examples(150)
@given(filters=subscriptions(), rows=st.lists(messages(), min_size=2, max_size=8), start=st.integers(0, 2))
def test_slices_dictionaries_and_unread_columns_of_a_batch(filters: Filters, rows: Messages, start: int) -> None:
    batch = record_batch(rows).append_column("Unread", pa.array(range(len(rows))))
    coded = [
        column.dictionary_encode() if pa.types.is_string(column.type) and place % 2 else column
        for place, column in enumerate(batch.columns)
    ]
    sliced = pa.RecordBatch.from_arrays(coded, batch.schema.names).slice(start)

    assert found(SubscriptionIndex.build(filters, TYPES), sliced) == specified(filters, rows[start:])


@examples(1000)
@given(written=groups())
def test_text_of_groups_reads_back_as_the_same_groups(written: tuple[Group, ...]) -> None:
    filter_ = Filter(tuple(dict.fromkeys(tuple(dict.fromkeys(group)) for group in written if group)))
    if filter_.groups:
        assert str(parse_filter(REGISTRY, str(filter_))) == str(filter_)


def test_a_surrogate_without_its_partner_keeps_its_place() -> None:
    filters = [
        (1, ((Predicate("Select", Operator.PREFIX, "\ud7ff"),),)),
        (2, ((Predicate("Select", Operator.LESS, "\ue000"),),)),
    ]
    index = SubscriptionIndex.build(filters, TYPES)

    assert index.match_one({"Select": "\ud7ffx"}) == [1, 2]
    assert index.match_one({"Select": "\ud800"}) == [2]


def test_an_index_of_nothing_matches_nothing() -> None:
    empty: Sequence[tuple[int, tuple[Group, ...]]] = [(1, ()), (2, ((),))]
    index = SubscriptionIndex.build(empty, TYPES)

    assert index.match_one({"Select": "a"}) == []
    assert found(index, record_batch([{"Select": "a"}])) == []


def test_a_constant_that_is_no_number_is_refused() -> None:
    with pytest.raises(FilterError, match="NaN"):
        SubscriptionIndex.build([(1, ((Predicate("Case", Operator.EQUAL, float("nan")),),))], TYPES)


def test_narrower_numbers_and_other_units_are_taken_when_nothing_is_lost() -> None:
    filters = [(1, ((Predicate("From", Operator.EQUAL, 7), Predicate("Order", Operator.GREATER, 1)),))]
    batch = pa.RecordBatch.from_pydict({"From": pa.array([7], pa.int16()), "Order": pa.array([2], pa.int32())})

    index = SubscriptionIndex.build(filters, {**TYPES, "Order": PropertyType.DECIMAL})

    assert found(index, batch) == [(0, 1)]
