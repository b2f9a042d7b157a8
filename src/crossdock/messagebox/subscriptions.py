"""Subscriptions: enlist, start, stop and unenlist services, and the subscriptions of running instances.

Whoever changes what matches holds the subscription lock alone, moves the epoch and says so; publishers hold it shared
while they commit. So no message lands among the suspended after the start that should have resumed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal, TypeVar
from uuid import UUID

import psycopg

from crossdock.errors import OutageError, OutdatedPlanError, TransientError, UsageError
from crossdock.message.property import PropertyRegistry, PropertyType, Value, type_of
from crossdock.messagebox.audit import DONE, UNCHANGED, record_act
from crossdock.messagebox.database import Database
from crossdock.messagebox.deployment import Deployment, deploy, settle_members
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.lifeline import EPOCH_CHANNEL, channel
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK
from crossdock.messagebox.statement import statement
from crossdock.messagebox.undeployment import (
    DeployedApplication,
    Leaving,
    Undeployed,
    deployed_applications,
    is_unfinished,
    leave,
    lock_left,
    undeploy,
)
from crossdock.messagebox.version import SubscriptionVersion
from crossdock.messagebox.whole_application import (
    ArtefactTransition,
    StateVerb,
    change_application,
    change_one,
    enable_application,
    refuse_foreign,
)
from crossdock.subscription.correlation import correlation_hash, shown_values
from crossdock.subscription.router import Epoch

State = Literal["started", "stopped", "unenlisted"]
# The epoch of a plan that was made where there was no MessageBox; and that of a MessageBox without any deployment.
NO_EPOCH, FIRST_EPOCH = Epoch(0, UUID(int=0)), 1
_ATTEMPTS, _DEADLOCKS = 50, 5
_SWEEPS, _SWEEP_SECONDS = 100, 0.05

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Transition:
    """What became of a send port, a group or an orchestration: its states, and how many references were resumed."""

    name: str
    before: State
    after: State
    resumed: int = 0


class Subscriptions:
    """`agent.subscriptions`: the verbs for what matches."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def deploy(self, deployment: Deployment, *, planned_at: Epoch | None = None, action: str = "deploy") -> bool:
        """Make the MessageBox agree with the application; False if it did already. Nobody publishes meanwhile.

        OutdatedPlanError if the epoch is not the one that it was `planned_at`. The audit calls it `action`.
        """
        self._database.refuse_limited(action)
        name = deployment.application

        def deployed(connection: psycopg.Connection) -> bool:
            if planned_at is not None:
                _refuse_moved(connection, planned_at)
            known = connection.execute(statement("read_digest"), {"application": name}).fetchone()
            changed = deploy(connection, deployment)
            if changed:
                _announce(connection)
                before = None if known is None else {"digest": known[0]}
                record_act(connection, action, name, before, {"digest": deployment.digest}, application=name)
            return changed

        return self._patiently(deployed)

    def undeploy(self, application: str, leaving: Leaving = "refuse") -> Undeployed:
        """Take an application away in one transaction, and end or keep what it leaves behind.

        A step of an instance that is being done meanwhile is finished, and what it leaves is ended or kept after it.
        UsageError: it is not deployed, or something is left and `leaving` is to refuse that.
        """
        self._database.refuse_limited("undeploy")
        done = self._without_deadlock(lambda: self._undeploy(application, leaving))
        for _ in range(_SWEEPS if leaving != "refuse" else 0):
            with self._database.connection() as connection:
                if not is_unfinished(connection, application, leaving):
                    break
            time.sleep(_SWEEP_SECONDS)
            ended, instances = self._without_deadlock(lambda: self._leave(application, leaving))
            living = done.instances_terminated + instances
            done = replace(done, terminated=done.terminated + ended, instances_terminated=living)
        return done

    def _undeploy(self, application: str, leaving: Leaving) -> Undeployed:
        with self._database.connection() as connection, connection.transaction():
            row = connection.execute(statement("lock_application"), {"application": application}).fetchone()
            if row is None or not row[0]:
                raise UsageError(_not_deployed(application, deployed_applications(connection)))
            living = [] if leaving == "refuse" else lock_left(connection, application)
            connection.execute(statement("lock_alone"), {"lock": SUBSCRIPTION_LOCK})
            _moved(connection)
            done = undeploy(connection, application, leaving, living)
            settle_members(connection)
            connection.execute(statement("keep_versions"))
            return done

    def _leave(self, application: str, leaving: Leaving) -> tuple[int, int]:
        with self._database.connection() as connection, connection.transaction():
            living = lock_left(connection, application)
            connection.execute(statement("lock_alone"), {"lock": SUBSCRIPTION_LOCK})
            return leave(connection, application, leaving, living)

    def _without_deadlock(self, act: Callable[[], _Made]) -> _Made:
        """Whoever holds the subscriptions still and then looks for an instance meets us: PostgreSQL ends one of us."""
        for _ in range(_DEADLOCKS):
            try:
                return act()
            except TransientError as error:
                if not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                    raise
        return act()

    def enlist(self, name: str) -> Transition:
        """Give a service its subscription, stopped: what matches is suspended until it is started."""
        return self._change("enlist", name, "stopped", only_from=("unenlisted",))

    def start(self, name: str) -> Transition:
        """Start a service, enlisting it if need be, and resume what was suspended because it was stopped."""
        return self._change("start", name, "started")

    def stop(self, name: str) -> Transition:
        """What matches from now on is suspended; what is queued is still delivered."""
        return self._change("stop", name, "stopped", only_from=("started", "stopped"))

    def unenlist(self, name: str) -> Transition:
        """Take the subscription away: nothing matches any more."""
        return self._change("unenlist", name, "unenlisted")

    def _change(self, action: str, name: str, after: State, *, only_from: Sequence[State] | None = None) -> Transition:
        def changed(connection: psycopg.Connection) -> Transition:
            transition, application = self._changed(connection, name, after, only_from)
            outcome = UNCHANGED if transition.before == transition.after else DONE
            facts = {"state": transition.before}, {"state": transition.after, "resumed": transition.resumed}
            record_act(connection, action, name, *facts, outcome, application=application)
            return transition

        return self._patiently(changed)

    @staticmethod
    def _changed(
        connection: psycopg.Connection, name: str, after: State, only_from: Sequence[State] | None
    ) -> tuple[Transition, str]:
        """What became of it, and its application."""
        kind, service, before, host, application = _found(connection, name)
        refuse_foreign(connection, f"{kind} {name!r}", application)
        if only_from is not None and before not in only_from:
            done = "already enlisted" if after == "stopped" and "unenlisted" in only_from else "not enlisted"
            lists = {"Send port": "ports", "Send port group": "groups"}.get(kind, "orchestrations")
            raise UsageError(f"{kind} {name!r} is {done}: its state is {before}. See: crossdock get {lists}")
        if before == after:
            return Transition(name, before, after), application
        _moved(connection)
        resumed = change_one(connection, service, name, before, after)
        members = settle_members(connection)
        for woken in {host, *(each for _, each, _ in members)} - {None}:
            assert woken is not None
            connection.execute(statement("announce"), {"channel": channel(woken)})
        return Transition(name, before, after, resumed + sum(count for _, _, count in members)), application

    def enable(self, name: str, *, enabled: bool) -> bool:
        """Enable or disable a receive location; False if it was so already."""
        with self._alone() as connection:
            row = connection.execute(statement("find_location_enabled"), {"name": name}).fetchone()
            if row is None:
                raise UsageError(f"There is no receive location {name!r} deployed. See: crossdock get locations")
            changed, application = bool(row[0]) != enabled, row[1]
            refuse_foreign(connection, f"Receive location {name!r}", application)
            if changed:
                _moved(connection)
                connection.execute(host_statement("set_location_enabled", None), {"name": name, "enabled": enabled})
            action, outcome = "enable" if enabled else "disable", DONE if changed else UNCHANGED
            facts = {"enabled": row[0]}, {"enabled": enabled}
            record_act(connection, action, name, *facts, outcome, application=application)
            return changed

    def change_application(self, verb: StateVerb, application: str) -> list[ArtefactTransition]:
        """Start, stop, enlist or unenlist everything of an application, in one transaction."""
        return self._patiently(
            lambda connection: change_application(connection, verb, application, partial(_moved, connection))
        )

    def enable_application(self, application: str, *, enabled: bool) -> list[ArtefactTransition]:
        """Enable or disable every receive location of an application, in one transaction."""
        with self._alone() as connection:
            return enable_application(connection, application, partial(_moved, connection), enabled=enabled)

    def kinds(self, name: str) -> tuple[bool, bool, bool]:
        """Whether a port, group or orchestration has this name; whether a location; whether an application."""
        [(subscribes, receives, is_application)] = self._database.rows("list_kinds", {"name": name})
        return subscribes, receives, is_application

    def versions(self, *, epoch: int | None = None, at: datetime | None = None) -> list[SubscriptionVersion]:
        """The subscriptions as they were in an epoch, or at a time; without either as they are now."""
        verb = "list_present_versions" if epoch is None and at is None else "list_versions"
        return self._database.listed(verb, SubscriptionVersion.from_row, {"epoch": epoch, "at": at})

    def services(self, subscriptions: Collection[int] | None = None) -> dict[int, tuple[int, str]]:
        """The service, and its name, that has or had each subscription, or each of these, as far as kept."""
        sought = {"subscription": None if subscriptions is None else list(subscriptions)}
        rows = self._database.rows("list_version_services", sought)
        return {number: (service, name) for number, service, name in rows}

    # Instances

    def correlate(self, properties: Sequence[str]) -> int:
        """The correlation by these properties; a new one is known to every publisher from here on."""
        sought = {"property": list(properties)}
        if known := self._database.rows("find_correlation", sought):
            return int(known[0][0])
        with self._alone() as connection:
            row = connection.execute(statement("find_correlation"), sought).fetchone()
            if row is None:
                _moved(connection)
                row = connection.execute(statement("create_correlation"), sought).fetchone()
            assert row is not None
            return int(row[0])

    def subscribe_instance(
        self, service: str, instance: UUID, values: Mapping[str, Value], *, bound_to: int | None = None
    ) -> int:
        """From here on, messages with these values go to this running instance of the service too.

        `bound_to` is the host instance in whose memory it waits: nobody else is given them.
        """
        properties = sorted(values)
        self._check_types(values)
        correlation = self.correlate(properties)
        case_sensitive = bool(self._database.value("read_case_sensitive"))
        subscription = {
            "instance": instance,
            "service": service,
            "correlation": correlation,
            "hash": correlation_hash(correlation, properties, values, case_sensitive=case_sensitive),
            "value": shown_values(properties, values),
            "bound_to": bound_to,
        }
        made = self._database.rows("subscribe_instance", subscription)
        if not made:
            raise UsageError(f"There is no service {service!r} whose instance could subscribe.")
        return int(made[0][0])

    def _check_types(self, values: Mapping[str, Value]) -> None:
        """A value of another type than its property's would never match, and nobody would know why."""
        declared = self._database.rows("list_properties")
        registry = PropertyRegistry([(name, PropertyType(type_)) for name, type_ in declared])
        for name, value in values.items():
            if registry.resolve(name) != name:
                raise UsageError(f"There is no property {name!r} to correlate by.")
            if type_of(value) != registry.type_of(name):
                raise UsageError(f"Property {name!r} is {registry.type_of(name)}, and {value!r} is {type_of(value)}.")

    def end_instance(self, *instances: UUID, host_id: int | None = None) -> int:
        """They are done: nothing goes to them any more. What they were given and did not take is suspended.

        `host_id` is where they are, for whoever may not look elsewhere.
        """
        with self._database.connection() as connection, connection.transaction():
            at = None if host_id is None else [host_id]
            connection.execute(statement("end_instance"), {"instance": list(instances), "at": at})
            row = connection.execute(host_statement("discard", host_id), {"instance": list(instances)}).fetchone()
        return 0 if row is None else len(row[0] or ())

    def _patiently(self, change: Callable[[psycopg.Connection], _Made]) -> _Made:
        """Alone. Where we would have to wait for a publisher that waits for us, we let it go first."""
        for _ in range(_ATTEMPTS):
            try:
                with self._alone() as connection:
                    return change(connection)
            except OutageError as error:
                if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                    raise
        raise TransientError("Publishers have in hand what would be resumed. Try again.")

    @contextmanager
    def _alone(self) -> Iterator[psycopg.Connection]:
        with self._database.connection() as connection, connection.transaction():
            connection.execute(statement("lock_alone"), {"lock": SUBSCRIPTION_LOCK})
            yield connection
            connection.execute(statement("keep_versions"))  # whatever was changed, and wherever it was


