"""The filters behind a delta, kept beside its arrays: the next change compiles them again with the new ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossdock.message.property import PropertyType, Value, format_value, parse_value, type_of
from crossdock.subscription.predicate import Group, Operator, Predicate

Filters = Mapping[int, Sequence[Group]]
_FILE = "filters.json"


def write_delta(filters: Filters, folder: Path) -> None:
    kept = [[number, [[_structure(predicate) for predicate in group] for group in groups]]
            for number, groups in filters.items()]  # fmt: skip
    (folder / _FILE).write_text(json.dumps(kept), encoding="utf-8")


def read_filters(folder: Path) -> Filters:
    kept = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return {number: tuple(tuple(map(_predicate, group)) for group in groups) for number, groups in kept}


def _structure(predicate: Predicate) -> list[Any]:
    value = predicate.value
    kept = list(map(_typed, value)) if isinstance(value, tuple) else None if value is None else _typed(value)
    return [predicate.property, predicate.operator.value, isinstance(value, tuple), kept]


def _predicate(kept: list[Any]) -> Predicate:
    name, operator, several, value = kept
    if several:
        return Predicate(name, Operator(operator), tuple(map(_value, value)))
    return Predicate(name, Operator(operator), None if value is None else _value(value))


def _typed(value: Value) -> list[str]:
    return [type_of(value).value, format_value(value)]


def _value(kept: list[str]) -> Value:
    return parse_value(PropertyType(kept[0]), kept[1])
