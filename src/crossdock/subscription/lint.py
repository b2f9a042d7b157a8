"""Finds filters that are probably not what was meant: contradictions, filters that are always true, duplicates.

A property's predicates only tell values apart at their constants, so a few representative values decide for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from itertools import groupby

from crossdock.message.property import Value
from crossdock.subscription.match import Matcher, fold
from crossdock.subscription.predicate import Filter, Group, Operator, Predicate, format_predicate

_BITS = frozenset({Operator.ANY_BIT, Operator.NO_BIT})
_ORDERING = frozenset({Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL})
_HIGHEST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one port's filter that somebody should look at."""

    port: str
    kind: str
    message: str


def lint(filters: Mapping[str, Filter], promoted: Iterable[str]) -> list[Finding]:
    """Findings for the filters of ports, given the properties that some schema promotes."""
    known = frozenset(promoted)
    findings = [finding for port, filter_ in filters.items() for finding in _lint_one(port, filter_, known)]
    return findings + list(_duplicates(filters))


def _lint_one(port: str, filter_: Filter, promoted: frozenset[str]) -> Iterator[Finding]:
    for group in filter_.groups:
        for name, predicates in _by_property(group).items():
            if _never(predicates):
                written = " AND ".join(map(format_predicate, predicates))
                yield Finding(port, "contradiction", f"no value of {name!r} satisfies {written}")
    yield from _always(port, filter_)
    mentioned = dict.fromkeys(predicate.property for group in filter_.groups for predicate in group)
    for name in mentioned:
        if not name.startswith(("BTS.", "FILE.", "ErrorReport.")) and name not in promoted:
            yield Finding(port, "not promoted", f"no schema promotes {name!r}, so it is absent from every message")


def _always(port: str, filter_: Filter) -> Iterator[Finding]:
    """Groups about one property alone that leave no value out."""
    alone: dict[str, list[Group]] = {}
    for group in filter_.groups:
        names = {predicate.property for predicate in group}
        if len(names) == 1:
            alone.setdefault(names.pop(), []).append(group)
    for name, groups in alone.items():
        covering = Filter(tuple(groups))
        predicates = [predicate for group in groups for predicate in group]
        present = all(_matches(covering, name, value) for value in _representatives(predicates))
        if not present or any(predicate.operator in _BITS for predicate in predicates):
            continue
        if _matches(covering, name, None):
            yield Finding(port, "always true", f"{covering} holds for every message")
        elif any(predicate.operator is not Operator.EXISTS for predicate in predicates):
            yield Finding(port, "always true", f"{covering} holds whenever {name!r} is there; write EXISTS({name})")


def _duplicates(filters: Mapping[str, Filter]) -> Iterator[Finding]:
    def canonical(filter_: Filter) -> str:
        return repr(sorted(repr(sorted(repr(_folded(each)) for each in group)) for group in filter_.groups))

    routed = sorted(((canonical(filter_), port) for port, filter_ in filters.items() if filter_.groups))
    for _, same in groupby(routed, key=lambda pair: pair[0]):
        first, *others = [port for _, port in same]
        for other in others:
            yield Finding(other, "duplicate", f"the filter is the same as that of port {first!r}")


def _folded(predicate: Predicate) -> tuple[object, ...]:
    value, operator = predicate.value, predicate.operator
    if isinstance(value, tuple) and len(value) == 1:
        value, operator = value[0], Operator.EQUAL
    values = sorted(map(fold, value), key=repr) if isinstance(value, tuple) else fold(value)
    return (predicate.property, operator, values)


def _by_property(group: Group) -> dict[str, list[Predicate]]:
    found: dict[str, list[Predicate]] = {}
    for predicate in group:
        found.setdefault(predicate.property, []).append(predicate)
    return found


def _never(predicates: list[Predicate]) -> bool:
    operators = {predicate.operator for predicate in predicates}
    if operators & _BITS and operators & _ORDERING:
        return False  # bits inside a range are not told apart by a few values
    one = Filter((tuple(predicates),))
    values: list[Value | None] = [None, *_representatives(predicates)]
    return not any(_matches(one, predicates[0].property, value) for value in values)


def _matches(filter_: Filter, name: str, value: Value | None) -> bool:
    return Matcher().matches(filter_, {} if value is None else {name: value})


def _representatives(predicates: Iterable[Predicate]) -> list[Value]:
    """Each constant and its neighbours: every value behaves like one of them. One of any kind where there is none."""
    found: list[Value] = []
    for predicate in predicates:
        value = predicate.value
        for constant in value if isinstance(value, tuple) else [] if value is None else [value]:
            found += _around(constant)
    return [*found, *_bits(predicates)] or ["anything"]


def _bits(predicates: Iterable[Predicate]) -> list[Value]:
    """The value with every bit that some predicate wants and none forbids: if it does not satisfy all, none does."""
    wanted, forbidden = 0, 0
    for predicate in predicates:
        if predicate.operator is Operator.ANY_BIT and isinstance(predicate.value, int):
            wanted |= predicate.value
        elif predicate.operator is Operator.NO_BIT and isinstance(predicate.value, int):
            forbidden |= predicate.value
    return [wanted & ~forbidden] if wanted else []


def _around(constant: Value) -> list[Value]:
    if isinstance(constant, bool):
        return [True, False]
    if isinstance(constant, int):
        around = [constant - 1, constant, constant + 1, 0, -1, 2**63 - 1]
        return [value for value in around if -(2**63) <= value < 2**63]
    if isinstance(constant, Decimal):
        with localcontext(prec=60):  # the default would round a step away
            step = Decimal(1).scaleb(-18)
            return [constant - step, constant, constant + step]
    if isinstance(constant, float):
        return [math.nextafter(constant, -math.inf), constant, math.nextafter(constant, math.inf), math.nan]
    if isinstance(constant, datetime):
        tick = timedelta(microseconds=1)
        lowest, highest = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
        return [max(constant, lowest + tick) - tick, constant, min(constant, highest - tick) + tick]
    return ["", constant, constant + "\0", constant + _HIGHEST, _HIGHEST]
