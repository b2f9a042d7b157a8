"""By what running instances may wait for the messages of a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from crossdock.messagebox.batch import Batch
from crossdock.subscription.correlation import correlation_hash
from crossdock.subscription.match import fold
from crossdock.subscription.router import Router


def correlation_hashes(router: Router, messages: Batch) -> Mapping[UUID, Sequence[int]]:
    """By what running instances may wait for messages, and the positions of those messages.

    A batch in which no type occurs that may follow a correlation costs nothing.
    """
    sought: defaultdict[UUID, list[int]] = defaultdict(list)
    if not router.correlations:
        return sought
    places = _Places(router, messages)
    for number, correlation in router.correlations.items():
        positions = places.of(correlation.types)
        if positions is None or positions:
            columns = [messages.column(name) for name in correlation.properties]
            if any(column.count(None) == len(column) for column in columns):
                continue
            for position in range(len(messages)) if positions is None else positions:
                known = {
                    name: value
                    for name, column in zip(correlation.properties, columns, strict=True)
                    if (value := column[position]) is not None
                }
                hash_ = correlation_hash(number, correlation.properties, known, case_sensitive=router.case_sensitive)
                if hash_ is not None:
                    sought[hash_].append(position)
    return sought


class _Places:
    """Where messages of some types are in a batch; worked out once, and only if somebody asks."""

    def __init__(self, router: Router, messages: Batch) -> None:
        self._router = router
        self._messages = messages
        self._by_type: dict[Any, list[int]] | None = None

    def of(self, types: frozenset[str] | None) -> list[int] | None:
        """None for all of them."""
        if types is None:
            return None
        if self._by_type is None:
            self._by_type = {}
            column = self._messages.column("BTS.MessageType")
            wanted = {self._fold(each) for known in self._router.correlations.values() for each in known.types or ()}
            occurring = {each for each in set(column) if self._fold(each) in wanted}
            if occurring:
                for position, each in enumerate(column):
                    if each in occurring:
                        self._by_type.setdefault(self._fold(each), []).append(position)
        if not self._by_type:
            return []
        return sorted(position for each in types for position in self._by_type.get(self._fold(each), ()))

    def _fold(self, type_: Any) -> Any:
        return fold(type_, case_sensitive=self._router.case_sensitive)
