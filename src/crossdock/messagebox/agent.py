"""The Message Agent: the only door to the MessageBox. Each method is one verb and runs the statement of that name.

An agent is safe to share between threads. It reconnects by itself; what fails because PostgreSQL is away is a
TransientError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from crossdock.errors import TransientError, UnavailableError, UsageError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.message.property import PropertyType
from crossdock.messagebox.deployment import Deployment, deploy
from crossdock.messagebox.lifeline import INSTANCE_LOCK, Lifeline, channel
from crossdock.messagebox.load import load_filters, load_router
from crossdock.messagebox.migrate import SCHEMA, check_server, migrate
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK, EpochMovedError, publish
from crossdock.messagebox.rows import Published, Reference, Statistics, SuspendedMessage, storable
from crossdock.messagebox.statement import statement
from crossdock.receive.interchange import IntakeItem, Interchange
from crossdock.subscription.predicate import Filter
from crossdock.subscription.router import Router

_INTAKE_LOCK = 0x0C05_5D0E
_DEAD_GRACE = timedelta(seconds=5)
_SESSION = {
    # Publishing re-reads the epoch as its last step, and must see what others have committed since it began.
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
}


__all__ = ["Agent", "EpochMovedError"]


class Agent:
    """Opens connections when they are needed. Close it, or use it in a `with`."""

    def __init__(self, database: str, *, connections: int = 8, index_folder: Path | None = None) -> None:
        """`index_folder`: where processes of one machine share the files of the subscription index."""
        self.database = database
        self._index_folder = index_folder
        self._router: Router | None = None
        self._pool = ConnectionPool(
            database,
            min_size=0,
            max_size=connections,
            configure=_configure,
            check=ConnectionPool.check_connection,
            timeout=5,
            reconnect_timeout=0,
            open=True,
        )

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

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
            raise UnavailableError(f"The database cannot be reached: {_one_line(error)}") from error
        except psycopg.ProgrammingError as error:
            raise UsageError(f"--database is not the URL of a PostgreSQL database: {_one_line(error)}") from error

    def box_number(self) -> int:
        return int(self._value("SELECT number FROM box"))

    def epoch(self) -> int:
        return int(self._value("SELECT epoch FROM box"))

    # Intake ledger

    def list_intake(self, items: Sequence[tuple[int, bytes, int]]) -> int:
        """Enter (location, identity, size) of sources in the ledger; gives how many were new."""
        parameters = {
            "location": [location for location, _, _ in items],
            "identity": [identity for _, identity, _ in items],
            "size": [size for _, _, size in items],
            "lock": _INTAKE_LOCK,
        }
        return len(self._rows("list_intake", parameters)) if items else 0

    def next_intake_offset(self, start: int, *, items: int, size: int) -> int:
        """The ledger sequence up to which the next batch reads; `start` if there is nothing."""
        [(end,)] = self._rows("next_intake_offset", {"start": start, "items": items, "bytes": size})
        return start if end is None else int(end)

    def read_intake(self, start: int, end: int) -> list[IntakeItem]:
        return [IntakeItem(*row) for row in self._rows("read_intake", {"start": start, "end": end})]

    def settled_intake(self, *, after: int, limit: int = 1000) -> list[tuple[int, int, bytes]]:
        """(sequence, location, identity) of published sources that are still in the ledger."""
        return [(row[0], row[1], row[2]) for row in self._rows("settled_intake", {"after": after, "limit": limit})]

    def forget_intake(self, sequences: Sequence[int]) -> None:
        """Published and removed: delete the ledger rows."""
        if sequences:
            self._run("forget_intake", {"sequence": list(sequences)})

    def abandon_intake(self, sequences: Sequence[int]) -> None:
        """Not to be read, or not now: delete the ledger rows, except of what somebody published meanwhile."""
        if not sequences:
            return
        with self._connection() as connection, connection.transaction():
            # Lock, then look: the second statement sees what a publisher committed while the first one waited.
            connection.execute("SELECT FROM intake WHERE sequence = ANY(%s) FOR UPDATE", [list(sequences)])
            connection.execute(statement("abandon_intake"), {"sequence": list(sequences)})

    # Publishing

    def publish(self, interchanges: Sequence[Interchange], *, epoch: int | None = None) -> Published:
        """Publish each interchange exactly once; those published before are skipped.

        If the subscriptions change meanwhile they are matched again, unless the interchanges were read by the
        configuration of `epoch`: then EpochMovedError asks the caller to read them again.
        """
        if not interchanges:
            return Published()
        while True:
            router = self.router()
            try:
                if epoch is not None and router.epoch != epoch:
                    raise EpochMovedError
                with self._connection() as connection:
                    published = publish(connection, router, interchanges)
            except EpochMovedError:
                if epoch is not None:
                    raise
                continue
            self._notify(published.hosts)
            return published

    def router(self) -> Router:
        """The router of the current epoch, kept until the epoch moves."""
        if self._router is None or self._router.epoch != self.epoch():
            with self._connection() as connection:
                self._router = load_router(connection, self._router, self._index_folder)
        return self._router

    def filters(self) -> dict[int, Filter]:
        """The filters of all subscriptions, as objects."""
        with self._connection() as connection:
            return load_filters(connection)

    def _notify(self, hosts: Iterable[int]) -> None:
        """Wake the hosts after the commit; inside the transaction NOTIFY would serialise commits."""
        with self._connection() as connection:
            for host in hosts:
                connection.execute("SELECT pg_notify(%s, '')", [channel(host)])

    # Hosts

    def lifeline(self, host_id: int) -> Lifeline:
        """The life of a new host instance."""
        return Lifeline(self._connect, host_id)

    def _connect(self) -> psycopg.Connection:
        connection = psycopg.connect(self.database, autocommit=True)
        _configure(connection)
        return connection

    def dequeue(self, host_id: int, instance: int, *, limit: int, now: datetime) -> list[Reference]:
        """Claim up to `limit` references, in order of priority, with their messages."""
        parameters = {"host": host_id, "instance": instance, "limit": limit, "now": now}
        claimed = self._rows("dequeue", parameters)
        messages = self.messages([row[2] for row in claimed])
        return [
            Reference(sequence, service, attempt, messages[message])
            for _, sequence, message, service, attempt in sorted(claimed)
        ]

    def complete(self, host_id: int, instance: int, sequences: Sequence[int], *, now: datetime) -> None:
        if sequences:
            self._run("complete", _settlement(host_id, instance, sequences, now))

    def retry(
        self, host_id: int, instance: int, outcomes: Sequence[tuple[int, datetime, str]], *, now: datetime
    ) -> None:
        """Try these again later: (sequence, due, reason)."""
        if outcomes:
            parameters = _settlement(host_id, instance, [sequence for sequence, _, _ in outcomes], now)
            parameters |= {
                "due_at": [due for _, due, _ in outcomes],
                "reason": [storable(why) for _, _, why in outcomes],
            }
            self._run("retry", parameters)

    def suspend(self, host_id: int, instance: int, outcomes: Sequence[tuple[int, str]], *, now: datetime) -> None:
        if outcomes:
            parameters = _settlement(host_id, instance, [sequence for sequence, _ in outcomes], now)
            self._run("suspend", parameters | {"reason": [storable(why) for _, why in outcomes]})

    def requeue_due(self, host_id: int, *, now: datetime) -> None:
        self._run("requeue_due", {"host": host_id, "now": now})

    def release_dead(self, host_id: int) -> None:
        """Free what host instances that no longer live had claimed."""
        self._run("release_dead", {"host": host_id, "grace": _DEAD_GRACE, "lock": INSTANCE_LOCK})

    # Questions

    def messages(self, ids: Sequence[UUID]) -> dict[UUID, Message]:
        found: dict[UUID, Message] = {}
        for id_, context, name, body in self._rows("load_messages", {"message": list(dict.fromkeys(ids))}):
            earlier = found[id_].parts if id_ in found else ()
            found[id_] = Message(MessageId(id_), Context.from_json(context), (*earlier, Part(name, body)))
        return found

    def suspended(self, *, limit: int | None = None) -> list[SuspendedMessage]:
        with self._connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return [_suspended(row) for row in cursor.execute(statement("list_suspended"), {"limit": limit})]

    def statistics(self, *, publication: int = 0, delivery: int = 0) -> Statistics:
        """What is here now, and what was received and delivered after these marks."""
        with self._connection() as connection, connection.cursor(row_factory=class_row(Statistics)) as cursor:
            statistics = cursor.execute(statement("statistics"), {"publication": publication}).fetchone()
            ports = connection.execute(statement("delivered"), {"delivery": delivery}).fetchall()
        assert statistics is not None
        statistics.ports.update({name: int(count) for name, count in ports})
        return statistics

    def list_ports(self) -> list[dict[str, Any]]:
        return self._dictionaries("list_ports")

    def list_locations(self) -> list[dict[str, Any]]:
        return self._dictionaries("list_locations")

    # Deployment

    def deploy(self, deployment: Deployment) -> bool:
        """Make the MessageBox agree with the application; False if it did already. Nobody publishes meanwhile."""
        with self._connection() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [SUBSCRIPTION_LOCK])
            return deploy(connection, deployment)

    def properties(self) -> dict[str, PropertyType]:
        """The properties declared for the whole group."""
        return {name: PropertyType(type_) for name, type_ in self._query("SELECT name, type FROM property")}

    def hosts(self) -> dict[str, int]:
        return dict(self._query("SELECT name, id FROM host ORDER BY id"))

    def locations(self, *, enabled: bool = True) -> list[tuple[int, int, dict[str, Any]]]:
        """(id, host, definition) of the receive locations that are enabled, or that are not."""
        query = "SELECT id, host_id, definition FROM receive_location WHERE enabled = %(enabled)s"
        with self._connection() as connection:
            return connection.execute(query, {"enabled": enabled}).fetchall()

    def services(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(id, host, definition) of the send ports, also of those no longer enlisted."""
        return [(*row,) for row in self._query("SELECT id, host_id, definition FROM service")]

    # How statements are run

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        with _translated(), self._pool.connection() as connection:
            yield connection

    def _rows(self, verb: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return connection.execute(statement(verb), parameters).fetchall()

    def _run(self, verb: str, parameters: Mapping[str, Any]) -> None:
        with self._connection() as connection:
            connection.execute(statement(verb), parameters)

    def _dictionaries(self, verb: str) -> list[dict[str, Any]]:
        with self._connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement(verb)).fetchall()

    def _query(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return connection.execute(query).fetchall()

    def _value(self, query: str) -> Any:
        [row] = self._query(query) or [(None,)]
        if row[0] is None:
            raise UnavailableError("The MessageBox has not been created yet. Create it with: crossdock run APP")
        return row[0]


def _configure(connection: psycopg.Connection) -> None:
    """Our schema, and time-outs after which the server gives up on a client that vanished."""
    for name, value in {**_SESSION, "search_path": SCHEMA}.items():
        connection.execute("SELECT set_config(%s, %s, false)", [name, value])
    connection.commit()


@contextmanager
def _translated() -> Iterator[None]:
    """What fails because PostgreSQL is away, restarting or untangling a deadlock may work later."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
        raise TransientError(f"The MessageBox cannot be reached: {_one_line(error)}") from error
    except psycopg.errors.UndefinedTable as error:
        raise UnavailableError("The MessageBox has not been created yet. Create it with: crossdock run APP") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _settlement(host_id: int, instance: int, sequences: Sequence[int], now: datetime) -> dict[str, Any]:
    return {"host": host_id, "instance": instance, "sequence": list(sequences), "now": now}


def _suspended(row: Mapping[str, Any]) -> SuspendedMessage:
    context = Context.from_json(row["context"])

    def text(name: str) -> str | None:
        value = context.get(name)
        return None if value is None else str(value)

    return SuspendedMessage(
        id=row["id"],
        kind=row["kind"],
        reason=row["reason"],
        source_file=text("FILE.ReceivedFileName"),
        receive_location=text("BTS.ReceiveLocationName"),
        port=row["port"],
        type=text("BTS.MessageType"),
        bytes=int(row["bytes"] or 0),
        suspended_at=row["suspended_at"],
    )
