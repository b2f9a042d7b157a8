"""Generated properties, filters and messages for the tests of the index, and the specification's answer to compare."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from crossdock.message.property import PropertyRegistry, PropertyType, Value, format_value
from crossdock.subscription.index.encode import ARROW_TYPES
from crossdock.subscription.index.index import SubscriptionIndex
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import WITHOUT_VALUE, Filter, Group, Operator, Predicate, typed_predicate

# How many times the examples are drawn: most of them in `make soak`, and new ones in every run.
EXAMPLES = 34 if os.environ.get("CROSSDOCK_SOAK") else 0.125 if os.environ.get("CROSSDOCK_FAST") else 0.25

# Names that SQL would take for keywords, beside a dotted and a system one.
TYPES: dict[str, PropertyType] = {
    "Select": PropertyType.TEXT,
    "From": PropertyType.INTEGER,
    "When": PropertyType.DATETIME,
    "Order": PropertyType.DECIMAL,
    "Case": PropertyType.FLOAT,
    "Null": PropertyType.BOOLEAN,
    "a.b": PropertyType.TEXT,
    "Group": PropertyType.INTEGER,
}
REGISTRY = PropertyRegistry(TYPES)

# The first year a datetime can name and the last, and one instant written in three zones.
_NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
_POOLS: dict[PropertyType, list[Any]] = {
    PropertyType.TEXT: [
        "", " ", "a", "A", "a ", " a", "ab", "AB  ", "abc", "b", "New", "New ", "New York", "NEWARK", "new y",
        "ß", "SS", "ss", "İ", "i̇", "I", "ı", "ς", "Σ", "σ", "ΟΔΟΣ", "οδος", "\U0001f600", "\U0001f600x", "\uffff",
        "\ue000", "\U0010ffff", "\U0010ffff\U0010ffff", "é", "e\u0301", "ﬁ", "fi", "\0", "a\0", "%", "_", "'", "Zz",
    ],
    PropertyType.INTEGER: [-(2**63), -(2**63) + 1, -256, -1, 0, 1, 2, 3, 4, 6, 7, 8, 255, 2**31, 2**62, 2**63 - 1],
    PropertyType.DECIMAL: [
        Decimal(text) for text in (
            "0", "-0.0", "1", "1.0", "1.5", "-1.5", "0.000000000000000001", "-0.000000000000000001", "1e3",
            "999.9999999999999991", "1000", "18446744073709551616", "18446744073709551615.999999999999999999",
            "99999999999999999999.999999999999999999", "-99999999999999999999.999999999999999999",
            "9223372036854775807", "9.223372036854775808", "-9.223372036854775809",
        )
    ],
    PropertyType.FLOAT: [0.0, -0.0, 1.0, -1.0, 0.1, 1e300, -1e300, 5e-324, -5e-324, float("inf"), float("-inf"), 2.5],
    PropertyType.BOOLEAN: [True, False],
    PropertyType.DATETIME: [
        datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), _NOON,
        _NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), _NOON.replace(tzinfo=timezone(timedelta(hours=-8))),
        _NOON + timedelta(microseconds=1), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
    ],
}  # fmt: skip
_FREE: dict[PropertyType, st.SearchStrategy[Any]] = {
    PropertyType.TEXT: st.text(max_size=4),
    PropertyType.INTEGER: st.integers(-(2**63), 2**63 - 1),
    PropertyType.DECIMAL: st.decimals(-(10**19), 10**19, places=18),
    PropertyType.FLOAT: st.floats(allow_nan=False),
    PropertyType.BOOLEAN: st.booleans(),
    PropertyType.DATETIME: st.datetimes(timezones=st.just(UTC)),
}
_ORDERING = [Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL]


def values(type_: PropertyType) -> st.SearchStrategy[Any]:
    """Mostly from a small pool, so that filters and messages meet, sometimes anything."""
    return st.one_of(st.sampled_from(_POOLS[type_]), st.sampled_from(_POOLS[type_]), _FREE[type_])


def constants(type_: PropertyType) -> st.SearchStrategy[Any]:
    """Like values, without what a filter refuses: the store holds no text with NUL."""
    return values(type_).filter(lambda value: not isinstance(value, str) or "\0" not in value)


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(list(TYPES)))
    operator = draw(st.sampled_from(_operators(TYPES[name])))
    if operator in WITHOUT_VALUE:
        return typed_predicate(REGISTRY, name, operator)
    if operator is Operator.IN:
        return typed_predicate(
            REGISTRY, name, operator, draw(st.lists(constants(TYPES[name]), min_size=1, max_size=12))
        )
    return typed_predicate(REGISTRY, name, operator, draw(constants(TYPES[name])))


def _operators(type_: PropertyType) -> list[Operator]:
    operators = [Operator.EQUAL, Operator.EQUAL, Operator.NOT_EQUAL, Operator.IN, Operator.EXISTS, Operator.NOT_EXISTS]
    if type_ is not PropertyType.BOOLEAN:
        operators += _ORDERING
    if type_ is PropertyType.TEXT:
        operators += [Operator.PREFIX, Operator.NOT_PREFIX]
    if type_ is PropertyType.INTEGER:
        operators += [Operator.ANY_BIT, Operator.NO_BIT]
    return operators


def groups() -> st.SearchStrategy[tuple[Group, ...]]:
    """Filters as groups; without groups, and with groups without predicates, too."""
    group = st.lists(predicates(), max_size=4).map(tuple)
    return st.lists(group, max_size=3).map(tuple)


def subscriptions(max_size: int = 12) -> st.SearchStrategy[list[tuple[int, tuple[Group, ...]]]]:
    ids = st.integers(-(2**40), 2**40)
    return st.lists(st.tuples(ids, groups()), max_size=max_size, unique_by=lambda each: each[0])


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Value]:
    promoted: dict[str, Value] = {}
    for name, type_ in TYPES.items():
        if draw(st.booleans()):
            promoted[name] = draw(values(type_))
            if type_ is PropertyType.FLOAT and draw(st.integers(0, 4)) == 0:
                promoted[name] = float("nan")
    return promoted


def record_batch(rows: Sequence[Mapping[str, Value]], types: Mapping[str, PropertyType] = TYPES) -> pa.RecordBatch:
    """Messages as columns; properties that no message has are left out."""
    used = [name for name in types if any(name in row for row in rows)]
    arrays = [pa.array([row.get(name) for row in rows], ARROW_TYPES[types[name]]) for name in used]
    if not used:
        return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], ["Unrelated"])
    return pa.RecordBatch.from_arrays(arrays, used)


def predicate_rows(filters: Sequence[tuple[int, Sequence[Group]]]) -> pa.Table:
    """Filters as the rows that the store keeps."""
    rows = [
        (
            number,
            at,
            place,
            predicate.property,
            predicate.operator.value,
            None if value is None else format_value(value),
        )
        for number, groups_ in filters
        for at, group in enumerate(groups_)
        for place, predicate in enumerate(group)
        for value in (predicate.value if isinstance(predicate.value, tuple) else (predicate.value,))
    ]
    kinds = {"subscription": pa.int64(), "group": pa.int32(), "predicate": pa.int32(), "property": pa.string(),
             "operator": pa.string(), "value": pa.string()}  # fmt: skip
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)})


def specified(
    filters: Sequence[tuple[int, Sequence[Group]]], rows: Sequence[Mapping[str, Value]], *, case_sensitive: bool = False
) -> list[tuple[int, int]]:
    """What the specification says: sorted pairs of message position and subscription id."""
    matcher = Matcher(case_sensitive)
    return sorted(
        (position, number)
        for position, promoted in enumerate(rows)
        for number, groups_ in filters
        if matcher.matches(Filter(tuple(groups_)), promoted)
    )


def found(index: SubscriptionIndex, batch: pa.RecordBatch) -> list[tuple[int, int]]:
    """What the index says, in the same form; a pair that came twice stays twice."""
    return sorted(
        pair for positions, ids in index.match(batch) for pair in zip(positions.tolist(), ids.tolist(), strict=True)
    )