def _refuse_moved(connection: psycopg.Connection, planned_at: Epoch) -> None:
    row = connection.execute(statement("read_epoch")).fetchone()
    assert row is not None
    if planned_at.token != row[1] and not (planned_at == NO_EPOCH and row[0] == FIRST_EPOCH):
        raise OutdatedPlanError(
            f"The MessageBox has changed since the plan was made: its epoch was {planned_at.number}, and is {row[0]} "
            "now. Make the plan again with: crossdock plan APP --out FILE"
        )


def _not_deployed(application: str, deployed: Sequence[DeployedApplication]) -> str:
    known = ", ".join(each.name for each in deployed) or "none"
    return f"There is no application {application!r} deployed (there are: {known})."


def _found(connection: psycopg.Connection, name: str) -> tuple[str, int | None, State, int | None, str]:
    """(what, service, state, host, application) of a send port, an orchestration, or a group, which is no service."""
    port = connection.execute(statement("find_port"), {"name": name}).fetchone()
    if port is not None and port[3] is not None:
        raise UsageError(f"{name!r} follows its group and its port. Change {port[3]!r}, or the port.")
    if port is not None:
        return "Orchestration" if port[4] else "Send port", port[0], port[1], port[2], port[5]
    if (group := connection.execute(statement("find_group_state"), {"name": name}).fetchone()) is not None:
        return "Send port group", None, group[0], None, group[1]
    raise UsageError(
        f"There is no send port, group or orchestration {name!r} deployed. "
        "See: crossdock get ports|groups|orchestrations"
    )


def _moved(connection: psycopg.Connection) -> None:
    """What is changed from here on is of a new epoch."""
    connection.execute(host_statement("move_epoch", None))
    _announce(connection)


def _announce(connection: psycopg.Connection) -> None:
    """Inside the transaction, so that it goes out with the change or not at all; changes are rare."""
    connection.execute(statement("announce"), {"channel": EPOCH_CHANNEL})
