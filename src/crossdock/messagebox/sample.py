"""What a sample says: how the whole MessageBox was at one moment. Everything that monitoring shows comes from these."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Flow:
    """What has gone through since the MessageBox was created, or how much of it in a second."""

    received: int | float = 0
    published: int | float = 0
    unrouted: int | float = 0
    receive_suspended: int | float = 0
    delivered: int | float = 0
    retried: int | float = 0
    suspended: int | float = 0


@dataclass(frozen=True, slots=True)
class SuspendedSample:
    """What is suspended for one reason. `kind` is that of the suspension, or `instance` for orchestrations."""

    code: str
    kind: str
    count: int
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class HostSample:
    """A host. `instances` are its living ones, by state; `oldest_seconds` is the age of what has waited longest."""

    name: str
    instances: dict[str, int]
    in_hand: int = 0
    ready: int = 0
    claimed: int = 0
    waiting: int = 0
    suspended: int = 0
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BoxSample:
    """The MessageBox as a whole. `exact` is false where something was too large to be counted and is an estimate."""

    exact: bool
    seconds: float
    total: Flow
    per_second: Flow
    unread: int
    ready: int
    claimed: int
    waiting: int
    suspended: int
    unrouted: int
    instances: int
    suspended_instances: int
    oldest_seconds: float | None
    spool_messages: int
    database_bytes: int
    ports_left_out: int
    hosts: tuple[HostSample, ...] = ()
    suspensions: tuple[SuspendedSample, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """A send port, an orchestration or a two-way receive port that waits for responses (`class_`)."""

    id: int
    name: str
    application: str
    class_: str
    host: str
    state: str
    delivered: int
    retried: int
    failed: int
    delivered_per_second: float = 0.0
    ready: int = 0
    claimed: int = 0
    waiting: int = 0
    suspended: int = 0
    running_instances: int = 0
    suspended_instances: int = 0
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LocationSample:
    """A receive location. `failing` sources are among the unread: they could not be read, and are tried again."""

    id: int
    name: str
    application: str
    enabled: bool
    received: int
    published: int
    unrouted: int
    suspended: int
    received_per_second: float = 0.0
    unread: int = 0
    failing: int = 0
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DetailSample:
    """The busiest services and receive locations, at most so many of each as monitoring shows."""

    services: tuple[ServiceSample, ...] = ()
    locations: tuple[LocationSample, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the MessageBox. `age_seconds` is how long ago that was when it was read."""

    number: int
    at: datetime
    age_seconds: float
    box: BoxSample
    details: DetailSample
