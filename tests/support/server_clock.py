"""The clock of a MessageBox, `clock()`, put where a test wants it. Every statement that begins afterwards goes by it."""

from __future__ import annotations

from datetime import datetime, timedelta

import psycopg
from psycopg import sql

from crossdock.messagebox.temporary import shift_clock

__all__ = ["JumpingClock", "shift_clock", "stop_clock"]
_CLOCK = "CREATE OR REPLACE FUNCTION crossdock.clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN {}"


class JumpingClock:
    """The time goes on, and can be put forward or back."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._ahead = timedelta(0)

    def jump(self, **by: float) -> None:
        self._ahead += timedelta(**by)
        shift_clock(self._database, self._ahead)


def stop_clock(connection: psycopg.Connection, at: datetime) -> None:
    """From now on it stands still."""
    connection.execute(sql.SQL(_CLOCK).format(sql.Literal(at)))
