"""The Message Agent: the only door to the MessageBox. Each method is one verb and runs the statement of that name.

An agent is safe to share between threads. It reconnects by itself; what fails because PostgreSQL is away is a
TransientError. The verbs are kept by what they are about: `ledger.py`, `queues.py`, `subscriptions.py`,
`suspensions.py`, `cleanup.py`; publishing and questions are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from crossdock.errors import UnavailableError, UsageError
from crossdock.message.message import MessageId, message_id
from crossdock.message.property import PropertyType
from crossdock.messagebox.caching import EpochWatch
from crossdock.messagebox.cleanup import Cleanup
from crossdock.messagebox.database import one_line
from crossdock.messagebox.ledger import Ledger
from crossdock.messagebox.lifeline import INSTANCE_LOCK, SILENCE
from crossdock.messagebox.load import load_filters, load_router
from crossdock.messagebox.migrate import check_server, migrate
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK, EpochMovedError, UnroutedError, publish
from crossdock.messagebox.rows import Published, Statistics
from crossdock.messagebox.statement import statement
from crossdock.messagebox.subscriptions import Subscriptions
from crossdock.messagebox.suspensions import Suspensions, reroute
from crossdock.receive.interchange import Interchange
from crossdock.subscription.predicate import Filter
from crossdock.subscription.router import Router

__all__ = ["Agent", "EpochMovedError", "UnroutedError"]


class Agent(Ledger, Suspensions, Subscriptions, Cleanup):
    """Opens connections when they are needed. Close it, or use it in a `with`."""

    def __init__(self, database: str, *, connections: int = 8, index_folder: Path | None = None) -> None:
        """`index_folder`: where processes of one machine share the files of the subscription index."""
        super().__init__(database, connections=connections)
        self._index_folder = index_folder
        self._router: Router | None = None
        self._loading = Lock()
        self._ids = _MessageIds(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The MessageBox itself

    def create(self, *, case_sensitive: bool = False) -> list[str]:
        """Create the schema or bring it up to date; gives the migrations applied."""
        with self._connection() as connection:
            return migrate(connection, case_sensitive=case_sensitive)

    def server_version(self) -> str:
        """Connect once, to see whether it works: the version of the server, or an error that says what is wrong."""
        try:
            with psycopg.connect(self.database, connect_timeout=10) as connection:
                return check_server(connection)
        except psycopg.OperationalError as error:
            raise UnavailableError(f"The database cannot be reached: {one_line(error)}") from error
        except psycopg.ProgrammingError as error:
            raise UsageError(f"--database is not the URL of a PostgreSQL database: {one_line(error)}") from error

    def create_host_roles(self) -> list[str]:
        """One database role for each host, which reaches the queues of that host only; gives their names."""
        try:
            with self._connection() as connection, connection.transaction():
                return [row[0] for row in connection.execute("SELECT create_host_role(name) FROM host ORDER BY id")]
        except psycopg.errors.InsufficientPrivilege as error:
            raise UnavailableError(f"The database user may not create roles: {one_line(error)}") from error

    def box_number(self) -> int:
        return int(self._value("SELECT number FROM box"))

    def epoch(self) -> int:
        return int(self._value("SELECT epoch FROM box"))

    def location_epoch(self) -> int:
        return int(self._value("SELECT location_epoch FROM box"))

    def watch_epoch(self) -> EpochWatch:
        """Hears of a new epoch as soon as it is there."""
        interval, _ = self.service_classes()["caching"]
        return EpochWatch(self._connect, interval.total_seconds())

    # Publishing

    def message_id(self) -> MessageId:
        """A new id, for a message that running code publishes."""
        return self._ids.next()

    def publish(self, interchanges: Sequence[Interchange], *, location_epoch: int | None = None) -> Published:
        """Publish each interchange exactly once; those published before are skipped.

        A standard interchange that cannot be routed whole is an UnroutedError, and then nothing is published. If the
        subscriptions change meanwhile they are matched again. If `location_epoch` is given and the receive
        locations have changed since, EpochMovedError asks the caller to read the interchanges again.
        """
        if not interchanges:
            return Published()
        try:
            router = self._router or self.router()
            with self._connection() as connection:
                published = publish(connection, router, interchanges, location_epoch=location_epoch)
        except EpochMovedError:
            published = self._publish_alone(interchanges, location_epoch)
        return published

    def _publish_alone(self, interchanges: Sequence[Interchange], location_epoch: int | None) -> Published:
        """The second attempt: subscriptions stay as they are until it is done, so that there is no third."""
        with self._subscriptions_held_still() as connection:
            router = self._load(connection)
            return publish(connection, router, interchanges, location_epoch=location_epoch)

    def route_again(self, ids: Sequence[UUID]) -> dict[UUID, bool]:
        """Route unrouted messages again; for each that is unrouted, whether somebody wants it now."""
        with self._subscriptions_held_still() as connection:
            routed, hosts = reroute(connection, self._load(connection), ids, self._messages)
        self._notify(hosts)
        return routed

    @contextmanager
    def _subscriptions_held_still(self) -> Iterator[psycopg.Connection]:
        """Nobody changes subscriptions meanwhile; the transactions are up to the caller."""
        with self._connection() as connection:
            connection.execute("SELECT pg_advisory_lock_shared(%s)", [SUBSCRIPTION_LOCK])
            try:
                yield connection
            finally:
                # If the session is gone, so is the lock; what was committed must not look as if it had failed.
                with suppress(psycopg.Error):
                    connection.execute("SELECT pg_advisory_unlock_shared(%s)", [SUBSCRIPTION_LOCK])

    def router(self) -> Router:
        """The router of the current epoch, kept until the epoch moves."""
        if self._router is None or self._router.epoch != self.epoch():
            with self._connection() as connection:
                return self._load(connection)
        return self._router

    def _load(self, connection: psycopg.Connection) -> Router:
        with self._loading:
            self._router = load_router(connection, self._router, self._index_folder)
            return self._router

    def filters(self) -> dict[int, Filter]:
        """The filters of all subscriptions, as objects."""
        with self._connection() as connection:
            return load_filters(connection)

    # Questions

    def statistics(self) -> Statistics:
        """What is here now, and what has gone through since the MessageBox was created."""
        with self._connection() as connection, connection.cursor(row_factory=class_row(Statistics)) as cursor:
            statistics = cursor.execute(statement("statistics"), {"now": datetime.now(UTC)}).fetchone()
            ports = connection.execute(statement("delivered")).fetchall()
        assert statistics is not None
        return replace(statistics, ports={name: int(count) for name, count in ports})

    def list_ports(self) -> list[dict[str, Any]]:
        return self._dictionaries("list_ports")

    def list_groups(self) -> list[dict[str, Any]]:
        return self._dictionaries("list_groups")

    def list_locations(self) -> list[dict[str, Any]]:
        return self._dictionaries("list_locations")

    def list_hosts(self) -> list[dict[str, Any]]:
        return self._dictionaries("list_hosts", {"lock": INSTANCE_LOCK, "silence": SILENCE})

    def list_subscriptions(self) -> list[dict[str, Any]]:
        return self._dictionaries("list_subscriptions")

    def properties(self) -> dict[str, PropertyType]:
        """The properties declared for the whole group."""
        return {name: PropertyType(type_) for name, type_ in self._query("SELECT name, type FROM property")}

    def case_sensitive(self) -> bool:
        return bool(self._value("SELECT case_sensitive FROM box"))

    def hosts(self) -> dict[str, int]:
        return dict(self._query("SELECT name, id FROM host ORDER BY id"))

    def locations(self, *, enabled: bool = True) -> list[tuple[int, int, dict[str, Any]]]:
        """(id, host, definition) of the receive locations that are enabled, or that are not."""
        query = "SELECT id, host_id, definition FROM receive_location WHERE enabled = %(enabled)s"
        with self._connection() as connection:
            return connection.execute(query, {"enabled": enabled}).fetchall()

    def services(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(id, host, definition) of the send ports, also of those no longer enlisted."""
        query = "SELECT id, host_id, definition FROM service WHERE class <> 'messaging isolated'"
        return [(*row,) for row in self._query(query)]

    def waiting_services(self) -> dict[str, int]:
        """Ids of the two-way receive ports, by their service's name."""
        return dict(self._query("SELECT name, id FROM service WHERE class = 'messaging isolated' AND deployed"))

    def group_id(self, group: str) -> str | None:
        """What to promote as BTS.SPGroupID, so that a message reaches all ports of a group; None if there is none.

        Raises UsageError if the group is not enlisted.
        """
        with self._connection() as connection:
            query = "SELECT group_id, state FROM send_port_group WHERE name = %s AND deployed"
            row = connection.execute(query, [group]).fetchone()
        return None if row is None else _address("Send port group", group, *row)

    def transport_id(self, port: str) -> str:
        """What to promote as BTS.SPTransportID, so that a message surely reaches this port, once.

        Raises UsageError if there is no such port, or if it is not enlisted.
        """
        query = (
            "SELECT transport_id, state FROM service"
            " WHERE name = %s AND deployed AND group_name IS NULL AND class <> 'messaging isolated'"
        )
        with self._connection() as connection:
            row = connection.execute(query, [port]).fetchone()
        if row is None:
            raise UsageError(f"There is no send port {port!r} deployed. List them with: crossdock get ports")
        return _address("Send port", port, *row)


def _address(what: str, name: str, id_: UUID, state: str) -> str:
    if state == "unenlisted":
        raise UsageError(
            f"{what} {name!r} is not enlisted: nothing reaches it. Enlist it with: crossdock enlist {name}"
        )
    return str(id_)


class _MessageIds:
    """Ids of this process: one number from the ledger's sequence, and positions counted here."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._lock = Lock()
        self._prefix: tuple[int, int] | None = None
        self._position = 0

    def next(self) -> MessageId:
        with self._lock:
            if self._prefix is None:
                [(number, _)] = self._agent._rows("draw_number", {})
                self._prefix = self._agent.box_number(), int(number)
            self._position += 1
            return message_id(*self._prefix, self._position)
