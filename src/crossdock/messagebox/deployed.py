"""What is deployed of one application now, beside what a deployment would make of it. It only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from crossdock.messagebox.deployment import (
    Deployment,
    StoredService,
    changed_services,
    deployed_services,
    refuse_impossible,
)
from crossdock.messagebox.statement import statement
from crossdock.subscription.router import Epoch


@dataclass(frozen=True, slots=True)
class KnownService:
    """A deployed service. `class_` is `orchestration`, `messaging`, or that of a two-way receive port."""

    class_: str
    state: str
    group: str | None
    stored: StoredService


@dataclass(frozen=True, slots=True)
class Deployed:
    """One snapshot. `changed` are the services that a deployment would write: new ones, and those that differ.

    `references` are, by service, how many wait and how many are suspended. `epoch` is None if there is no MessageBox
    yet. `hosts` and `properties` are those of all applications.
    """

    epoch: Epoch | None
    changed: frozenset[str]
    digest: str | None = None
    properties: frozenset[str] = frozenset()
    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    locations: Mapping[str, tuple[str, Mapping[str, Any], str]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, KnownService] = field(default_factory=dict)
    references: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def nothing_deployed(deployment: Deployment) -> Deployed:
    """Where there is no MessageBox yet."""
    return Deployed(None, frozenset(each.name for each in deployment.services))


def read_deployed(connection: psycopg.Connection, deployment: Deployment) -> Deployed:
    """Raises ApplicationError if the deployment would be refused because of what is there."""
    row = connection.execute(statement("is_created")).fetchone()
    if row is None or not row[0]:
        return nothing_deployed(deployment)
    with connection.transaction():
        # One snapshot, and whatever would write fails.
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        refuse_impossible(connection, deployment)
        return _read(connection, deployment)


def _read(connection: psycopg.Connection, deployment: Deployment) -> Deployed:
    wanted = {"application": deployment.application}
    box = connection.execute(statement("read_box")).fetchone()
    digest = connection.execute(statement("read_digest"), wanted).fetchone()
    rows = connection.execute(statement("list_application_services"), wanted).fetchall()
    stored = deployed_services(connection, [name for name, *_ in rows])
    services = {name: KnownService(class_, state, group, stored[name]) for name, class_, state, group in rows}
    counted = connection.execute(statement("count_references"), {"names": list(services)})
    return Deployed(
        None if box is None else Epoch(box[1], box[2]),
        frozenset(each.name for each in changed_services(deployment.services, stored)),
        None if digest is None else digest[0],
        frozenset(name for name, _ in connection.execute(statement("list_properties"))),
        dict(connection.execute(statement("list_labels")).fetchall()),
        {
            name: (host, kept, track)
            for name, host, kept, track in connection.execute(statement("list_application_locations"), wanted)
        },
        dict(connection.execute(statement("list_application_groups"), wanted).fetchall()),
        services,
        {name: (waiting or 0, suspended or 0) for name, waiting, suspended in counted},
    )
