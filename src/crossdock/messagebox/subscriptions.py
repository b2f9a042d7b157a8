"""Subscriptions: enlist, start, stop and unenlist services, and the subscriptions of running instances.

Whoever changes what matches holds the subscription lock alone, moves the epoch and says so; publishers hold it shared
while they commit. So no message lands among the suspended after the start that should have resumed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import psycopg

from crossdock.errors import UsageError
from crossdock.message.property import PropertyRegistry, PropertyType, Value, type_of
from crossdock.messagebox.database import Database
from crossdock.messagebox.deployment import Deployment, change_state, deploy, settle_members
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.lifeline import EPOCH_CHANNEL, channel
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK
from crossdock.messagebox.statement import statement
from crossdock.subscription.correlation import correlation_hash, shown_values

State = Literal["started", "stopped", "unenlisted"]


@dataclass(frozen=True, slots=True)
class Transition:
    """What became of a send port or a group: its states before and after, and how many references were resumed."""

    name: str
    before: State
    after: State
    resumed: int = 0


class Subscriptions:
    """`agent.subscriptions`: the verbs for what matches."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def deploy(self, deployment: Deployment) -> bool:
        """Make the MessageBox agree with the application; False if it did already. Nobody publishes meanwhile."""
        with self._alone() as connection:
            changed = deploy(connection, deployment)
            if changed:
                _announce(connection)
            return changed

    def enlist(self, name: str) -> Transition:
        """Give a service its subscription, stopped: what matches is suspended until it is started."""
        return self._change(name, "stopped", only_from=("unenlisted",))

    def start(self, name: str) -> Transition:
        """Start a service, enlisting it if need be, and resume what was suspended because it was stopped."""
        return self._change(name, "started")

    def stop(self, name: str) -> Transition:
        """What matches from now on is suspended; what is queued is still delivered."""
        return self._change(name, "stopped", only_from=("started", "stopped"))

    def unenlist(self, name: str) -> Transition:
        """Take the subscription away: nothing matches any more."""
        return self._change(name, "unenlisted")

    def _change(self, name: str, after: State, *, only_from: Sequence[State] | None = None) -> Transition:
        with self._alone() as connection:
            kind, service, before, host = _found(connection, name)
            if only_from is not None and before not in only_from:
                done = "already enlisted" if after == "stopped" and "unenlisted" in only_from else "not enlisted"
                lists = "groups" if service is None else "ports"
                raise UsageError(f"{kind} {name!r} is {done}: its state is {before}. See: crossdock get {lists}")
            if before == after:
                return Transition(name, before, after)
            _refuse_empty_group(connection, name, after, is_group=service is None)
            epoch = _moved(connection)
            resumed = 0
            if service is None:
                connection.execute(statement("set_group_state"), {"name": name, "state": after})
            else:
                resumed = change_state(connection, service, before, after, epoch)
            members = settle_members(connection, epoch)
            for woken in {host, *(each for _, each, _ in members)} - {None}:
                assert woken is not None
                connection.execute(statement("announce"), {"channel": channel(woken)})
            return Transition(name, before, after, resumed + sum(count for _, _, count in members))

    def enable(self, name: str, *, enabled: bool) -> bool:
        """Enable or disable a receive location; False if it was so already."""
        with self._alone() as connection:
            row = connection.execute(statement("find_location_enabled"), {"name": name}).fetchone()
            if row is None:
                raise UsageError(f"There is no receive location {name!r} deployed. See: crossdock get locations")
            if row[0] == enabled:
                return False
            _moved(connection)
            connection.execute(statement("renew_location_token"))
            connection.execute(statement("set_location_enabled"), {"name": name, "enabled": enabled})
            return True

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
            connection.execute(statement("end_instance"), {"instance": list(instances)})
            row = connection.execute(host_statement("discard", host_id), {"instance": list(instances)}).fetchone()
        return 0 if row is None else len(row[0] or ())

    @contextmanager
    def _alone(self) -> Iterator[psycopg.Connection]:
        with self._database.connection() as connection, connection.transaction():
            connection.execute(statement("lock_alone"), {"lock": SUBSCRIPTION_LOCK})
            yield connection


def _found(connection: psycopg.Connection, name: str) -> tuple[str, int | None, State, int | None]:
    """(what it is, service, state, host) of a send port, or of a group, which is no service."""
    port = connection.execute(statement("find_port"), {"name": name}).fetchone()
    if port is not None and port[3] is not None:
        raise UsageError(f"{name!r} follows its group and its port. Change {port[3]!r}, or the port.")
    if port is not None:
        return "Send port", port[0], port[1], port[2]
    if (group := connection.execute(statement("find_group_state"), {"name": name}).fetchone()) is not None:
        return "Send port group", None, group[0], None
    raise UsageError(f"There is no send port or group {name!r} deployed. See: crossdock get ports|groups")


def _refuse_empty_group(connection: psycopg.Connection, name: str, after: State, *, is_group: bool) -> None:
    """A group that is enlisted has an enlisted port, or what it should be given would go nowhere without a word."""
    if is_group == (after == "unenlisted"):
        return
    row = connection.execute(statement("list_last_ports"), {"name": name}).fetchone()
    if is_group and row is None:
        raise UsageError(f"No port of group {name!r} is enlisted. Enlist one first, with: crossdock enlist NAME")
    if not is_group and row is not None:
        raise UsageError(f"{name!r} is the last enlisted port of group {row[0]!r}. Unenlist the group first.")


def _moved(connection: psycopg.Connection) -> int:
    row = connection.execute(statement("move_epoch")).fetchone()
    assert row is not None
    _announce(connection)
    return int(row[0])


def _announce(connection: psycopg.Connection) -> None:
    """Inside the transaction, so that it goes out with the change or not at all; changes are rare."""
    connection.execute(statement("announce"), {"channel": EPOCH_CHANNEL})
