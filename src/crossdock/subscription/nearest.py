"""The nearest misses: which subscriptions a message that nobody wanted came closest to, and what was missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from crossdock.message.property import PropertyRegistry, Value
from crossdock.subscription.correlation import explain_correlation
from crossdock.subscription.explain import MASKED, GroupVerdict, explain, format_verdict
from crossdock.subscription.match import fold
from crossdock.subscription.predicate import Filter, Operator

_MESSAGE_TYPE = "BTS.MessageType"
_LOOKED_AT = 1_000


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A service whose filter failed by few predicates; `failing` shows each with the value it met.

    Or an orchestration of which no instance waits for the message; `failing` says by which correlation.
    """

    service: str
    holding: int
    failing: tuple[str, ...]


class Catalog:
    """Filters by the message type they ask for, so that a million of them need not all be looked at."""

    def __init__(
        self,
        filters: Iterable[tuple[str, Filter]],
        types: PropertyRegistry,
        *,
        case_sensitive: bool,
        correlations: Iterable[tuple[str, str, Sequence[str], Collection[str]]] = (),
        masked: Collection[str] = (),
    ) -> None:
        """`filters` are (service, filter), `correlations` (orchestration, name, properties, types of messages).

        Values of `masked` properties are not quoted.
        """
        self._masked = frozenset(masked)
        self._types = types
        self._case_sensitive = case_sensitive
        self._correlations = tuple(correlations)
        self._by_type: defaultdict[str, list[tuple[str, Filter]]] = defaultdict(list)
        self._any_type: list[tuple[str, Filter]] = []
        for name, filter_ in filters:
            wanted = set(_wanted_types(filter_))
            for type_ in wanted:
                self._by_type[fold(type_, case_sensitive=case_sensitive)].append((name, filter_))
            if not wanted:
                self._any_type.append((name, filter_))

    def nearest_misses(self, promoted: Mapping[str, Value], *, count: int = 5) -> list[NearMiss]:
        """The filters with the fewest failing predicates, those for the same message type first."""
        type_ = promoted.get(_MESSAGE_TYPE)
        same = self._by_type.get(fold(type_, case_sensitive=self._case_sensitive), []) if type_ is not None else []
        others = chain.from_iterable(filters for filters in self._by_type.values() if filters is not same)
        found: list[tuple[int, int, str, NearMiss]] = list(self._unfollowed(promoted))
        for rank, candidates in ((0, same), (1, self._any_type), (2, others)):
            for name, filter_ in islice(candidates, _LOOKED_AT):
                group = self._nearest_group(filter_, promoted)
                if group is not None:
                    found.append((rank, len(group.failing), name, _near_miss(name, group, self._masked)))
            if len(found) >= count:
                break
        return [miss for *_, miss in sorted(found, key=lambda each: each[:3])[:count]]

    def _unfollowed(self, promoted: Mapping[str, Value]) -> Iterator[tuple[int, int, str, NearMiss]]:
        """The correlations that messages of this type follow: none of their instances waits for these values."""
        for service, name, properties, types in self._correlations:
            # The values are only quoted here: which instances wait is known.
            shown = {**promoted, **{each: MASKED for each in self._masked if promoted.get(each) is not None}}
            verdict = explain_correlation(name, properties, types, shown, case_sensitive=self._case_sensitive)
            if verdict.of_type:
                miss = NearMiss(service, 1 + len(properties) - len(verdict.missing), (verdict.reason,))
                yield 0, 1 + len(verdict.missing), service, miss

    def _nearest_group(self, filter_: Filter, promoted: Mapping[str, Value]) -> GroupVerdict | None:
        return explain(filter_, promoted, self._types, case_sensitive=self._case_sensitive).nearest_miss


def _wanted_types(filter_: Filter) -> Iterator[str]:
    for predicate in chain.from_iterable(filter_.groups):
        if predicate.property == _MESSAGE_TYPE and predicate.operator in (Operator.EQUAL, Operator.IN):
            values = predicate.value if isinstance(predicate.value, tuple) else (predicate.value,)
            yield from map(str, values)


def _near_miss(name: str, group: GroupVerdict, masked: Collection[str]) -> NearMiss:
    lines = (format_verdict(verdict, masked=masked) for verdict in group.failing)
    failing = tuple(" ".join(line.removeprefix("no").split()) for line in lines)
    return NearMiss(name, len(group.predicates) - len(failing), failing)
