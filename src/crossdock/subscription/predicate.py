"""Filters: an OR of groups, each an AND of predicates over typed properties. Every way to write a filter ends here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from crossdock.errors import FilterError, PromotionError
from crossdock.message.property import PropertyRegistry, PropertyType, Value, format_value, parse_value

GROUP_LIMIT = 256
PREDICATE_LIMIT = 10_000
_STORABLE = re.compile("[^\0\ud800-\udfff]*")


class Operator(StrEnum):
    """What a predicate asks of its property. The value is how the operator is stored and written in YAML."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    EXISTS = "exists"
    NOT_EXISTS = "not exists"
    IN = "in"
    PREFIX = "prefix"
    NOT_PREFIX = "not prefix"
    ANY_BIT = "&"
    NO_BIT = "not &"


OPPOSITE: Mapping[Operator, Operator] = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.LESS: Operator.GREATER_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.LESS,
    Operator.GREATER: Operator.LESS_OR_EQUAL,
    Operator.LESS_OR_EQUAL: Operator.GREATER,
    Operator.EXISTS: Operator.NOT_EXISTS,
    Operator.NOT_EXISTS: Operator.EXISTS,
    Operator.PREFIX: Operator.NOT_PREFIX,
    Operator.NOT_PREFIX: Operator.PREFIX,
    Operator.ANY_BIT: Operator.NO_BIT,
    Operator.NO_BIT: Operator.ANY_BIT,
}
WITHOUT_VALUE = frozenset({Operator.EXISTS, Operator.NOT_EXISTS})
_ORDERING = frozenset({Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL})
_TEXT_ONLY = frozenset({Operator.PREFIX, Operator.NOT_PREFIX})
_INTEGER_ONLY = frozenset({Operator.ANY_BIT, Operator.NO_BIT})

Constant = Value | tuple[Value, ...] | None


def is_storable(text: str) -> bool:
    """PostgreSQL's text has neither NUL nor half of a surrogate pair."""
    return _STORABLE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Predicate:
    """One question about one property, by its full name. `value` is typed: a tuple for IN, None for EXISTS."""

    property: str
    operator: Operator
    value: Constant = None


