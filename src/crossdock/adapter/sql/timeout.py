"""How long a partner's database may take for a statement. It is asked to give up by itself; our side gives up after it.

A database may be slow, locked by its owner or broken. Without these limits a statement waits for it for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Engine, event

# Our side waits longer, so that the database's own complaint, which says more, comes first.
_OUR_FACTOR = 1.5
_LOCK_FACTOR = 0.5
_SQLITE_STEPS_PER_LOOK = 100_000


def connect_arguments(driver: str, seconds: float) -> Mapping[str, Any]:
    """What a driver is told when it connects, so that it gives up a connection on which nothing comes."""
    whole = max(1, round(seconds * _OUR_FACTOR))
    match driver:
        case "psycopg" | "psycopg2":
            return {"tcp_user_timeout": whole * 1000}
        case "pymysql" | "mysqldb":
            return {"read_timeout": whole, "write_timeout": whole}
        case _:
            return {}


def limit_time(engine: Engine, seconds: float) -> None:
    """From now on, for every statement of this engine. Drivers that are not named here have no limit on our side."""
    if engine.dialect.name == "postgresql":
        event.listen(engine, "begin", _postgresql(seconds))
    elif engine.dialect.name == "sqlite":
        event.listen(engine, "begin", _sqlite(seconds))
    if engine.dialect.driver == "psycopg":
        # First of all: to learn the server's version takes statements, too.
        event.listen(engine, "connect", _psycopg(engine, seconds * _OUR_FACTOR), insert=True)


def _postgresql(seconds: float) -> Callable[[Connection], None]:
    """For each transaction: what is set for a session stays with a pooler's, which others use next."""
    lock, statement = (max(1, round(1000 * seconds * factor)) for factor in (_LOCK_FACTOR, 1))

    def begin(connection: Connection) -> None:
        limits = f"SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = {statement}"
        connection.exec_driver_sql(limits, execution_options={"stream_results": False, "yield_per": None})

    return begin


def _sqlite(seconds: float) -> Callable[[Connection], None]:
    def begin(connection: Connection) -> None:
        until = time.monotonic() + seconds
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: time.monotonic() > until, _SQLITE_STEPS_PER_LOOK)

    return begin


def _psycopg(engine: Engine, seconds: float) -> Callable[[Any, Any], None]:
    driver: Any = engine.dialect.dbapi

    def connected(connection: Any, _: Any) -> None:
        wait = connection.wait

        def limited(work: Any, *given: Any, **named: Any) -> Any:
            until = time.monotonic() + seconds
            try:
                return wait(work, *given, **{**named, "timeout": seconds})
            except driver.OperationalError:
                if time.monotonic() < until:
                    raise
                connection.close()  # what comes later would be taken for the answer to the next statement
                raise driver.OperationalError(f"it does not answer: nothing in {seconds:g} seconds") from None

        connection.wait = limited

    return connected
