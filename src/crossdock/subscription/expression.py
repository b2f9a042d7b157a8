"""Filters as boolean expressions: what Python code and filter text build, and how NOT and nesting are compiled away.

`(P.Region == "EU") & (P.Amount >= 1000)` builds the same tree as the text `Region = 'EU' AND Amount >= 1000`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from crossdock.errors import FilterError
from crossdock.message.property import PropertyRegistry
from crossdock.subscription.predicate import (
    GROUP_LIMIT,
    OPPOSITE,
    PREDICATE_LIMIT,
    Filter,
    Operator,
    Predicate,
    limited,
    refuse_long,
    typed_predicate,
)


class Expression:
    """Combine with `&`, `|` and `~`; using one as a bool raises, because `and` and `or` cannot be seen from here."""

    def __and__(self, other: Expression) -> Expression:
        return All((self, _expression(other)))

    def __or__(self, other: Expression) -> Expression:
        return Any((self, _expression(other)))

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise FilterError(
            "a filter expression has no truth value: write (P.A == 1) & (P.B == 2), with parentheses and &, | and ~ "
            "instead of `and`, `or` and `not`"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Comparison(Expression):
    """A predicate that has not met the declared properties yet.

    `position` is the place of its name in the text, if it has one, and `constant_positions` those of its constants.
    """

    name: str
    operator: Operator
    constant: object = None
    text: str | None = None
    position: int | None = None
    constant_positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class All(Expression):
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Any(Expression):
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Not(Expression):
    operand: Expression


class Property:
    """A property in a Python filter; every comparison gives an expression."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: object) -> Expression:  # type: ignore[override]
        return Comparison(self.name, Operator.EQUAL, value)

    def __ne__(self, value: object) -> Expression:  # type: ignore[override]
        return Comparison(self.name, Operator.NOT_EQUAL, value)

    def __lt__(self, value: object) -> Expression:
        return Comparison(self.name, Operator.LESS, value)

    def __le__(self, value: object) -> Expression:
        return Comparison(self.name, Operator.LESS_OR_EQUAL, value)

    def __gt__(self, value: object) -> Expression:
        return Comparison(self.name, Operator.GREATER, value)

    def __ge__(self, value: object) -> Expression:
        return Comparison(self.name, Operator.GREATER_OR_EQUAL, value)

    def __and__(self, mask: int) -> Expression:
        return Comparison(self.name, Operator.ANY_BIT, mask)

    def __bool__(self) -> NoReturn:
        raise FilterError(f"property {self.name!r} is not a filter by itself; compare it, or use .exists()")

    def exists(self) -> Expression:
        return Comparison(self.name, Operator.EXISTS)

    def in_(self, values: Iterable[object]) -> Expression:
        return Comparison(self.name, Operator.IN, tuple(values))

    def startswith(self, prefix: str) -> Expression:
        return Comparison(self.name, Operator.PREFIX, prefix)


class Properties:
    """`P.Amount`, or `P["a.b"]` for a name with dots."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Property:
        if name.startswith("__"):
            raise AttributeError(name)
        return Property(name)

    def __getitem__(self, name: str) -> Property:
        return Property(name)


P = Properties()


def compile_expression(registry: PropertyRegistry, expression: Expression) -> Filter:
    """The filter an expression means: types checked, NOT pushed down to the predicates, written as an OR of ANDs."""
    return limited(_groups(registry, expression, negated=False))


def _groups(registry: PropertyRegistry, expression: Expression, *, negated: bool) -> list[tuple[Predicate, ...]]:
    match expression:
        case Not(operand):
            return _groups(registry, operand, negated=not negated)
        case Comparison():
            return _comparison_groups(registry, expression, negated=negated)
        case All(operands) | Any(operands):
            parts = [_groups(registry, operand, negated=negated) for operand in operands]
            # De Morgan: under NOT, an AND becomes an OR of the negated operands, and the other way round.
            return (
                _conjunction(parts) if isinstance(expression, All) != negated else [g for part in parts for g in part]
            )
        case _:
            raise FilterError(f"{expression!r} is not a filter expression")


def _conjunction(parts: list[list[tuple[Predicate, ...]]]) -> list[tuple[Predicate, ...]]:
    groups: list[tuple[Predicate, ...]] = [()]
    for part in _joined(parts):
        many = len(groups) * len(part)
        longest = max(map(len, groups), default=0) + max(map(len, part), default=0)
        # Stop before the product grows out of hand.
        if many > 16 * GROUP_LIMIT or many * longest > GROUP_LIMIT * PREDICATE_LIMIT:
            raise FilterError(
                f"the filter needs more than {GROUP_LIMIT} groups once it is written as an OR of ANDs; "
                "use IN for alternatives of one property, or split it over several ports"
            )
        groups = list(dict.fromkeys((*left, *right) for left in groups for right in part))
    return groups


def _joined(parts: list[list[tuple[Predicate, ...]]]) -> Iterator[list[tuple[Predicate, ...]]]:
    """Neighbours of one group each as one, or a long AND would be written anew for each of its predicates."""
    run: dict[Predicate, None] = {}
    for part in (list(dict.fromkeys(part)) for part in parts):
        if len(part) == 1:
            run |= dict.fromkeys(part[0])
            refuse_long(run)
        else:
            yield [tuple(run)]
            yield part
            run = {}
    yield [tuple(run)]


def _comparison_groups(
    registry: PropertyRegistry, comparison: Comparison, *, negated: bool
) -> list[tuple[Predicate, ...]]:
    try:
        predicate = typed_predicate(registry, comparison.name, comparison.operator, comparison.constant)
    except FilterError as error:
        places = comparison.constant_positions
        wrong_constant = error.constant is not None and error.constant < len(places)
        position = places[error.constant or 0] if wrong_constant else comparison.position
        raise FilterError(error.reason, text=comparison.text, position=position) from error
    if not negated:
        return [(predicate,)]
    if predicate.operator is Operator.IN:
        assert isinstance(predicate.value, tuple)  # typed_predicate made it one
        return [tuple(Predicate(predicate.property, Operator.NOT_EQUAL, value) for value in predicate.value)]
    return [(Predicate(predicate.property, OPPOSITE[predicate.operator], predicate.value),)]


def _expression(operand: object) -> Expression:
    if not isinstance(operand, Expression):
        raise FilterError(
            f"{operand!r} is not a filter expression; put each comparison in parentheses: (P.A == 1) & (P.B == 2)"
        )
    return operand
