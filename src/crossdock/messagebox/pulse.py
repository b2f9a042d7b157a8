"""Feels whether the MessageBox is there, on a connection of its own that waits for nobody in this process."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psycopg

from crossdock.messagebox.database import Database, translated
from crossdock.messagebox.lifeline import INSTANCE_LOCK, SILENCE
from crossdock.messagebox.samples import Life
from crossdock.messagebox.statement import statement

# A server that has gone without a word is noticed in a few seconds.
_QUICKLY = {"connect_timeout": 3, "tcp_user_timeout": 5000, "keepalives_idle": 2, "keepalives_interval": 1}


@dataclass(frozen=True, slots=True)
class Beat:
    """What one look found: the living instances of every host, and the age of the newest sample in seconds."""

    lives: tuple[Life, ...]
    sample_age: float | None


class Pulse:
    """For one thread. It connects when it has to."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: psycopg.Connection | None = None

    def beat(self) -> Beat:
        """TransientError: PostgreSQL is away. A server that hangs lets this hang, too."""
        try:
            with translated():
                return self._beat()
        except BaseException:
            self.close()
            raise

    def _beat(self) -> Beat:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect(**_QUICKLY)
        connection = self._connection
        lives = connection.execute(statement("list_lives"), {"lock": INSTANCE_LOCK, "silence": SILENCE}).fetchall()
        row = connection.execute(statement("sample_age")).fetchone()
        return Beat(tuple(Life(*each) for each in lives), None if row is None else row[0])

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
