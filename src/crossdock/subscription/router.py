"""The router: which subscriptions of an epoch a message's promoted properties satisfy. Both lanes route with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crossdock.errors import PromotionError
from crossdock.message.property import PropertyRegistry, Value, format_value, parse_value, type_of
from crossdock.subscription.index.encode import ARROW_TYPES
from crossdock.subscription.index.index import SubscriptionIndex
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter

Int64s = npt.NDArray[np.int64]


class Properties(Protocol):
    """The promoted properties of many messages."""

    def __len__(self) -> int: ...
    def column(self, name: str) -> Sequence[Value | None]: ...


@dataclass(frozen=True, slots=True)
class Subscription:
    """On behalf of a service; its host's queue gets the reference, or the suspended queue if it is stopped.

    `subqueue` is 0 for the queue that all instances of the host share, else the service whose order is kept. `labels`
    are those of the host. `address` is the id by which messages name the port, or the group that it is in. `receives`
    are those of an orchestration as they are stored.
    """

    id: int
    service_id: int
    service: str
    host_id: int
    state: Literal["started", "stopped"]
    priority: int
    subqueue: int = 0
    two_way: bool = False
    labels: frozenset[str] = frozenset()
    address: str = ""
    receives: Sequence[Mapping[str, Any]] = ()


class Epoch(NamedTuple):
    """A state of the subscriptions. After a restore two may have the same number; no two have the same token."""

    number: int
    token: UUID


@dataclass(frozen=True, slots=True)
class CorrelationSet:
    """By the values of these properties instances wait; for messages of these types, or of any.

    One of an orchestration has a name, and belongs to its service.
    """

    properties: tuple[str, ...]
    types: frozenset[str] | None = None
    service_id: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ActivatingReceive:
    """What begins an instance of an orchestration: a message of this type, by this filter if there is one.

    The correlations that it initializes are named. In a convoy a message joins the instance that has its values.
    """

    type: str
    filter: Filter | None = None
    initializes: tuple[str, ...] = ()
    convoy: bool = False


@dataclass(frozen=True, slots=True)
class Tracking:
    """What is tracked: the application and the level of each location, and services with another level than events.

    `names` are those of the locations. The values of `personal` properties are kept apart.
    """

    locations: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    names: Mapping[str, int] = field(default_factory=dict)
    services: Mapping[int, str] = field(default_factory=dict)
    personal: frozenset[str] = frozenset()


def receive_of(receives: Sequence[ActivatingReceive], promoted: Mapping[str, Value], *, case_sensitive: bool) -> int:
    """By which of these a message begins an instance: the first that matches; the first of all if it is addressed."""
    matcher = Matcher(case_sensitive)
    type_ = matcher.fold(promoted.get("BTS.MessageType"))
    for number, each in enumerate(receives):
        if type_ == matcher.fold(each.type) and (each.filter is None or matcher.matches(each.filter, promoted)):
            return number
    return next((number for number, each in enumerate(receives) if type_ == matcher.fold(each.type)), 0)


@dataclass(frozen=True)
class Router:
    """All subscriptions of one epoch. Every matching subscription is given once, however many of its groups match."""

    epoch: Epoch
    subscriptions: Mapping[int, Subscription]
    index: SubscriptionIndex
    types: PropertyRegistry
    correlations: Mapping[int, CorrelationSet] = field(default_factory=dict)
    case_sensitive: bool = False
    receives: Mapping[int, Sequence[ActivatingReceive]] = field(default_factory=dict)  # by subscription
    tracking: Tracking = Tracking()

    def route(self, promoted: Mapping[str, Value]) -> list[Subscription]:
        """For one message, in the order of the subscriptions' ids."""
        return [self.subscriptions[number] for number in self.index.match_one(promoted)]

    def usable(self, promoted: Mapping[str, Value]) -> Mapping[str, Value]:
        """Those with a value that their property can have: the role of a host may have stored others."""
        return {name: value for name, value in promoted.items() if self._can_be(name, value)}

    def _can_be(self, name: str, value: Value) -> bool:
        if self.types.resolve(name) != name:
            return True
        type_ = self.types.type_of(name)
        try:
            return type_of(value) == type_ and parse_value(type_, format_value(value)) is not None
        except PromotionError:
            return False

    def match(self, messages: Properties) -> tuple[Int64s, Int64s]:
        """For many messages at once: message positions and subscription ids, by position and then by id."""
        chunks = list(self.index.match(self._batch(messages)))
        positions = np.concatenate([np.empty(0, np.int64), *(chunk for chunk, _ in chunks)])
        numbers = np.concatenate([np.empty(0, np.int64), *(chunk for _, chunk in chunks)])
        order = np.lexsort((numbers, positions))
        return positions[order], numbers[order]

    def match_few(self, messages: Iterable[Mapping[str, Value]]) -> tuple[Int64s, Int64s]:
        """The same for few, of which each has its properties together."""
        found = [(n, number) for n, promoted in enumerate(messages) for number in self.index.match_one(promoted)]
        pairs = np.array(found, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def correlation(self, properties: Sequence[str]) -> int | None:
        """The correlation by these properties that is no orchestration's; None if it is not known here."""
        sought = CorrelationSet(tuple(properties))
        return next((number for number, known in self.correlations.items() if known == sought), None)

    def correlation_of(self, service: int, name: str, properties: Sequence[str]) -> int | None:
        """The latest correlation of an orchestration by this name and these properties."""
        return max(
            (
                number
                for number, known in self.correlations.items()
                if (known.service_id, known.name, known.properties) == (service, name, tuple(properties))
            ),
            default=None,
        )

    @cached_property
    def latest_correlations(self) -> Mapping[tuple[int, str], int]:
        """The correlations that new instances have, by service and name; older ones are kept for those that run."""
        return latest_correlations(self.correlations)

    @cached_property
    def initializing(self) -> Int64s:
        """The subscriptions whose messages may begin an instance together with what it waits for."""
        found = [id_ for id_, each in self.receives.items() if any(receive.initializes for receive in each)]
        return np.array(sorted(found), np.int64)

    @cached_property
    def with_bodies(self) -> Int64s:
        """The subscriptions of services for which bodies are tracked."""
        wanted = {service for service, level in self.tracking.services.items() if level == "bodies"}
        found = [id_ for id_, each in self.subscriptions.items() if each.service_id in wanted] if wanted else []
        return np.array(sorted(found), np.int64)

    @cached_property
    def table(self) -> SubscriptionTable:
        """The subscriptions as columns."""
        return SubscriptionTable.of(self.subscriptions)

    def _batch(self, messages: Properties) -> pa.RecordBatch:
        """The properties that filters mention, as columns; what a message does not have is null."""
        names = sorted(self.index.properties)
        if not names:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(messages), pa.struct([])))
        columns = [pa.array(messages.column(name), ARROW_TYPES[self.types.type_of(name)]) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=names)


def latest_correlations(correlations: Mapping[int, CorrelationSet]) -> dict[tuple[int, str], int]:
    """Of the correlations of orchestrations the newest of each service and name."""
    return {
        (known.service_id, known.name): number
        for number, known in sorted(correlations.items())
        if known.service_id is not None and known.name is not None
    }


@dataclass(frozen=True, slots=True)
class SubscriptionTable:
    """Columns of the subscriptions, sorted by id, for decisions about many references at once."""

    id: Int64s
    service_id: Int64s
    host_id: Int64s
    priority: Int64s
    subqueue: Int64s
    started: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, subscriptions: Mapping[int, Subscription]) -> SubscriptionTable:
        rows = [subscriptions[number] for number in sorted(subscriptions)]
        return cls(
            np.array([row.id for row in rows], np.int64),
            np.array([row.service_id for row in rows], np.int64),
            np.array([row.host_id for row in rows], np.int64),
            np.array([row.priority for row in rows], np.int64),
            np.array([row.subqueue for row in rows], np.int64),
            np.array([row.state == "started" for row in rows], np.bool_),
        )

    def rows(self, ids: Int64s) -> Int64s:
        """Where these subscriptions are in the columns."""
        return np.searchsorted(self.id, ids)
