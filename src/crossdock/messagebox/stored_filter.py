"""Filters as the row of a service keeps them: a list of predicates, each with its group and its position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from crossdock.message.property import PropertyType, format_value, parse_value, type_of
from crossdock.subscription.predicate import Filter, Operator, Predicate


def stored_groups(filter_: Filter) -> list[list[Any]]:
    """A filter as it is stored."""
    return [
        [number, position, predicate.property, *_stored(predicate)]
        for number, group in enumerate(filter_.groups, start=1)
        for position, predicate in enumerate(group)
    ]


def read_groups(stored: Sequence[Sequence[Any]]) -> Filter:
    """The filter that was stored so."""
    groups: defaultdict[int, list[Predicate]] = defaultdict(list)
    for number, _, name, type_, operator, values, _ in sorted(stored, key=lambda row: (row[0], row[1])):
        groups[number].append(_read(name, PropertyType(type_), Operator(operator), values))
    return Filter(tuple(tuple(group) for group in groups.values()))


def _stored(predicate: Predicate) -> tuple[str, str, list[str] | None, int]:
    """(type, operator, value, pass): equality is looked up in the first pass, everything else checked in the second."""
    value = predicate.value
    if value is None:
        return (PropertyType.TEXT, predicate.operator, None, 2)
    values = value if isinstance(value, tuple) else (value,)
    first_pass = predicate.operator in (Operator.EQUAL, Operator.IN)
    return (type_of(values[0]), predicate.operator, [format_value(each) for each in values], 1 if first_pass else 2)


def _read(name: str, type_: PropertyType, operator: Operator, values: Sequence[str] | None) -> Predicate:
    if values is None:
        return Predicate(name, operator, None)
    constants = tuple(parse_value(type_, each) for each in values)
    return Predicate(name, operator, constants if operator is Operator.IN else constants[0])
