"""Claims of sources, so that two pipelines on one ledger do not read the same ones.

A claim holds for as long as the session that made it, which holds the advisory lock of a number. Claims save work and
nothing else: a source that is read twice is published once, by the key of its publication.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import randbelow

import psycopg

from crossdock.messagebox.database import translated
from crossdock.messagebox.statement import statement
from crossdock.receive.item import IntakeItem

CLAIM_LOCK = 0x0C05_5D11
_NUMBERS = 2**31 - 1
_SWEEP_SECONDS = 1.0
_RELEASE_SECONDS = 60.0


class SourceClaims:
    """The claims of one Spark query. It connects when it has to, and after an outage under another number."""

    def __init__(self, connect: Callable[[], psycopg.Connection]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection | None = None
        self._number = 0
        self._after = 0
        self._living: set[int] = set()
        self._sweep_at = self._release_at = 0.0

    def claim(self, host: int, *, items: int, size: int) -> list[IntakeItem]:
        """Up to so many sources of a host that are due, with up to `size` bytes; one however large it is.

        New sources are found at once. A source that was postponed, or that came free, is found within a second.
        """
        with translated():
            try:
                connection = self._connected()
                if time.monotonic() >= self._sweep_at:
                    self._sweep(connection)
                parameters = {"host": host, "items": items, "bytes": size, "after": self._after, "number": self._number}
                rows = connection.execute(statement("claim_intake"), parameters, binary=True).fetchall()
            except psycopg.Error:
                self.close()
                raise
        found = sorted((IntakeItem(*row) for row in rows), key=lambda item: item.sequence)
        self._after = found[-1].sequence if found else self._after
        return found

    def close(self) -> None:
        """What is claimed and not published comes free."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            # A new number: a session that we have lost may hold the lock of the old one for a while.
            self._number, self._connection = 1 + randbelow(_NUMBERS), self._connect()
            self._connection.execute(statement("hold_claims"), {"lock": CLAIM_LOCK, "number": self._number})
            self._sweep_at = self._release_at = 0.0
        return self._connection

    def _sweep(self, connection: psycopg.Connection) -> None:
        """Begin at the start of the ledger, with what the dead have left there.

        To find that, all of the ledger is read: at the beginning, when a pipeline has gone, and else once a minute.
        """
        now = time.monotonic()
        lock = {"lock": CLAIM_LOCK}
        living = {number for (number,) in connection.execute(statement("living_pipelines"), lock)}
        if now >= self._release_at or not self._living <= living:
            connection.execute(statement("release_intake"), lock)
            self._release_at = now + _RELEASE_SECONDS
        self._living, self._after, self._sweep_at = living, 0, now + _SWEEP_SECONDS
