"""The meaning of a filter, plain and short: this is the specification that every faster way must agree with.

An absent property satisfies no predicate except NOT EXISTS. Text compares without regard to case and trailing blanks,
and orders by code point after folding, unless the MessageBox was created case sensitive. NaN satisfies only EXISTS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crossdock.message.property import Value
from crossdock.subscription.predicate import Filter, Group, Operator, Predicate


def fold(value: Any, *, case_sensitive: bool = False) -> Any:
    """The form in which values are compared; only text changes."""
    if not isinstance(value, str):
        return value
    return value.rstrip(" ") if case_sensitive else value.casefold().rstrip(" ")


def fold_prefix(prefix: str, *, case_sensitive: bool = False) -> str:
    """A prefix keeps its blanks: `LIKE 'New %'` does not match `Newark`."""
    return prefix if case_sensitive else prefix.casefold()


@dataclass(frozen=True, slots=True)
class Matcher:
    """Decides which filters a message's promoted properties satisfy."""

    case_sensitive: bool = False

    def matches(self, filter_: Filter, promoted: Mapping[str, Value]) -> bool:
        return any(self.group_holds(group, promoted) for group in filter_.groups)

    def group_holds(self, group: Group, promoted: Mapping[str, Value]) -> bool:
        return bool(group) and all(self.holds(predicate, promoted.get(predicate.property)) for predicate in group)

    def holds(self, predicate: Predicate, actual: Value | None) -> bool:
        """Whether one predicate holds for the value its property has; None is an absent property."""
        if predicate.operator is Operator.NOT_EXISTS:
            return actual is None
        if actual is None:
            return False
        if predicate.operator is Operator.EXISTS:
            return True
        try:
            return self._holds(predicate, self.fold(actual))
        except (TypeError, AttributeError):  # a value of another type than its property has: a host may promote it
            return False

    def _holds(self, predicate: Predicate, value: Any) -> bool:
        operator, constant = predicate.operator, predicate.value
        if operator is Operator.IN:
            return any(value == self.fold(each) for each in _values(constant))
        if operator in (Operator.PREFIX, Operator.NOT_PREFIX):
            prefix = fold_prefix(str(constant), case_sensitive=self.case_sensitive)
            return bool(value.startswith(prefix)) is (operator is Operator.PREFIX)
        return _compare(operator, value, self.fold(constant))

    def fold(self, value: Any) -> Any:
        return fold(value, case_sensitive=self.case_sensitive)


def _compare(operator: Operator, value: Any, constant: Any) -> bool:
    if value != value:
        return False  # NaN satisfies no comparison, not even !=
    match operator:
        case Operator.EQUAL:
            return bool(value == constant)
        case Operator.NOT_EQUAL:
            return bool(value != constant)
        case Operator.LESS:
            return bool(value < constant)
        case Operator.LESS_OR_EQUAL:
            return bool(value <= constant)
        case Operator.GREATER:
            return bool(value > constant)
        case Operator.GREATER_OR_EQUAL:
            return bool(value >= constant)
        case Operator.ANY_BIT:
            return bool(value & constant)
        case Operator.NO_BIT:
            return not value & constant
        case _:
            raise AssertionError(operator)


def _values(constant: Any) -> Iterable[Any]:
    return constant if isinstance(constant, tuple) else ()
