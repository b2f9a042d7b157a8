"""Why a message matches a subscription, or why not: every predicate with the value it met, and the nearest miss.

It asks `match.py` about each predicate, so that it can say nothing else than the specification.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from crossdock.errors import brief
from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter, Group, Predicate, format_constant, format_predicate

MASKED = "***"  # what is shown of a personal value


@dataclass(frozen=True, slots=True)
class PredicateVerdict:
    """One predicate: its property with type, the value the message has (None: absent), and whether it holds."""

    predicate: Predicate
    type: PropertyType
    actual: Value | None
    holds: bool


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """One group: it holds when it has predicates and all of them hold."""

    predicates: tuple[PredicateVerdict, ...]

    @property
    def holds(self) -> bool:
        return bool(self.predicates) and all(verdict.holds for verdict in self.predicates)

    @property
    def failing(self) -> tuple[PredicateVerdict, ...]:
        return tuple(verdict for verdict in self.predicates if not verdict.holds)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on a whole filter, group by group."""

    groups: tuple[GroupVerdict, ...]

    @property
    def matches(self) -> bool:
        return any(group.holds for group in self.groups)

    @property
    def nearest_miss(self) -> GroupVerdict | None:
        """The group with the fewest failing predicates, the first of equals; None if the filter matches or is empty."""
        candidates = [group for group in self.groups if group.predicates]
        if self.matches or not candidates:
            return None
        return min(candidates, key=lambda group: len(group.failing))


def explain(
    filter_: Filter,
    promoted: Mapping[str, Value],
    types: PropertyRegistry | Mapping[str, PropertyType],
    *,
    case_sensitive: bool = False,
) -> Explanation:
    """What the specification says about each predicate of a filter for a message's promoted properties."""
    matcher = Matcher(case_sensitive)
    return Explanation(tuple(_explain_group(group, promoted, types, matcher) for group in filter_.groups))


def fewest_misses(filter_: Filter, promoted: Mapping[str, Value], matcher: Matcher) -> int | None:
    """How many predicates fail in the group that comes nearest: 0 if it matches, None without a group to meet."""
    groups = (group for group in filter_.groups if group)
    failing = (sum(not matcher.holds(each, promoted.get(each.property)) for each in group) for group in groups)
    return min(failing, default=None)


def format_explanation(explanation: Explanation) -> list[str]:
    """Lines to show: the verdict, then the groups; without a match, the nearest miss is marked."""
    if not explanation.groups:
        return ["does not match: the filter has no groups"]
    lines = ["matches" if explanation.matches else "does not match"]
    nearest = explanation.nearest_miss
    for number, group in enumerate(explanation.groups, start=1):
        mark = " (nearest miss)" if group is nearest and len(explanation.groups) > 1 else ""
        lines.append(
            f"  group {number} {'holds' if group.holds else 'fails'}{mark}{'' if group.predicates else ': empty'}"
        )
        lines.extend(f"    {format_verdict(verdict)}" for verdict in group.predicates)
    return lines


def format_verdict(verdict: PredicateVerdict, *, masked: Collection[str] = ()) -> str:
    """One line: `no   Amount >= 1000    (Amount is decimal 12.50)`. Values of `masked` properties are `***`."""
    name = verdict.predicate.property
    met = "absent"
    if verdict.actual is not None:
        met = f"{verdict.type} {MASKED if name in masked else brief(format_constant(verdict.actual))}"
    return f"{'yes' if verdict.holds else 'no '}  {format_predicate(verdict.predicate)}    ({name} is {met})"


def _explain_group(
    group: Group, promoted: Mapping[str, Value], types: PropertyRegistry | Mapping[str, PropertyType], matcher: Matcher
) -> GroupVerdict:
    verdicts = []
    for predicate in group:
        name, actual = predicate.property, promoted.get(predicate.property)
        type_ = types.type_of(name) if isinstance(types, PropertyRegistry) else types[name]
        verdicts.append(PredicateVerdict(predicate, type_, actual, matcher.holds(predicate, actual)))
    return GroupVerdict(tuple(verdicts))
