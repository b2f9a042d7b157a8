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
from psycopg.types.json import Json

from crossdock.errors import ApplicationError
from crossdock.message.property import PropertyRegistry, PropertyType, format_value, type_of
from crossdock.messagebox.host_functions import create_functions
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
    name, digest = deployment.application, deployment.digest
    known = connection.execute(statement("read_digest"), {"application": name}).fetchone()
    if known is not None and known[0] == digest:
        return False
    before = connection.execute(statement("list_unanswerable")).fetchall()
    connection.execute(statement("record_application"), {"application": name, "digest": digest})
    moved = connection.execute(statement("move_epoch")).fetchone()
    assert moved is not None
    _declare_properties(connection, deployment.properties)
    poorer = _deploy_hosts(connection, deployment, moved[0])
    _deploy_locations(connection, deployment)
    _deploy_groups(connection, deployment)
    _deploy_ports(connection, deployment, moved[0])
    settle_members(connection, moved[0])
    for host in poorer:  # after ports have moved to hosts that have what this one lost
        connection.execute(statement("withhold_labelled"), {"host": host})
    connection.execute(statement("correlate_responses"))
    create_functions(connection)
    _refuse_unanswerable(connection, before)
    return True


def _declare_properties(connection: psycopg.Connection, properties: Mapping[str, PropertyType]) -> None:
    known = connection.execute(statement("list_properties")).fetchall()
    registry = PropertyRegistry([(name, PropertyType(type_)) for name, type_ in known])
    for name, type_ in properties.items():
        registry.declare(name, type_)
    with connection.cursor() as cursor:
        declared = [{"name": name, "type": type_} for name, type_ in properties.items()]
        cursor.executemany(statement("declare_property"), declared)


def _deploy_hosts(connection: psycopg.Connection, deployment: Deployment, epoch: int) -> list[int]:
    """Gives the hosts that have lost a label."""
    poorer = []
    for name, labels in deployment.hosts.items():
        connection.execute(statement("create_host"), {"host": name})
        row = connection.execute(statement("read_labels"), {"host": name}).fetchone()
        assert row is not None
        parameters = {"host": name, "labels": sorted(set(labels)), "epoch": epoch}
        connection.execute(statement("set_labels"), parameters)
        if set(row[1]).difference(labels):
            poorer.append(row[0])
    return poorer


def _deploy_locations(connection: psycopg.Connection, deployment: Deployment) -> None:
    names = [location.name for location in deployment.locations]
    _refuse_foreign(connection, "receive_location", "Receive location", names, deployment.application)
    connection.execute(statement("renew_location_token"))
    connection.execute(statement("retire_locations"), {"application": deployment.application, "names": names})
    for location in deployment.locations:
        parameters = [location.name, deployment.application, location.host, Json(location.definition)]
        connection.execute(statement("deploy_location"), parameters)


def _deploy_groups(connection: psycopg.Connection, deployment: Deployment) -> None:
    names = [*deployment.groups, *(port.name for port in deployment.ports)]  # either is started and stopped by its name
    _refuse_foreign(connection, "send_port_group", "Send port group", names, deployment.application)
    kept = {"application": deployment.application, "names": list(deployment.groups)}
    connection.execute(statement("retire_groups"), kept)
    for name in deployment.groups:
        connection.execute(statement("deploy_group"), {"name": name, "application": deployment.application})


def _deploy_ports(connection: psycopg.Connection, deployment: Deployment, epoch: int) -> None:
    names = [port.name for port in deployment.ports]
    _refuse_foreign(connection, "service", "Send port", [*names, *deployment.groups], deployment.application)
    kept = {"application": deployment.application, "names": names}
    gone = connection.execute(statement("retire_services"), kept).fetchall()
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
    found = connection.execute(statement("list_service_places"), {"names": names}).fetchall()
    before: dict[str, int] = {name: host for name, host, _ in found}
    in_any_order = {name for name, _, ordered in found if not ordered}
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
    lined_up = [
        {"service": service}
        for port, (service, _, _) in zip(ports, deployed, strict=True)
        if port.ordered and port.name in in_any_order
    ]
    with connection.cursor() as cursor:
        # By the thousand: these go to the server without waiting for each answer.
        cursor.executemany(statement("move_references"), moved)
        cursor.executemany(statement("open_lease"), [{"service": service} for service, _, _ in deployed])
        cursor.executemany(statement("join_subqueue"), lined_up)
        cursor.executemany(statement("await_unordered"), lined_up)
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
    connection.execute(statement("set_service_state"), {"service": service, "state": after})
    if after == "unenlisted":
        connection.execute(statement("unenlist"), {"service": [service], "epoch": epoch})
    elif before == "unenlisted":
        enlist(connection, service, epoch)
    else:
        connection.execute(statement("touch_subscription"), {"service": service, "epoch": epoch})
    if after != "started":
        return 0
    row = connection.execute(statement("resume_stopped"), {"service": service}).fetchone()
    return 0 if row is None else int(row[0])


def _refuse_foreign(
    connection: psycopg.Connection, table: str, kind: str, names: Iterable[str], application: str
) -> None:
    sought = {"kind": table, "names": list(names), "application": application}
    taken = connection.execute(statement("find_foreign"), sought).fetchone()
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
