"""Connections to PostgreSQL, and how statements are run. The verbs stand on this; nobody else uses it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from crossdock.errors import TransientError, UnavailableError
from crossdock.messagebox.migrate import SCHEMA
from crossdock.messagebox.statement import host_statement, statement

_SESSION = {
    # Publishing re-reads the epoch as its last step, and must see what others have committed since it began.
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "60s",
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
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)
_CHECK_SECONDS = 0.5
_NOT_CREATED = "The MessageBox has not been created yet. Create it with: crossdock run APP"


class _Connection(psycopg.Connection):
    """Remembers when it was last seen to work."""

    worked_at = 0.0


class Database:
    """Opens connections when they are needed. It reconnects by itself; what fails meanwhile is a TransientError."""

    def __init__(self, database: str, *, connections: int) -> None:
        self.database = database
        self._pool = _pool(database, connections, _configure)
        self._claiming_pool = _pool(database, connections, _configure_claiming)

    def close(self) -> None:
        self._pool.close()
        self._claiming_pool.close()

    def _connect(self) -> psycopg.Connection:
        """A connection of one's own, outside the pool."""
        connection = psycopg.connect(self.database, autocommit=True)
        _configure(connection)
        return connection

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        """Each statement commits by itself, except inside `connection.transaction()`."""
        with _translated(), self._pool.connection() as connection:
            yield connection

    @contextmanager
    def _claiming(self) -> Iterator[psycopg.Connection]:
        """The same, for statements that read a queue in its order."""
        with _translated(), self._claiming_pool.connection() as connection:
            yield connection

    def _claiming_rows(self, verb: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._claiming() as connection:
            return connection.execute(host_statement(verb, parameters["host"]), parameters, binary=True).fetchall()

    def _rows(self, verb: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return connection.execute(statement(verb), parameters, binary=True).fetchall()

    def _run(self, verb: str, parameters: Mapping[str, Any]) -> None:
        with self._connection() as connection:
            connection.execute(statement(verb), parameters)

    def _host_run(self, verb: str, parameters: Mapping[str, Any]) -> None:
        with self._connection() as connection:
            connection.execute(host_statement(verb, parameters["host"]), parameters)

    def _dictionaries(self, verb: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        with self._connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement(verb), parameters).fetchall()

    def _query(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return connection.execute(query).fetchall()

    def _value(self, query: str) -> Any:
        [row] = self._query(query) or [(None,)]
        if row[0] is None:
            raise UnavailableError(_NOT_CREATED)
        return row[0]


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


def _check(connection: psycopg.Connection) -> None:
    """See whether a connection still works, unless it did a moment ago: a round trip for every use costs too much."""
    assert isinstance(connection, _Connection)
    now = time.monotonic()
    if now - connection.worked_at > _CHECK_SECONDS:
        ConnectionPool.check_connection(connection)
    connection.worked_at = now


def _configure(connection: psycopg.Connection) -> None:
    """Our schema, and time-outs after which the server gives up on a client that vanished."""
    for name, value in {**_SESSION, "search_path": SCHEMA}.items():
        connection.execute("SELECT set_config(%s, %s, false)", [name, value])


def _configure_claiming(connection: psycopg.Connection) -> None:
    _configure(connection)
    for name, value in _CLAIMING.items():
        connection.execute("SELECT set_config(%s, %s, false)", [name, value])


@contextmanager
def _translated() -> Iterator[None]:
    """What fails because PostgreSQL is away, restarting or untangling a deadlock may work later."""
    try:
        yield
    except (*_AWAY, PoolTimeout) as error:
        raise TransientError(f"The MessageBox cannot be reached: {one_line(error)}") from error
    except psycopg.errors.UndefinedTable as error:
        raise UnavailableError(_NOT_CREATED) from error


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())
