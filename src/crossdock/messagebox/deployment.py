"""Deployment: makes the tables of the MessageBox agree with one application, in the caller's transaction.

A send port that the application no longer names is unenlisted; a receive location is disabled. Nothing that has arrived
is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import psycopg
import psycopg.sql
from psycopg.types.json import Json

from crossdock.errors import ApplicationError
from crossdock.message.property import PropertyRegistry, PropertyType, format_value, type_of
from crossdock.messagebox.statement import statement
from crossdock.subscription.predicate import Filter, Operator, Predicate


@dataclass(frozen=True, slots=True)
class DeployedPort:
    """A send port: the host that serves it, the priority of its messages and the filter of its subscription.

    As member of a group it has the name `group/port`, and `group` and `port` say which. A two-way receive port, which
    `waits` for responses, has no filter.
    """

    name: str
    host: str
    priority: int
    filter: Filter
    definition: Mapping[str, Any]
    ordered: bool = False
    two_way: bool = False
    group: str | None = None
    port: str | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class DeployedLocation:
    """A receive location and the host that receives there."""

    name: str
    host: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deployment:
    """An application as the MessageBox sees it; the definitions are for the processes that run it.

    `hosts` are those that the application declares, with their labels. The members of `groups` are among the ports,
    after the ports that they are.
    """

    application: str
    properties: Mapping[str, PropertyType]
    locations: Sequence[DeployedLocation]
    ports: Sequence[DeployedPort]
    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    groups: Sequence[str] = ()

    @property
    def digest(self) -> str:
        """The same for the same deployment, so that deploying twice changes nothing."""
        return sha256(repr(self).encode()).hexdigest()


def deploy(connection: psycopg.Connection, deployment: Deployment) -> bool:
    """True if anything changed, and then the epoch has moved. Refuses what collides with other applications."""
    name = deployment.application
    known = connection.execute("SELECT digest FROM application WHERE name = %s", [name]).fetchone()
    if known is not None and known[0] == deployment.digest:
        return False
    before = connection.execute(statement("list_unanswerable")).fetchall()
    connection.execute(
        "INSERT INTO application (name, digest) VALUES (%s, %s)"
        " ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, deployed_at = now()",
        [name, deployment.digest],
    )
    moved = connection.execute(
        "UPDATE box SET epoch = epoch + 1, epoch_token = gen_random_uuid() RETURNING epoch"
    ).fetchone()
    assert moved is not None
    _declare_properties(connection, deployment.properties)
    _deploy_hosts(connection, deployment, moved[0])
    _deploy_locations(connection, deployment)
    _deploy_groups(connection, deployment)
    _deploy_ports(connection, deployment, moved[0])
    settle_members(connection, moved[0])
    _refuse_unanswerable(connection, before)
    return True


def _declare_properties(connection: psycopg.Connection, properties: Mapping[str, PropertyType]) -> None:
    known = connection.execute("SELECT name, type FROM property").fetchall()
    registry = PropertyRegistry([(name, PropertyType(type_)) for name, type_ in known])
    for name, type_ in properties.items():
        registry.declare(name, type_)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO property (name, type) VALUES (%s, %s) ON CONFLICT DO NOTHING", list(properties.items())
        )


def _deploy_hosts(connection: psycopg.Connection, deployment: Deployment, epoch: int) -> None:
    for name, labels in deployment.hosts.items():
        connection.execute("SELECT create_host(%s)", [name])
        parameters = {"host": name, "labels": sorted(set(labels)), "epoch": epoch}
        connection.execute(statement("set_labels"), parameters)


def _deploy_locations(connection: psycopg.Connection, deployment: Deployment) -> None:
    names = [location.name for location in deployment.locations]
    _refuse_foreign(connection, "receive_location", "Receive location", names, deployment.application)
    connection.execute("UPDATE box SET location_epoch = location_epoch + 1")
    connection.execute(
        "UPDATE receive_location SET enabled = false, deployed = false WHERE application = %s AND name <> ALL(%s)",
        [deployment.application, names],
    )
    for location in deployment.locations:
        parameters = [location.name, deployment.application, location.host, Json(location.definition)]
        connection.execute(statement("deploy_location"), parameters)


def _deploy_groups(connection: psycopg.Connection, deployment: Deployment) -> None:
    names = [*deployment.groups, *(port.name for port in deployment.ports)]  # either is started and stopped by its name
    _refuse_foreign(connection, "send_port_group", "Send port group", names, deployment.application)
    connection.execute(
        "UPDATE send_port_group SET deployed = false WHERE application = %s AND name <> ALL(%s)",
        [deployment.application, list(deployment.groups)],
    )
    for name in deployment.groups:
        connection.execute(statement("deploy_group"), {"name": name, "application": deployment.application})


def _deploy_ports(connection: psycopg.Connection, deployment: Deployment, epoch: int) -> None:
    names = [port.name for port in deployment.ports]
    _refuse_foreign(connection, "service", "Send port", [*names, *deployment.groups], deployment.application)
    gone = connection.execute(
        "UPDATE service SET deployed = false WHERE application = %s AND deployed AND name <> ALL(%s) RETURNING id",
        [deployment.application, names],
    ).fetchall()
    connection.execute(statement("unenlist"), {"service": [id_ for (id_,) in gone], "epoch": epoch})
    known = {row[0]: row[1:] for row in connection.execute(statement("list_deployed"), {"names": names})}
    changed = [
        port
        for port in deployment.ports
        if known.get(port.name)
        != (port.host, port.priority, port.ordered, port.two_way, port.definition, _stored_groups(port.filter))
    ]
    _change_ports(connection, deployment.application, changed, epoch)


def _change_ports(connection: psycopg.Connection, application: str, ports: Sequence[DeployedPort], epoch: int) -> None:
    """Bring ports up to date; a subscription is made anew under the same id, unless the port is unenlisted."""
    names = [port.name for port in ports]
    before: dict[str, int] = dict(
        connection.execute("SELECT name, host_id FROM service WHERE name = ANY(%s)", [names]).fetchall()
    )
    deployed = [_deploy_port(connection, application, port) for port in ports]
    moved = [
        {"service": service, "host": host}
        for name, (service, _, host) in zip(names, deployed, strict=True)
        if before.get(name, host) != host
    ]
    left = connection.execute(statement("follow_port")).fetchall()
    moved += [{"service": service, "host": host} for service, host in left]
    enlisted = [{"service": service, "epoch": epoch} for service, state, _ in deployed if state != "unenlisted"]
    started = [{"service": service} for service, state, _ in deployed if state == "started" and before]
    with connection.cursor() as cursor:
        # By the thousand: these go to the server without waiting for each answer.
        cursor.executemany(statement("move_references"), moved)
        cursor.executemany(statement("open_line"), [{"service": service} for service, _, _ in deployed])
        cursor.executemany(statement("enlist"), enlisted)
        cursor.executemany(statement("insert_predicates"), enlisted)
        cursor.executemany(statement("resume_stopped"), started)


def _deploy_port(connection: psycopg.Connection, application: str, port: DeployedPort) -> tuple[int, str, int]:
    """(service, state, host) of the port as it is now."""
    parameters = {
        "name": port.name,
        "application": application,
        "host": port.host,
        "priority": port.priority,
        "ordered": port.ordered,
        "two_way": port.two_way,
        "definition": Json(port.definition),
        "predicate": Json(_stored_groups(port.filter)),
        "class": "messaging isolated" if port.waits else "messaging",
        "group": port.group,
        "port": port.port,
        "starts": port.group is None and not port.waits,
    }
    row = connection.execute(statement("deploy_service"), parameters).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def enlist(connection: psycopg.Connection, service: int, epoch: int) -> None:
    """Give a service its subscription, or bring the one it has up to date."""
    connection.execute(statement("enlist"), {"service": service, "epoch": epoch})
    connection.execute(statement("insert_predicates"), {"service": service})


def settle_members(connection: psycopg.Connection, epoch: int) -> list[tuple[int, int, int]]:
    """Let the members of groups follow their groups and ports; gives what was resumed: (service, host, references)."""
    resumed = []
    for service, before, host, after in connection.execute(statement("list_members")).fetchall():
        count = change_state(connection, service, before, after, epoch)
        if count:
            resumed.append((service, host, count))
    return resumed


def change_state(connection: psycopg.Connection, service: int, before: str, after: str, epoch: int) -> int:
    """Bring the subscription of a service from one state to another; gives how many references that resumed."""
    connection.execute("UPDATE service SET state = %s WHERE id = %s", [after, service])
    if after == "unenlisted":
        connection.execute(statement("unenlist"), {"service": [service], "epoch": epoch})
    elif before == "unenlisted":
        enlist(connection, service, epoch)
    else:
        connection.execute("UPDATE subscription SET epoch = %s WHERE service_id = %s", [epoch, service])
    if after != "started":
        return 0
    row = connection.execute(statement("resume_stopped"), {"service": service}).fetchone()
    return 0 if row is None else int(row[0])


def _refuse_foreign(
    connection: psycopg.Connection, table: str, kind: str, names: Iterable[str], application: str
) -> None:
    query = psycopg.sql.SQL("SELECT name, application FROM {} WHERE name = ANY(%s) AND application <> %s")
    taken = connection.execute(query.format(psycopg.sql.Identifier(table)), [list(names), application]).fetchone()
    if taken is not None:
        raise ApplicationError(
            f"{kind} {taken[0]!r} already belongs to application {taken[1]!r}; names are unique in the whole group. "
            "Rename it, or use another --home."
        )


def _refuse_unanswerable(connection: psycopg.Connection, before: Sequence[tuple[Any, ...]]) -> None:
    """Also of other applications: this one may have taken a label from their host. What was so `before` stays."""
    for found in connection.execute(statement("list_unanswerable")):
        if found not in before:
            raise ApplicationError(unanswerable(*found))


def unanswerable(location: str, host: str, labels: Sequence[str]) -> str:
    """Why a two-way location cannot be deployed at a host that lacks these labels."""
    return (
        f"receive location {location!r}: it is two-way, and its host {host!r} lacks the label {', '.join(labels)} "
        "that its requests carry, so no answer could be given to it; give the host the label too"
    )


def _stored_groups(filter_: Filter) -> list[list[Any]]:
    return [
        [number, position, predicate.property, *_stored(predicate)]
        for number, group in enumerate(filter_.groups, start=1)
        for position, predicate in enumerate(group)
    ]


def _stored(predicate: Predicate) -> tuple[str, str, list[str] | None, int]:
    """(type, operator, value, pass): equality is looked up in the first pass, everything else checked in the second."""
    value = predicate.value
    if value is None:
        return (PropertyType.TEXT, predicate.operator, None, 2)
    values = value if isinstance(value, tuple) else (value,)
    first_pass = predicate.operator in (Operator.EQUAL, Operator.IN)
    return (type_of(values[0]), predicate.operator, [format_value(each) for each in values], 1 if first_pass else 2)
