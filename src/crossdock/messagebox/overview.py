"""What the lists show: a value for each row of the statements in `sql/overview.sql` and of `list_hosts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

InstanceState = Literal["running", "throttled", "stuck", "stopping", "lost", "silent"]


@dataclass(frozen=True, slots=True)
class PortOverview:
    """A send port, or a send port as member of a group. `ready` are queued or claimed.

    `blocked` says why an ordered port does not go on, if it does not; what it holds back is `waiting`.
    """

    name: str
    application: str
    host: str
    state: str
    delivered: int
    ready: int
    waiting: int
    suspended: int
    blocked: str | None


@dataclass(frozen=True, slots=True)
class WaitingOverview:
    """A delivery that waits for its next attempt, or the first of an ordered port that is blocked.

    `attempt` is the number of the next one. `due_at` is None where a suspended message has to be dealt with first:
    `blocked_by`. `behind` waits for the same port, behind this one.
    """

    id: UUID | None
    port: str
    host: str
    attempt: int
    due_at: datetime | None
    blocked_by: UUID | None
    behind: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class OrchestrationOverview:
    """An orchestration. `version` is the digest of the code that new instances run; `running` and `suspended` are
    instances.
    """

    name: str
    application: str
    host: str
    state: str
    version: str
    running: int
    suspended: int


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group of send ports, with the names of its members."""

    name: str
    application: str
    state: str
    ports: Sequence[str]


@dataclass(frozen=True, slots=True)
class LocationOverview:
    """A receive location, with the counts of everything that ever came in there, and why sources are postponed."""

    name: str
    application: str
    host: str
    enabled: bool
    received: int
    published: int
    unrouted: int
    suspended: int
    postponed: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class SubscriptionOverview:
    """A subscription of an enlisted service with its filter, or of a running instance with what it waits for.

    An empty filter matches only what names the port. The MessageBox lists no filters: the service adds them.
    """

    name: str
    host: str
    kind: Literal["activation", "instance"]
    state: str
    priority: int
    id: int
    instance: UUID | None
    waits_for: str | None
    filter: str | None = None


@dataclass(frozen=True, slots=True)
class InstanceOverview:
    """A host instance that lives. `silent`: it has not been heard of for a while."""

    machine: str
    process: int
    class_: str
    state: InstanceState
    in_hand: int
    started_at: datetime
    seen_at: datetime

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> InstanceOverview:
        times = (datetime.fromisoformat(row[name]) for name in ("started_at", "seen_at"))
        return cls(row["machine"], row["process"], row["class"], row["state"], row["in_hand"], *times)


@dataclass(frozen=True, slots=True)
class HostOverview:
    """A host with its living instances. `oldest` is when the message was published that has waited longest."""

    name: str
    labels: Sequence[str]
    instances: Sequence[InstanceOverview]
    ready: int
    claimed: int
    waiting: int
    suspended: int
    oldest: datetime | None

    @classmethod
    def from_row(cls, *, instances: Sequence[Mapping[str, Any]], **columns: Any) -> HostOverview:
        return cls(instances=[InstanceOverview.from_json(each) for each in instances], **columns)
