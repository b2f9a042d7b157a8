"""Connections to PostgreSQL, and how statements are run. The parts of the agent stand on this; nobody else uses it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import psycopg
from psycopg.rows import kwargs_row
from psycopg_pool import ConnectionPool

from crossdock.errors import NotAllowedError, UnavailableError
from crossdock.messagebox.conninfo import checked
from crossdock.messagebox.history import History
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.migrate import SCHEMA
from crossdock.messagebox.outage import Outage, outage
from crossdock.messagebox.server_troubles import server_troubles
from crossdock.messagebox.statement import host_text, statement

_SESSION = {
    # Publishing re-reads the epoch as its last step, and must see what others have committed since it began.
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "60s",
    # Maintenance may take long, whoever publishes may have to wait for a deployment, and a lifeline is quiet for long.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
    # Our tables are often empty when PostgreSQL makes a plan, and to read all of an empty table costs nothing. It keeps
    # the plan, and the table fills: whatever looks for rows must go by an index, however few there seem to be.
    "enable_seqscan": "off",
    "jit": "off",
}
# A queue is often empty when PostgreSQL counts its rows. For one that it takes for empty it would rather read all that
# waits and sort it than go by the index that has it in order. For everything else a sort is a fine thing.
# And a claim need not be on disk before its messages are delivered: whatever settles them is written after it, and one
# that a crash of the server undoes was never made.
_CLAIMING = {"enable_sort": "off", "synchronous_commit": "off"}
_CHECK_SECONDS = 0.5
_PASSING = ("worked_at", "actor")  # of a connection
_NOT_CREATED = "The MessageBox has not been created yet. Create it with: crossdock run APP"


_NOTHING: Mapping[str, Any] = {}
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class Actor:
    """For whom a process acts, and why: what the audit says of its acts.

    `limit` are the rights that the person has at most, as `operator`, or `operator:Shop` for one application. None: all
    that the database user has. The connection carries it, and the functions of the MessageBox keep it.
    """

    person: str = ""
    reason: str = ""
    limit: frozenset[str] | None = None

    @property
    def is_administrator(self) -> bool:
        """Whether it has no limit of its own."""
        return self.limit is None or "administrator" in self.limit

    def settings(self) -> Mapping[str, str]:
        """As a connection carries it."""
        limit = "" if self.limit is None else json.dumps(sorted(self.limit))
        return {"crossdock.person": self.person, "crossdock.reason": self.reason, "crossdock.limit": limit}


_NOBODY = Actor()


class _Connection(psycopg.Connection):
    """Remembers when it was last seen to work, and for whom it acts."""

    worked_at = 0.0
    actor = _NOBODY


class Database:
    """Opens connections when they are needed. It reconnects by itself; what fails meanwhile is a TransientError."""

    def __init__(self, database: str, *, connections: int, actor: Actor = _NOBODY) -> None:
        self.address = checked(database)
        self._actor = actor
        self.times_elsewhere = 0
        self.outage = Outage()
        self.history = History(self._begin_anew)
        self._memories: list[Callable[[], None]] = []
        self._pool = _pool(database, connections, self._configure)
        self._claiming_pool = _pool(database, connections, self._configure_claiming)

    def acting_for(self, actor: Actor) -> Database:
        """The same with the same connections, for somebody else."""
        other = copy(self)
        other._actor = actor
        return other

    @property
    def actor(self) -> Actor:
        """For whom it acts."""
        return self._actor

    def refuse_limited(self, action: str) -> None:
        """NotAllowedError for a person who is no administrator, whatever the database user may do."""
        if not self._actor.is_administrator:
            raise NotAllowedError(f"{self._actor.person!r} may not {action}: that takes the right administrator.")

    def close(self) -> None:
        self._pool.close()
        self._claiming_pool.close()

    @cached_property
    def may_copy(self) -> bool:
        """Whether our user writes messages and references by itself; the role of a host works by functions.

        Asked before a connection is taken: there may be one only.
        """
        return bool(self.value("may_copy"))

    def troubles(self) -> list[str]:
        """What is wrong with the way to the server or with its settings, one sentence each."""
        with translated():
            return server_troubles(lambda: psycopg.connect(self.address, autocommit=True))

    def connect(self, **options: Any) -> psycopg.Connection:
        """A connection of one's own, outside the pool. The options are libpq's."""
        connection = psycopg.connect(self.address, autocommit=True, **options)
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_claiming(self) -> psycopg.Connection:
        """The same, for statements that read a queue or the ledger in its order."""
        connection = self.connect()
        _set(connection, _CLAIMING)
        return connection

    def _configure(self, connection: psycopg.Connection) -> None:
        _configure(connection)
        connection.execute(statement("become_owner"))
        self.history.meet(connection)

    def _configure_claiming(self, connection: psycopg.Connection) -> None:
        self._configure(connection)
        _set(connection, _CLAIMING)

    def remember(self, forget: Callable[[], None]) -> None:
        """Whoever keeps something of the MessageBox in memory says how to forget it, for when it is another one."""
        self._memories.append(forget)

    def _begin_anew(self) -> None:
        """The MessageBox is not what it was."""
        self.times_elsewhere += 1
        for forget in self._memories:
            forget()

    def connection(self) -> AbstractContextManager[psycopg.Connection]:
        """Each statement commits by itself, except inside `connection.transaction()`."""
        return self._using(self._pool)

    @contextmanager
    def _using(self, pool: ConnectionPool[_Connection]) -> Iterator[psycopg.Connection]:
        with translated(), pool.connection() as connection:
            try:
                if connection.actor != self._actor:
                    _set(connection, self._actor.settings())
                    connection.actor = self._actor
                yield connection
            except psycopg.errors.ReadOnlySqlTransaction:
                connection.close()  # after a failover the server that takes writes is another
                raise
        self.outage.worked()

    @contextmanager
    def lent(self) -> Iterator[psycopg.Connection]:
        """A connection on which code of others runs: nobody who has it next finds what that left."""
        with self.connection() as connection:
            assert isinstance(connection, _Connection)
            before = _driver_state(connection)
            try:
                yield connection
            finally:
                if _driver_state(connection) != before:
                    connection.close()
                if not connection.closed:
                    self._renew(connection)

    def _renew(self, connection: _Connection) -> None:
        """The session as it was when it began: its settings, its role, what it holds and what it listens to."""
        connection.execute(statement("renew_session"), prepare=False)
        connection.actor = _NOBODY
        self._configure(connection)

    def claiming(self) -> AbstractContextManager[psycopg.Connection]:
        """The same, for statements that read a queue in its order."""
        return self._using(self._claiming_pool)

    def claiming_rows(self, verb: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        query = self._host_statement(verb, parameters["host"])
        with self.claiming() as connection:
            return connection.execute(query, parameters, binary=True).fetchall()

    def _host_statement(self, verb: str, host_id: int) -> str:
        """By the function, where our user may do nothing else; the statement itself is a little faster."""
        return host_text(verb, host_id) if self.may_copy else host_statement(verb, host_id)

    def rows(self, verb: str, parameters: Mapping[str, Any] = _NOTHING) -> list[tuple[Any, ...]]:
        with self.connection() as connection:
            return connection.execute(statement(verb), parameters, binary=True).fetchall()

    def host_rows(self, verb: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        query = self._host_statement(verb, parameters["host"])
        with self.connection() as connection:
            return connection.execute(query, parameters, binary=True).fetchall()

    def run(self, verb: str, parameters: Mapping[str, Any]) -> None:
        with self.connection() as connection:
            connection.execute(statement(verb), parameters)

    def host_run(self, verb: str, parameters: Mapping[str, Any]) -> None:
        query = self._host_statement(verb, parameters["host"])
        with self.connection() as connection:
            connection.execute(query, parameters)

    def listed(self, verb: str, make: Callable[..., _Row], parameters: Mapping[str, Any] | None = None) -> list[_Row]:
        """A value for each row of the statement, made with its columns as keywords."""
        with self.connection() as connection, connection.cursor(row_factory=kwargs_row(make)) as cursor:
            return cursor.execute(statement(verb), parameters).fetchall()

    def row(self, verb: str, parameters: Mapping[str, Any] = _NOTHING) -> tuple[Any, ...]:
        """The one row that there is as soon as there is a MessageBox."""
        rows = self.rows(verb, parameters)
        if not rows or rows[0][0] is None:
            raise UnavailableError(_NOT_CREATED)
        return rows[0]

    def value(self, verb: str, parameters: Mapping[str, Any] = _NOTHING) -> Any:
        return self.row(verb, parameters)[0]


def _pool(
    database: str, connections: int, configure: Callable[[psycopg.Connection], None]
) -> ConnectionPool[_Connection]:
    return ConnectionPool(
        database,
        connection_class=_Connection,
        min_size=0,
        max_size=connections,
        kwargs={"autocommit": True},
        configure=configure,
        check=_check,
        timeout=5,
        reconnect_timeout=5,
        open=True,
    )


def _driver_state(connection: psycopg.Connection) -> dict[str, int]:
    """What the driver keeps for a connection: its factories, its adapters, whom it tells of notices."""
    kept = {name: value for name, value in vars(connection).items() if name not in _PASSING}
    return {name: len(value) if isinstance(value, list) else id(value) for name, value in kept.items()}


def _check(connection: psycopg.Connection) -> None:
    """See whether a connection still works, unless it did a moment ago: a round trip for every use costs too much."""
    assert isinstance(connection, _Connection)
    now = time.monotonic()
    if now - connection.worked_at > _CHECK_SECONDS:
        ConnectionPool.check_connection(connection)
    connection.worked_at = now


def _configure(connection: psycopg.Connection) -> None:
    """Our schema, and time-outs after which the server gives up on a client that vanished.

    Temporary tables come last: otherwise one that has the name of ours would stand for it.
    """
    newer = {"transaction_timeout": "0"} if connection.info.server_version >= 170000 else {}
    _set(connection, {**_SESSION, **newer, "search_path": f"{SCHEMA}, pg_temp"})


def _set(connection: psycopg.Connection, settings: Mapping[str, str]) -> None:
    connection.execute(
        "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS setting (name, value)",
        [list(settings), list(settings.values())],
    )


@contextmanager
def translated() -> Iterator[None]:
    """What fails because PostgreSQL is away, restarting, out of disk or untangling a deadlock may work later."""
    try:
        yield
    except psycopg.errors.UndefinedTable as error:
        raise UnavailableError(_NOT_CREATED) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise UnavailableError(
            f"The database user may not do this: {error.diag.message_primary}. Use the one that owns the MessageBox."
        ) from error
    except psycopg.Error as error:
        if (problem := outage(error)) is not None:
            raise problem from error
        raise
