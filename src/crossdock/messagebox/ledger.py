"""The intake ledger: which sources are known and not yet done with, and when each is to be read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from crossdock.message.message import random_bits
from crossdock.messagebox.claims import SourceClaims
from crossdock.messagebox.database import Database
from crossdock.messagebox.rows import storable
from crossdock.messagebox.statement import statement
from crossdock.receive.item import IntakeItem

_INTAKE_LOCK = 0x0C05_5D0E
# How long a source is left alone that cannot be read: twice as long each time.
_FIRST_WAIT = timedelta(seconds=1)
_LONGEST_WAIT = timedelta(seconds=60)


class Ledger:
    """`agent.ledger`: the verbs for sources."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def enter(self, items: Sequence[tuple[int, bytes, int]]) -> int:
        """Enter (location, identity, size) of sources in the ledger; gives how many were new."""
        parameters = {
            "location": [location for location, _, _ in items],
            "identity": [identity for _, identity, _ in items],
            "size": [size for _, _, size in items],
            "random_bits": [random_bits() for _ in items],
            "lock": _INTAKE_LOCK,
        }
        return len(self._database.rows("list_intake", parameters)) if items else 0

    def claims(self) -> SourceClaims:
        """A session of its own, in which a pipeline claims the sources that it reads."""
        return SourceClaims(self._database.connect_claiming)

    def read(self, start: int, end: int) -> list[IntakeItem]:
        """The sources after one sequence and up to another that are not published, whoever has claimed them."""
        return [IntakeItem(*row) for row in self._database.rows("read_intake", {"start": start, "end": end})]

    def progress(self, sequence: int) -> tuple[int, int]:
        """How far a source is published: (where its next range begins, how many messages came before)."""
        [(start, received)] = self._database.rows("intake_progress", {"sequence": sequence})
        return int(start), int(received)

    def note_attempt(self, sequence: int, *, afresh: bool = False, change: int = 1) -> int | None:
        """Note that a source is being tried; gives how many times it was, with this one. None if it is not there.

        `afresh`: the attempts before do not count. With a `change` of -1 this one does not count any more.
        """
        parameters = {"sequence": sequence, "afresh": afresh, "change": change}
        return next((int(attempts) for (attempts,) in self._database.rows("try_intake", parameters)), None)

    def postpone(self, sequence: int, reason: str) -> bool:
        """A source cannot be read now: it is due again later. False if it is not there, or published by now."""
        parameters = {
            "sequence": sequence,
            "reason": storable(reason),
            "first": _FIRST_WAIT,
            "longest": _LONGEST_WAIT,
        }
        return bool(self._database.rows("postpone_intake", parameters))

    def waiting(self) -> int:
        """Sources that nobody reads now: they are postponed, or their location is disabled."""
        [(count,)] = self._database.rows("waiting_intake", {})
        return int(count)

    def published(self, *, after: int, limit: int = 1000) -> list[tuple[int, int, bytes]]:
        """(sequence, location, identity) of published sources that are still in the ledger."""
        return [
            (row[0], row[1], row[2]) for row in self._database.rows("settled_intake", {"after": after, "limit": limit})
        ]

    def forget(self, sequences: Sequence[int]) -> None:
        """Published and removed: delete the ledger rows."""
        if sequences:
            self._database.run("forget_intake", {"sequence": list(sequences)})

    def abandon(self, sequences: Sequence[int]) -> None:
        """Vanished: delete the ledger rows, except of sources that are published, whole or in part."""
        with self._database.connection() as connection, connection.transaction():
            # Lock, then look: the second statement sees what a publisher committed while the first one waited.
            connection.execute(statement("lock_abandoned"), {"sequence": list(sequences)})
            connection.execute(statement("abandon_intake"), {"sequence": list(sequences)})
