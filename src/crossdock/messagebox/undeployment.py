"""Undeployment: takes an application away, in the caller's transaction. What it leaves behind is ended or kept.

The rows of its artefacts stay, so that what is counted and what is kept still has names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import psycopg

from crossdock.errors import UsageError
from crossdock.messagebox.audit import record_act
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.statement import statement

# What becomes of what is left: it is refused where anything is, ended for good, or kept until the application is back.
Leaving = Literal["refuse", "terminate", "keep"]

_KEPT = "Application {application!r} was undeployed, and this is kept. Deploy it again, then resume this."


@dataclass(frozen=True, slots=True)
class Left:
    """What an application has not done: references that wait, are in delivery or are suspended; living instances."""

    waiting: int
    in_delivery: int
    suspended: int
    instances: int

    def __bool__(self) -> bool:
        return bool(self.waiting or self.in_delivery or self.suspended or self.instances)

    def __str__(self) -> str:
        counts = [
            (self.waiting, "message waits", "messages wait"),
            (self.in_delivery, "is in delivery", "are in delivery"),
            (self.suspended, "is suspended", "are suspended"),
            (self.instances, "instance lives", "instances live"),
        ]
        return ", ".join(f"{count:,} {one if count == 1 else more}" for count, one, more in counts if count)


@dataclass(frozen=True, slots=True)
class DeployedApplication:
    """An application that is deployed, with how many artefacts of each kind it has."""

    name: str
    deployed_at: datetime
    locations: int
    ports: int
    groups: int
    orchestrations: int


@dataclass(frozen=True, slots=True)
class Undeployed:
    """What was taken away, how many references and instances were ended, and how many are kept, suspended."""

    application: str
    locations: int
    ports: int
    groups: int
    orchestrations: int
    terminated: int
    kept: int
    instances_terminated: int
    instances_kept: int


def lock_left(connection: psycopg.Connection, application: str) -> list[UUID]:
    """The living instances, held still. Before the subscriptions are: steps and publishers lock them in that order."""
    living = [id_ for (id_,) in connection.execute(statement("lock_left"), {"application": application})]
    connection.execute(statement("lock_subscriptions"), {"hash": [], "instance": living})
    return living


def undeploy(connection: psycopg.Connection, application: str, leaving: Leaving, living: Sequence[UUID]) -> Undeployed:
    """Nobody publishes or settles meanwhile. `living` are instances that are held still.

    UsageError: something is left, and nobody said what is to become of it.
    """
    [before] = [each for each in deployed_applications(connection) if each.name == application]
    left = count_left(connection, application)
    if left and leaving == "refuse":
        raise UsageError(
            f"Application {application!r} is not undeployed: {left}. Let them finish, end them with --terminate, "
            "or keep them suspended until it is deployed again with --keep."
        )
    _take_away(connection, application)
    ended, instances = leave(connection, application, leaving, living)
    kept = count_left(connection, application)
    done = Undeployed(
        application,
        before.locations,
        before.ports,
        before.groups,
        before.orchestrations,
        ended,
        kept.waiting + kept.in_delivery + kept.suspended,
        instances,
        kept.instances,
    )
    record_act(connection, "undeploy", application, asdict(left), asdict(done), application=application)
    return done


def leave(
    connection: psycopg.Connection, application: str, leaving: Leaving, living: Sequence[UUID]
) -> tuple[int, int]:
    """End or keep what is left; gives how many references and instances were ended."""
    if leaving == "terminate":
        return _terminate(connection, application, living)
    if leaving == "keep":
        reason = _KEPT.format(application=application)
        connection.execute(statement("keep_instances"), {"id": list(living), "reason": reason})
        for verb in ("keep_queued", "keep_scheduled"):
            connection.execute(statement(verb), {"application": application, "reason": reason})
    return 0, 0


def is_unfinished(connection: psycopg.Connection, application: str, leaving: Leaving) -> bool:
    """Whether a step that was under way may still leave something, or has."""
    asked = {"application": application, "terminate": leaving == "terminate"}
    row = connection.execute(statement("is_unfinished"), asked).fetchone()
    return row is not None and bool(row[0])


def deployed_applications(connection: psycopg.Connection) -> list[DeployedApplication]:
    """By name."""
    return [DeployedApplication(*row) for row in connection.execute(statement("list_applications"))]


def count_left(connection: psycopg.Connection, application: str) -> Left:
    row = connection.execute(statement("count_left"), {"application": application}).fetchone()
    assert row is not None
    return Left(*row)


def _take_away(connection: psycopg.Connection, application: str) -> None:
    """Its locations, its groups, its services with their subscriptions. Other applications keep theirs."""
    nothing = {"application": application, "names": []}
    connection.execute(statement("renew_location_token"))
    connection.execute(statement("retire_locations"), nothing)
    connection.execute(statement("forget_unread"), nothing)
    connection.execute(statement("retire_groups"), nothing)
    gone = connection.execute(statement("retire_services"), nothing).fetchall()
    connection.execute(statement("unenlist"), {"service": [id_ for (id_,) in gone]})
    connection.execute(statement("forget_application"), nothing)


def _terminate(connection: psycopg.Connection, application: str, living: Sequence[UUID]) -> tuple[int, int]:
    """No code is run."""
    instances = end_instances(connection, living)
    ended = 0
    for verb in ("end_queued", "end_scheduled", "end_claimed", "end_suspended"):
        row = connection.execute(host_statement(verb, None), {"application": application}).fetchone()
        ended += 0 if row is None else row[0]
    return ended, len(instances)


def end_instances(connection: psycopg.Connection, ids: Sequence[UUID]) -> list[tuple[int, UUID, int, str]]:
    """End instances without running any code; gives (host, id, service, state before) of those that were there.

    What they were given and did not take is suspended. A step that is being done is finished first.
    """
    found = connection.execute(statement("lock_ending"), {"id": list(ids)}).fetchall()
    ended = [row[1] for row in found]
    if ended:
        connection.execute(statement("lock_subscriptions"), {"hash": [], "instance": ended})
        at = sorted({row[0] for row in found})
        connection.execute(statement("end_instance"), {"instance": ended, "at": at})
    for host in {row[0] for row in found}:
        mine = [row[1] for row in found if row[0] == host]
        held = connection.execute(host_statement("load_parked", host), {"host": host, "id": mine}).fetchall()
        connection.execute(host_statement("discard", host), {"instance": mine})
        left = {"left_instance": [row[0] for row in held], "left_message": [row[2] for row in held]}
        connection.execute(host_statement("end_instances", host), {"instance": mine, **left})
    return [(*row,) for row in found]
