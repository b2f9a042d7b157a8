"""The router: which subscriptions of an epoch a message's promoted properties satisfy. Both lanes route with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from crossdock.message.property import PropertyRegistry, Value
from crossdock.subscription.index import SubscriptionIndex
from crossdock.subscription.index_encode import ARROW_TYPES

_SMALL_BATCH = 64


@dataclass(frozen=True, slots=True)
class Subscription:
    """On behalf of a service; its host's queue gets the reference, or the suspended queue if it is stopped."""

    id: int
    service_id: int
    service: str
    host_id: int
    state: Literal["started", "stopped"]
    priority: int


@dataclass(frozen=True, slots=True)
class Router:
    """All subscriptions of one epoch. Every matching subscription is given once, however many of its groups match."""

    epoch: int
    subscriptions: Mapping[int, Subscription]
    index: SubscriptionIndex
    types: PropertyRegistry

    def route(self, promoted: Mapping[str, Value]) -> list[Subscription]:
        """For one message, in the order of the subscriptions' ids."""
        return [self.subscriptions[number] for number in self.index.match_one(promoted)]

    def route_all(self, messages: Sequence[Mapping[str, Value]]) -> list[list[Subscription]]:
        """For many messages at once, which costs less for each."""
        if len(messages) < _SMALL_BATCH:
            return [self.route(promoted) for promoted in messages]
        found: list[list[int]] = [[] for _ in messages]
        for positions, numbers in self.index.match(self._batch(messages)):
            for position, number in zip(positions.tolist(), numbers.tolist(), strict=True):
                found[position].append(number)
        return [[self.subscriptions[number] for number in sorted(numbers)] for numbers in found]

    def _batch(self, messages: Sequence[Mapping[str, Value]]) -> pa.RecordBatch:
        """The properties that filters mention, as columns; what a message does not have is null."""
        names = sorted(self.index.properties)
        if not names:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(messages), pa.struct([])))
        columns = [
            pa.array([promoted.get(name) for promoted in messages], ARROW_TYPES[self.types.type_of(name)])
            for name in names
        ]
        return pa.RecordBatch.from_arrays(columns, names=names)