Group = tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Matches when any group does; a group when all its predicates hold. Without groups it matches nothing."""

    groups: tuple[Group, ...] = ()

    def __str__(self) -> str:
        return " OR ".join(" AND ".join(map(format_predicate, group)) for group in self.groups)


def typed_predicate(registry: PropertyRegistry, name: str, operator: Operator, constant: object = None) -> Predicate:
    """A predicate checked against the declared properties. What does not fit is a FilterError that says why."""
    full_name = registry.resolve(name)
    if full_name is None:
        raise FilterError(_unknown_property(registry, name))
    if not registry.routable(full_name):
        raise FilterError(f"property {full_name!r} is only written, never promoted, so no filter can use it")
    type_ = registry.type_of(full_name)
    _check_operator(full_name, type_, operator)
    return Predicate(full_name, operator, _typed_constant(full_name, type_, operator, constant))


def filter_of_groups(registry: PropertyRegistry, groups: Sequence[Sequence[Mapping[str, Any]]]) -> Filter:
    """The structured spelling: a list of groups, each a list of `{property, operator, value}`."""
    return limited(
        [
            [typed_predicate(registry, *_structured(predicate, number)) for predicate in group]
            for number, group in enumerate(groups, start=1)
        ]
    )


def groups_of_filter(filter_: Filter) -> list[list[dict[str, Any]]]:
    """The structured spelling of a filter; `filter_of_groups` gives the same filter back."""
    return [[_structure(predicate) for predicate in group] for group in filter_.groups]


def limited(groups: Iterable[Iterable[Predicate]]) -> Filter:
    """A filter of these groups without repeats, if there are not too many."""
    unique = tuple(dict.fromkeys(tuple(dict.fromkeys(group)) for group in groups))
    for group in unique:
        refuse_long(group)
    if len(unique) > GROUP_LIMIT:
        raise FilterError(
            f"the filter needs {len(unique)} groups once it is written as an OR of ANDs, and {GROUP_LIMIT} is "
            "the most; use IN for alternatives of one property, or split it over several ports"
        )
    return Filter(unique)


def refuse_long(group: Sized) -> None:
    """A group that no filter may have."""
    if len(group) > PREDICATE_LIMIT:
        raise FilterError(f"a group of the filter has more than {PREDICATE_LIMIT:,} predicates; use IN, or split it")


def format_predicate(predicate: Predicate) -> str:
    """The predicate as filter text."""
    name, value = predicate.property, predicate.value
    match predicate.operator:
        case Operator.EXISTS:
            return f"EXISTS({name})"
        case Operator.NOT_EXISTS:
            return f"NOT EXISTS({name})"
        case Operator.IN:
            assert isinstance(value, tuple)  # typed_predicate made it one
            return f"{name} IN ({', '.join(map(format_constant, value))})"
        case Operator.PREFIX | Operator.NOT_PREFIX:
            escaped = str(value).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            return f"{name} {'NOT ' * (predicate.operator is Operator.NOT_PREFIX)}LIKE {format_constant(escaped + '%')}"
        case Operator.NO_BIT:
            return f"NOT {name} & {value}"
        case operator:
            assert value is not None
            assert not isinstance(value, tuple)
            return f"{name} {operator} {format_constant(value)}"


def format_constant(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | Decimal):
        return format_value(value)
    if isinstance(value, float) and value - value == 0:
        return format_value(value)
    return "'" + format_value(value).replace("'", "''") + "'"


def _unknown_property(registry: PropertyRegistry, name: str) -> str:
    meant = registry.suggest(name)
    hint = f"did you mean {meant!r}?" if meant else "declare it under `properties`"
    return f"property {name!r} is not declared; {hint}"


def _check_operator(name: str, type_: PropertyType, operator: Operator) -> None:
    if operator in _TEXT_ONLY and type_ is not PropertyType.TEXT:
        raise FilterError(f"LIKE needs a text property, and {name!r} is {type_}")
    if operator in _INTEGER_ONLY and type_ is not PropertyType.INTEGER:
        raise FilterError(f"& needs an integer property, and {name!r} is {type_}")
    if operator in _ORDERING and type_ is PropertyType.BOOLEAN:
        raise FilterError(f"property {name!r} is boolean, and booleans have no order; use = or !=")


def _typed_constant(name: str, type_: PropertyType, operator: Operator, constant: object) -> Constant:
    if operator in WITHOUT_VALUE:
        if constant is not None:
            raise FilterError(f"{operator} takes no value, and property {name!r} is given one")
        return None
    if operator is not Operator.IN:
        return _typed_value(name, type_, constant, 0)
    if isinstance(constant, str | Mapping) or not isinstance(constant, Iterable):
        raise FilterError(f"IN needs a list of values for property {name!r}")
    values = tuple(dict.fromkeys(_typed_value(name, type_, each, number) for number, each in enumerate(constant)))
    if not values:
        raise FilterError(f"IN needs at least one value for property {name!r}")
    return values


def _typed_value(name: str, type_: PropertyType, constant: object, number: int) -> Value:
    """The constant in the property's own type, from its text; quotes and numbers must agree with the type."""
    if constant is None:
        reason = f"property {name!r} is compared with nothing; use EXISTS to ask whether it is there"
        raise FilterError(reason, constant=number)
    if not _spelling_fits(type_, constant):
        raise FilterError(f"property {name!r} is {type_}, and {_spelled(constant)} is not", constant=number)
    if isinstance(constant, date) and not isinstance(constant, datetime):
        constant = datetime(constant.year, constant.month, constant.day, tzinfo=UTC)
    if isinstance(constant, datetime) and constant.tzinfo is None:
        constant = constant.replace(tzinfo=UTC)
    try:
        value = parse_value(type_, constant if isinstance(constant, str) else format_value(constant))  # type: ignore[arg-type]
    except PromotionError as error:
        raise FilterError(f"property {name!r} is {type_}, and {error}", constant=number) from error
    if isinstance(value, str) and not is_storable(value):
        raise FilterError(f"property {name!r} is compared with text that cannot be stored", constant=number)
    if value != value:
        raise FilterError(f"property {name!r} is compared with NaN, which equals nothing", constant=number)
    return value


def _spelling_fits(type_: PropertyType, constant: object) -> bool:
    if isinstance(constant, bool):
        return type_ is PropertyType.BOOLEAN
    if isinstance(constant, str):
        return True
    if isinstance(constant, int | Decimal | float):
        return type_ in (PropertyType.INTEGER, PropertyType.DECIMAL, PropertyType.FLOAT) or (
            type_ is PropertyType.BOOLEAN and constant in (0, 1)
        )
    return isinstance(constant, date) and type_ is PropertyType.DATETIME


def _spelled(constant: object) -> str:
    if isinstance(constant, str | int | Decimal | float | bool | datetime):
        return format_constant(constant)
    return repr(constant)


def _structured(predicate: Mapping[str, Any], group: int) -> tuple[str, Operator, object]:
    unknown = set(predicate) - {"property", "operator", "value"}
    if unknown or not {"property", "operator"} <= set(predicate):
        raise FilterError(f"group {group} of the filter: a predicate has the keys property, operator and value")
    try:
        operator = Operator(str(predicate["operator"]).lower())
    except ValueError as error:
        known = ", ".join(Operator)
        raise FilterError(f"group {group}: {predicate['operator']!r} is not one of the operators {known}") from error
    return str(predicate["property"]), operator, predicate.get("value")


def _structure(predicate: Predicate) -> dict[str, Any]:
    structured: dict[str, Any] = {"property": predicate.property, "operator": predicate.operator.value}
    if isinstance(predicate.value, tuple):
        structured["value"] = [_plain(value) for value in predicate.value]
    elif predicate.value is not None:
        structured["value"] = _plain(predicate.value)
    return structured


def _plain(value: Value) -> str | int | bool:
    """YAML and JSON carry text, integers and booleans exactly; everything else goes as text."""
    return value if isinstance(value, str | int) else format_value(value)
