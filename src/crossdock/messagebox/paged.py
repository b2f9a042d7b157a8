"""Lists by page and figures for pages of people. What they cost does not grow with what is in the MessageBox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from crossdock.messagebox.database import Database
from crossdock.messagebox.instance_rows import InstanceRow
from crossdock.messagebox.instances import instance_row
from crossdock.messagebox.lifeline import INSTANCE_LOCK, SILENCE
from crossdock.messagebox.overview import InstanceOverview
from crossdock.messagebox.stored_filter import read_groups
from crossdock.subscription.predicate import Filter


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """A send port or an orchestration as it is deployed, without what waits for it."""

    name: str
    application: str
    host: str
    class_: str
    state: str
    ordered: bool
    two_way: bool
    definition: dict[str, Any]
    filter: Filter


@dataclass(frozen=True, slots=True)
class LocationEntry:
    """A receive location as it is deployed."""

    name: str
    application: str
    host: str
    enabled: bool
    definition: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SuspendedStep:
    """How many were suspended so many steps of time ago for one code at one port."""

    code: str
    port: str | None
    step: int
    count: int
    first: datetime
    last: datetime
    sample: UUID


class TotalMinutes(NamedTuple):
    """What went through the whole MessageBox in one step of time."""

    at: datetime
    received: int
    delivered: int
    failed: int


@dataclass(frozen=True, slots=True)
class LivingHost:
    """A host and its living instances."""

    name: str
    labels: Sequence[str]
    instances: Sequence[InstanceOverview]


class Paged:
    """`agent.paged`: the verbs for pages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def services(
        self,
        *,
        limit: int,
        after: str = "",
        application: str | None = None,
        state: str | None = None,
        search: str | None = None,
    ) -> list[ServiceEntry]:
        """By name; the next page is `after` the last name."""
        wanted = {"limit": limit, "after": after, "application": application, "state": state, "search": search}
        return self._database.listed("page_ports", _service, wanted)

    def find_services(self, names: Sequence[str]) -> list[ServiceEntry]:
        return self._database.listed("find_services", _service, {"name": list(names)})

    def locations(
        self, *, limit: int, after: str = "", application: str | None = None, search: str | None = None
    ) -> list[LocationEntry]:
        """By name; likewise."""
        wanted = {"limit": limit, "after": after, "application": application, "search": search}
        return self._database.listed("page_locations", _location, wanted)

    def instances(
        self, *, limit: int, after: UUID | None = None, state: str | None = None, orchestration: str | None = None
    ) -> list[InstanceRow]:
        """The oldest first; the next page is `after` the last id."""
        wanted = {"limit": limit, "after": after, "state": state, "orchestration": orchestration}
        return self._database.listed("page_instances", instance_row, wanted)

    def hosts(self) -> list[LivingHost]:
        """All of them: there are few."""
        return self._database.listed("list_living_hosts", _host, {"lock": INSTANCE_LOCK, "silence": SILENCE})

    def suspended_steps(self, *, step: timedelta, steps: int, limit: int) -> list[SuspendedStep]:
        """Of the newest suspended references, at most so many; what is older than all steps is in the last."""
        return self._database.listed("trend_suspended", SuspendedStep, {"step": step, "steps": steps, "limit": limit})

    def total_minutes(self, within: timedelta, step: timedelta) -> list[TotalMinutes]:
        """The oldest first."""
        return [TotalMinutes(*row) for row in self._database.rows("total_minutes", {"within": within, "step": step})]


def _service(*, definition: str, predicate: str, **columns: Any) -> ServiceEntry:
    return ServiceEntry(**columns, definition=json.loads(definition), filter=read_groups(json.loads(predicate)))


def _location(*, definition: str, **columns: Any) -> LocationEntry:
    return LocationEntry(**columns, definition=json.loads(definition))


def _host(*, instances: Sequence[dict[str, Any]], **columns: Any) -> LivingHost:
    return LivingHost(**columns, instances=[InstanceOverview.from_json(each) for each in instances])
