"""The clock of a MessageBox, `clock()`, put where a test wants it. Every statement that begins afterwards goes by it."""

from __future__ import annotations

from datetime import datetime, timedelta

import psycopg
from psycopg import sql

_CLOCK = "CREATE OR REPLACE FUNCTION crossdock.clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN {}"


class JumpingClock:
    """The time goes on, and can be put forward or back."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._ahead = timedelta(0)

    def jump(self, **by: float) -> None:
        self._ahead += timedelta(**by)
        shift_clock(self._database, self._ahead)


def shift_clock(database: str, by: timedelta) -> None:
    """From now on it is so much ahead of the server's, or behind."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL(_CLOCK).format(sql.SQL("now() + {}").format(sql.Literal(by))))


def stop_clock(connection: psycopg.Connection, at: datetime) -> None:
    """From now on it stands still."""
    connection.execute(sql.SQL(_CLOCK).format(sql.Literal(at)))
