"""Deployment: makes the tables of the MessageBox agree with one application, in the caller's transaction.

A send port that the application no longer names is unenlisted; a receive location is disabled. Nothing that has arrived
is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

import psycopg
from psycopg.types.json import Json

from crossdock.errors import ApplicationError
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.messagebox.begin import begin_suspended
from crossdock.messagebox.host_functions import create_functions, host_statement
from crossdock.messagebox.statement import statement
from crossdock.messagebox.stored_filter import stored_groups
from crossdock.subscription.predicate import Filter

# Shorter than the time after which PostgreSQL looks for deadlocks, and ends one of those who wait.
_PATIENCE_MILLISECONDS = 200
# What is tracked of a location or a service: nothing, what happens, or the bodies too.
Level = Literal["off", "events", "bodies"]


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
    track: Level = "events"


@dataclass(frozen=True, slots=True)
class DeployedLocation:
    """A receive location and the host that receives there."""

    name: str
    host: str
    definition: Mapping[str, Any]
    track: Level = "events"


@dataclass(frozen=True, slots=True)
class Version:
    """The code of an orchestration. `bundle` is a zip of the Python files beside the application.

    Two versions are the same if their digests are: comments may differ. `packages` are the installed distributions that
    the code imports, with Python itself, each with its version when it was deployed.
    """

    digest: str
    bundle: bytes = field(repr=False, compare=False)
    packages: Mapping[str, str] = field(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeployedOrchestration:
    """An orchestration: a service whose activation subscription has the groups of all its activating receives.

    `correlations`: the properties, sorted, and the types of the messages that may join a running instance, by name.
    """

    name: str
    host: str
    filter: Filter
    correlations: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    definition: Mapping[str, Any]
    version: Version
    track: Level = "events"

    @property
    def priority(self) -> int:
        return 5

    @property
    def ordered(self) -> bool:
        return False

    @property
    def two_way(self) -> bool:
        return False


Service = DeployedPort | DeployedOrchestration

# (host, priority, ordered, two-way, definition, filter, track) of a service as its row keeps them.
StoredService = tuple[str, int, bool, bool, Mapping[str, Any], Sequence[Sequence[Any]], str]


@dataclass(frozen=True, slots=True)
class Deployment:
    """An application as the MessageBox sees it; the definitions are for the processes that run it.

    `hosts` are those that the application declares, with their labels. The members of `groups` are among the ports,
    after the ports that they are. The values of `personal` properties are kept apart in the track.
    """

    application: str
    properties: Mapping[str, PropertyType]
    locations: Sequence[DeployedLocation]
    ports: Sequence[DeployedPort]
    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    groups: Sequence[str] = ()
    orchestrations: Sequence[DeployedOrchestration] = ()
    personal: Sequence[str] = ()

    @property
    def services(self) -> Sequence[Service]:
        """Whatever can subscribe."""
        return [*self.ports, *self.orchestrations]

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
    refuse_impossible(connection, deployment)
    before = connection.execute(statement("list_unanswerable")).fetchall()
    connection.execute(statement("record_application"), {"application": name, "digest": digest})
    moved = connection.execute(statement("move_epoch")).fetchone()
    assert moved is not None
    _declare_properties(connection, deployment)
    poorer = _deploy_hosts(connection, deployment, moved[0])
    _deploy_locations(connection, deployment)
    _deploy_groups(connection, deployment)
    _deploy_services(connection, deployment)
    _deploy_orchestrations(connection, deployment)
    settle_members(connection)
    for host in poorer:  # after ports have moved to hosts that have what this one lost
        connection.execute(statement("withhold_labelled"), {"host": host})
    connection.execute(statement("correlate_responses"))
    create_functions(connection)
    _refuse_unanswerable(connection, before)
    return True


def refuse_impossible(connection: psycopg.Connection, deployment: Deployment) -> None:
    """Refuse what collides with what is there. It only reads."""
    known = connection.execute(statement("list_properties")).fetchall()
    registry = PropertyRegistry([(name, PropertyType(type_)) for name, type_ in known])
    for name, type_ in deployment.properties.items():
        registry.declare(name, type_)
    locations = [location.name for location in deployment.locations]
    _refuse_foreign(connection, "receive_location", "Receive location", locations, deployment.application)
    names = [*deployment.groups, *(port.name for port in deployment.ports)]  # either is started and stopped by its name
    _refuse_foreign(connection, "send_port_group", "Send port group", names, deployment.application)
    names = [*deployment.groups, *(each.name for each in deployment.services)]
    _refuse_foreign(connection, "service", "Send port", names, deployment.application)
    _refuse_moving(connection, deployment.orchestrations)


def _declare_properties(connection: psycopg.Connection, deployment: Deployment) -> None:
    with connection.cursor() as cursor:
        declared = [{"name": name, "type": type_} for name, type_ in deployment.properties.items()]
        cursor.executemany(statement("declare_property"), declared)
        cursor.executemany(statement("make_personal"), [{"name": name} for name in deployment.personal])


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
    connection.execute(statement("renew_location_token"))
    connection.execute(statement("retire_locations"), {"application": deployment.application, "names": names})
    for location in deployment.locations:
        definition = Json(location.definition)
        parameters = [location.name, deployment.application, location.host, definition, location.track]
        connection.execute(statement("deploy_location"), parameters)


def _deploy_groups(connection: psycopg.Connection, deployment: Deployment) -> None:
    kept = {"application": deployment.application, "names": list(deployment.groups)}
    connection.execute(statement("retire_groups"), kept)
    for name in deployment.groups:
        connection.execute(statement("deploy_group"), {"name": name, "application": deployment.application})


def _deploy_services(connection: psycopg.Connection, deployment: Deployment) -> None:
    services = deployment.services
    names = [each.name for each in services]
    kept = {"application": deployment.application, "names": names}
    gone = connection.execute(statement("retire_services"), kept).fetchall()
    connection.execute(statement("unenlist"), {"service": [id_ for (id_,) in gone]})
    changed = changed_services(services, deployed_services(connection, names))
    _change_services(connection, deployment.application, changed)


def deployed_services(connection: psycopg.Connection, names: Sequence[str]) -> dict[str, StoredService]:
    """Those of these names that are deployed."""
    return {row[0]: row[1:] for row in connection.execute(statement("list_deployed"), {"names": list(names)})}


def changed_services(services: Sequence[Service], known: Mapping[str, StoredService]) -> list[Service]:
    """Those that are new, or not stored as they would be now. The others are not touched."""
    return [each for each in services if known.get(each.name) != stored_service(each)]


def stored_service(service: Service) -> StoredService:
    """A service as its row would keep it."""
    groups = stored_groups(service.filter)
    host, priority, ordered, two_way = service.host, service.priority, service.ordered, service.two_way
    return (host, priority, ordered, two_way, service.definition, groups, service.track)


def _deploy_orchestrations(connection: psycopg.Connection, deployment: Deployment) -> None:
    """Their code, and by what their instances correlate."""
    for each in deployment.orchestrations:
        version = each.version
        kept = {"digest": version.digest, "application": deployment.application, "bundle": version.bundle}
        connection.execute(statement("keep_version"), {**kept, "packages": Json(version.packages)})
        row = connection.execute(statement("find_service"), {"name": each.name}).fetchone()
        assert row is not None
        connection.execute(statement("forget_correlations"), {"service": row[0]})
        for name, (properties, types) in each.correlations.items():
            declared = {"service": row[0], "name": name, "property": list(properties), "types": list(types)}
            connection.execute(statement("correlate_orchestration"), declared)
        if row[1] == "started":
            resume_stopped(connection, row[0])


def _change_services(connection: psycopg.Connection, application: str, ports: Sequence[Service]) -> None:
    """Bring services up to date; a subscription is made anew under the same id, unless the service is unenlisted."""
    names = [port.name for port in ports]
    found = connection.execute(statement("list_service_places"), {"names": names}).fetchall()
    before: dict[str, int] = {name: host for name, host, _ in found}
    in_any_order = {name for name, _, ordered in found if not ordered}
    deployed = [_deploy_service(connection, application, port) for port in ports]
    moved = [
        {"service": service, "host": host}
        for name, (service, _, host) in zip(names, deployed, strict=True)
        if before.get(name, host) != host
    ]
    left = connection.execute(statement("follow_port")).fetchall()
    moved += [{"service": service, "host": host} for service, host, elsewhere, _ in left if elsewhere]
    enlisted = [{"service": service} for service, state, _ in deployed if state != "unenlisted"]
    # What orchestrations resume needs their correlations, which are deployed after them.
    started = [
        {"service": service}
        for port, (service, state, _) in zip(ports, deployed, strict=True)
        if state == "started" and before and isinstance(port, DeployedPort)
    ]
    lined_up = [
        {"service": service}
        for port, (service, _, _) in zip(ports, deployed, strict=True)
        if port.ordered and port.name in in_any_order
    ]
    lined_up += [{"service": service} for service, _, _, became_ordered in left if became_ordered]
    with connection.cursor() as cursor:
        # By the thousand: these go to the server without waiting for each answer.
        cursor.executemany(statement("move_references"), moved)
        cursor.executemany(statement("open_lease"), [{"service": service} for service, _, _ in deployed])
        cursor.executemany(statement("join_subqueue"), lined_up)
        cursor.executemany(statement("await_unordered"), lined_up)
        cursor.executemany(statement("enlist"), enlisted)
        cursor.executemany(statement("insert_predicates"), enlisted)
        cursor.executemany(statement("resume_stopped"), started)


def _deploy_service(connection: psycopg.Connection, application: str, port: Service) -> tuple[int, str, int]:
    """(service, state, host) of the service as it is now."""
    if isinstance(port, DeployedPort):
        kind: dict[str, Any] = {
            "class": "messaging isolated" if port.waits else "messaging",
            "group": port.group,
            "port": port.port,
            "starts": port.group is None and not port.waits,
            "receives": Json([]),
            "version": None,
        }
    else:
        kind = {"class": "orchestration", "group": None, "port": None, "starts": True}
        kind |= {"receives": Json(port.definition["receives"]), "version": port.version.digest}
    parameters = {
        **kind,
        "name": port.name,
        "application": application,
        "host": port.host,
        "priority": port.priority,
        "ordered": port.ordered,
        "two_way": port.two_way,
        "definition": Json(port.definition),
        "predicate": Json(stored_groups(port.filter)),
        "track": port.track,
    }
    row = connection.execute(statement("deploy_service"), parameters).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def enlist(connection: psycopg.Connection, service: int) -> None:
    """Give a service its subscription, or bring the one it has up to date."""
    connection.execute(host_statement("enlist", None), {"service": service})
    connection.execute(host_statement("insert_predicates", None), {"service": service})


def settle_members(connection: psycopg.Connection) -> list[tuple[int, int, int]]:
    """Let the members of groups follow their groups and ports; gives what was resumed: (service, host, references)."""
    resumed = []
    for service, before, host, after in connection.execute(statement("list_members")).fetchall():
        count = change_state(connection, service, before, after)
        if count:
            resumed.append((service, host, count))
    return resumed


def change_state(connection: psycopg.Connection, service: int, before: str, after: str) -> int:
    """Bring the subscription of a service from one state to another; gives how many references that resumed."""
    connection.execute(host_statement("set_service_state", None), {"service": service, "state": after})
    if after == "unenlisted":
        connection.execute(host_statement("unenlist", None), {"service": [service]})
    elif before == "unenlisted":
        enlist(connection, service)
    return resume_stopped(connection, service) if after == "started" else 0


def resume_stopped(connection: psycopg.Connection, service: int) -> int:
    """What was suspended because a service was stopped is for it now; gives how many references.

    A publisher that has opened a convoy waits for us at its end, so we do not wait for it: LockNotAvailable.
    """
    connection.execute(statement("set_lock_timeout"), {"milliseconds": str(_PATIENCE_MILLISECONDS)})
    begin_suspended(connection, service=service)
    connection.execute(statement("set_lock_timeout"), {"milliseconds": "0"})
    row = connection.execute(host_statement("resume_stopped", None), {"service": service}).fetchone()
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


def _refuse_moving(connection: psycopg.Connection, orchestrations: Sequence[DeployedOrchestration]) -> None:
    """What an orchestration runs is at its host."""
    for each in orchestrations:
        wanted = {"name": each.name, "host": each.host}
        row = connection.execute(statement("count_instances"), wanted).fetchone()
        if row is not None and row[0]:
            raise ApplicationError(
                f"orchestration {each.name!r}: it cannot move to host {each.host!r} while {row[0]} of its "
                f"instances run at {row[1]!r}; stop it and let them end, or give it another name"
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
