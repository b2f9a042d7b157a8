"""The router: which subscriptions of an epoch a message's promoted properties satisfy. Both lanes route with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crossdock.message.property import PropertyRegistry, Value
from crossdock.subscription.index.encode import ARROW_TYPES
from crossdock.subscription.index.index import SubscriptionIndex

Int64s = npt.NDArray[np.int64]


class Properties(Protocol):
    """The promoted properties of many messages."""

    def __len__(self) -> int: ...
    def column(self, name: str) -> Sequence[Value | None]: ...


@dataclass(frozen=True, slots=True)
class Subscription:
    """On behalf of a service; its host's queue gets the reference, or the suspended queue if it is stopped.

    `subqueue` is 0 for the queue that all instances of the host share, else the service whose order is kept. `labels`
    are those of the host. `address` is the id by which messages name the port, or the group that it is in.
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


class Epoch(NamedTuple):
    """A state of the subscriptions. After a restore two may have the same number; no two have the same token."""

    number: int
    token: UUID


@dataclass(frozen=True)
class Router:
    """All subscriptions of one epoch. Every matching subscription is given once, however many of its groups match."""

    epoch: Epoch
    subscriptions: Mapping[int, Subscription]
    index: SubscriptionIndex
    types: PropertyRegistry
    correlations: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    case_sensitive: bool = False

    def route(self, promoted: Mapping[str, Value]) -> list[Subscription]:
        """For one message, in the order of the subscriptions' ids."""
        return [self.subscriptions[number] for number in self.index.match_one(promoted)]

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
