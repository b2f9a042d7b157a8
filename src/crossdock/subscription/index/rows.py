"""What an index is built from: predicates as columns, one row per constant, from filters or from a table of the store.

An IN of 500 values is 500 rows with the same subscription, group and predicate number; EXISTS is one row without value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossdock.errors import FilterError
from crossdock.message.property import PropertyRegistry, PropertyType, Value, parse_value
from crossdock.subscription.index.codes import (
    Flags,
    Int64s,
    UInt64s,
    float_key,
    float_keys,
    halves_of_decimal,
    microseconds,
)
from crossdock.subscription.index.encode import ARROW_TYPES, decimal_halves, number_keys
from crossdock.subscription.predicate import WITHOUT_VALUE, Group, Operator, Predicate

OPERATORS: tuple[Operator, ...] = tuple(Operator)
PropertyTypes = PropertyRegistry | Mapping[str, PropertyType]


@dataclass(frozen=True, slots=True)
class Values:
    """The typed constants of one property, and the rows they stand in; which fields are filled depends on the type."""

    rows: Int64s
    keys: Int64s
    low: UInt64s
    texts: Sequence[str]  # distinct; `keys` says which one a row has


@dataclass(frozen=True, slots=True)
class PredicateRows:
    """Columns of equal length, and per property its name, type and constants."""

    subscription: Int64s
    group: Int64s
    predicate: Int64s
    property: Int64s
    operator: Int64s
    names: tuple[str, ...]
    types: tuple[PropertyType, ...]
    values: tuple[Values, ...]

    def is_operator(self, *operators: Operator) -> Flags:
        return np.array([operator in operators for operator in OPERATORS])[self.operator]


def rows_of_filters(filters: Iterable[tuple[int, Sequence[Group]]], types: PropertyTypes) -> PredicateRows:
    """Rows of typed filters: pairs of subscription id and groups."""
    columns, constants = cast(list[list[int]], [[], [], [], [], []]), cast(list[Value | None], [])
    numbers: dict[str, int] = {}
    operators = {operator: number for number, operator in enumerate(OPERATORS)}
    for subscription, groups in filters:
        for group_number, group in enumerate(groups):
            for predicate_number, predicate in enumerate(group):
                property_number = numbers.setdefault(predicate.property, len(numbers))
                row = subscription, group_number, predicate_number, property_number, operators[predicate.operator]
                for value in predicate.value if isinstance(predicate.value, tuple) else (predicate.value,):
                    for column, cell in zip(columns, row, strict=True):
                        column.append(cell)
                    constants.append(value)
                if predicate.value == ():  # IN of nothing still is a predicate, which never holds
                    raise FilterError(f"IN needs at least one value for property {predicate.property!r}")
    arrays = [np.array(column, np.int64) for column in columns]
    types_ = tuple(_type(types, name) for name in numbers)
    values = tuple(
        _values_of_objects(type_, rows, [constants[row] for row in rows.tolist()])
        for type_, rows in zip(types_, _rows_with_value(arrays[3], arrays[4], len(numbers)), strict=True)
    )
    return PredicateRows(arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], tuple(numbers), types_, values)


def rows_of_table(table: pa.Table, types: PropertyTypes) -> PredicateRows:
    """Rows of a table with the columns subscription, group, predicate, property, operator and value (text or null)."""
    names, property_ = _dictionary(table["property"])
    spellings, spelled = _dictionary(table["operator"])
    operator = np.array([OPERATORS.index(Operator(text)) for text in spellings], np.int64)[spelled]
    subscription, group, predicate = (
        table[name].to_numpy().astype(np.int64) for name in ("subscription", "group", "predicate")
    )
    types_ = tuple(_type(types, name) for name in names)
    texts = table["value"].combine_chunks()
    values = tuple(
        _values_of_texts(type_, rows, texts.take(pa.array(rows)))
        for type_, rows in zip(types_, _rows_with_value(property_, operator, len(names)), strict=True)
    )
    return PredicateRows(subscription, group, predicate, property_, operator, tuple(names), types_, values)


def filters_of_table(table: pa.Table, types: PropertyTypes) -> dict[int, tuple[Group, ...]]:
    """The filters that such a table holds, as objects: for few subscriptions, or for the specification."""
    return filters_of_rows((tuple(row.values()) for row in table.to_pylist()), types)


def filters_of_rows(rows: Iterable[tuple[Any, ...]], types: PropertyTypes) -> dict[int, tuple[Group, ...]]:
    """The same for rows with the values of these columns, in their order."""
    values: dict[tuple[int, int, int], tuple[str, Operator, list[Value]]] = {}
    for subscription, group, predicate, name, operator, text in rows:
        _, _, constants = values.setdefault((subscription, group, predicate), (name, Operator(operator), []))
        if text is not None:
            constants.append(parse_value(_type(types, name), text))
    groups: dict[int, dict[int, list[Predicate]]] = {}
    for (subscription, group, _), (name, operator, constants) in sorted(values.items()):
        constant = tuple(constants) if operator is Operator.IN else next(iter(constants), None)
        groups.setdefault(subscription, {}).setdefault(group, []).append(Predicate(name, operator, constant))
    return {number: tuple(map(tuple, by_group.values())) for number, by_group in groups.items()}


def number_key(type_: PropertyType, value: Any) -> int:
    """The integer that stands for a number in comparisons; decimals have two, see `halves_of_decimal`."""
    if type_ is PropertyType.DATETIME:
        return microseconds(value)
    if type_ is PropertyType.FLOAT:
        return float_key(value)
    return int(value)


def _type(types: PropertyTypes, name: str) -> PropertyType:
    return types.type_of(name) if isinstance(types, PropertyRegistry) else types[name]


def _rows_with_value(property_: Int64s, operator: Int64s, count: int) -> list[Int64s]:
    """Per property, the rows that carry a constant."""
    carries = np.array([operator not in WITHOUT_VALUE for operator in OPERATORS])
    rows = np.flatnonzero(carries[operator])
    order = rows[np.argsort(property_[rows], kind="stable")]
    return np.split(order, np.searchsorted(property_[order], np.arange(1, count))) if count else []


def _dictionary(column: pa.ChunkedArray) -> tuple[list[str], Int64s]:
    array = column.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return array.dictionary.to_pylist(), array.indices.to_numpy().astype(np.int64)


def _values_of_objects(type_: PropertyType, rows: Int64s, values: list[Any]) -> Values:
    if type_ is PropertyType.TEXT:
        numbers: dict[str, int] = {}
        keys = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
        return Values(rows, keys, np.empty(0, np.uint64), tuple(numbers))
    if type_ is PropertyType.DECIMAL:
        halves = [halves_of_decimal(value) for value in values]
        return _decimal_values(rows, halves)
    if type_ is PropertyType.FLOAT:
        return _float_values(rows, np.array(values, np.float64))
    return _number_values(rows, np.array([number_key(type_, value) for value in values], np.int64))


def _values_of_texts(type_: PropertyType, rows: Int64s, texts: pa.Array) -> Values:
    encoded = texts.dictionary_encode()
    index, distinct = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    if type_ is PropertyType.TEXT:
        return Values(rows, index, np.empty(0, np.uint64), distinct.to_pylist())
    try:
        return _values_of_array(type_, rows, pc.cast(distinct, ARROW_TYPES[type_]), index)
    except pa.ArrowInvalid:  # spelled in a way that Arrow does not read
        pass
    parsed: list[Any] = [parse_value(type_, text) for text in distinct.to_pylist()]
    one = _values_of_objects(type_, rows, parsed)
    return Values(rows, one.keys[index], one.low[index] if len(one.low) else one.low, ())


def _values_of_array(type_: PropertyType, rows: Int64s, distinct: pa.Array, index: Int64s) -> Values:
    if type_ is PropertyType.DECIMAL:
        high, low = decimal_halves(distinct)
        return Values(rows, high[index], low[index], ())
    keys, comparable = number_keys(distinct, type_)
    if not comparable.all():
        raise FilterError("a filter compares with NaN, which equals nothing")
    return _number_values(rows, keys[index])


def _number_values(rows: Int64s, keys: Int64s) -> Values:
    return Values(rows, keys, np.empty(0, np.uint64), ())


def _float_values(rows: Int64s, values: Any) -> Values:
    if np.isnan(values).any():
        raise FilterError("a filter compares with NaN, which equals nothing")
    return _number_values(rows, float_keys(values))


def _decimal_values(rows: Int64s, halves: list[tuple[int, int]]) -> Values:
    high = np.array([upper for upper, _ in halves], np.int64)
    return Values(rows, high, np.array([lower for _, lower in halves], np.uint64), ())
