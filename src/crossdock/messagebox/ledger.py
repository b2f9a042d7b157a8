"""The intake ledger: which sources are known and not yet done with."""

from __future__ import annotations

from collections.abc import Sequence

from crossdock.messagebox.database import Database
from crossdock.messagebox.statement import statement
from crossdock.receive.interchange import IntakeItem

_INTAKE_LOCK = 0x0C05_5D0E


class Ledger(Database):
    """The agent's verbs for sources."""

    def list_intake(self, items: Sequence[tuple[int, bytes, int]]) -> int:
        """Enter (location, identity, size) of sources in the ledger; gives how many were new."""
        parameters = {
            "location": [location for location, _, _ in items],
            "identity": [identity for _, identity, _ in items],
            "size": [size for _, _, size in items],
            "lock": _INTAKE_LOCK,
        }
        return len(self._rows("list_intake", parameters)) if items else 0

    def next_intake_offset(self, start: int, *, items: int, size: int, host: int | None = None) -> int:
        """The ledger sequence up to which the next batch reads, of one host or of all; `start` if there is nothing."""
        [(end,)] = self._rows("next_intake_offset", {"start": start, "items": items, "bytes": size, "host": host})
        return start if end is None else int(end)

    def read_intake(self, start: int, end: int, *, host: int | None = None) -> list[IntakeItem]:
        return [IntakeItem(*row) for row in self._rows("read_intake", {"start": start, "end": end, "host": host})]

    def intake_progress(self, sequence: int) -> tuple[int, int]:
        """How far a source is published: (where its next range begins, how many messages came before)."""
        [(start, received)] = self._rows("intake_progress", {"sequence": sequence})
        return int(start), int(received)

    def try_intake(self, sequence: int, *, afresh: bool = False, change: int = 1) -> int | None:
        """Note that a source is being tried; gives how many times it was, with this one. None if it is not there.

        `afresh`: the attempts before do not count. With a `change` of -1 this one does not count any more.
        """
        parameters = {"sequence": sequence, "afresh": afresh, "change": change}
        return next((int(attempts) for (attempts,) in self._rows("try_intake", parameters)), None)

    def settled_intake(self, *, after: int, limit: int = 1000) -> list[tuple[int, int, bytes]]:
        """(sequence, location, identity) of published sources that are still in the ledger."""
        return [(row[0], row[1], row[2]) for row in self._rows("settled_intake", {"after": after, "limit": limit})]

    def forget_intake(self, sequences: Sequence[int]) -> None:
        """Published and removed: delete the ledger rows."""
        if sequences:
            self._run("forget_intake", {"sequence": list(sequences)})

    def abandon_intake(self, sequences: Sequence[int]) -> bool:
        """Not to be read, or not now: delete the ledger rows, except of what somebody published meanwhile.

        Gives whether any of them stay because a part of them is published: they have to go on under the same number.
        """
        if not sequences:
            return False
        with self._connection() as connection, connection.transaction():
            # Lock, then look: the second statement sees what a publisher committed while the first one waited.
            connection.execute("SELECT FROM intake WHERE sequence = ANY(%s) FOR UPDATE", [list(sequences)])
            connection.execute(statement("abandon_intake"), {"sequence": list(sequences)})
            row = connection.execute(statement("partly_published"), {"sequence": list(sequences)}).fetchone()
        return row is not None and bool(row[0])
