"""Which messages a PostgreSQL database has, in a table beside the partner's: it makes delivery exactly once.

The row is written in the transaction that writes the message, so that either both are there or none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, TextClause, text

from crossdock.adapter.sql.database import Database, DatabaseErrors
from crossdock.errors import TransientError
from crossdock.message.message import Message
from crossdock.message.property import format_value

KEPT = timedelta(days=30)
_EXPIRED_AT_ONCE = 100_000
_EXPIRE_EVERY_SECONDS = 3600.0


class DeliveredContent(NamedTuple):
    """What is delivered once: a message, known by its id and its content."""

    id: UUID
    digest: str


def delivered_content(message: Message) -> DeliveredContent:
    """Of the message as it is stored: what a pipeline makes of it may be different in every attempt.

    An id alone does not tell: a MessageBox that was restored from a backup may give an id a second time.
    """
    stored = message.origin or message
    digest = sha256()
    for name, value in sorted({**stored.context.written, **stored.context.promoted}.items()):
        digest.update(ascii((name, format_value(value))).encode())
    for chunk in stored.parts[0].chunks():
        digest.update(chunk)
    return DeliveredContent(message.id, digest.hexdigest()[:32])


class DeliveryRecord:
    """The deliveries of one statement for one port, so that two ports into the same database both deliver."""

    def __init__(self, database: Database, statement: str) -> None:
        self._database = database
        self._statement = statement
        self.port = ""
        self._record = _sql("record")
        self._prepared_until = float("-inf")

    def prepare(self) -> None:
        """Make the table if it is missing, and now and then delete old rows. TransientError if that fails."""
        if time.monotonic() < self._prepared_until:
            return
        try:  # without a lock: threads may do this at once, and must not wait in line for a database that is away
            self._create()
            self._expire()
        except DatabaseErrors as error:
            raise TransientError(
                f"{self._database.address}: the table crossdock_delivery cannot be used: {self._database.reason(error)}"
            ) from None
        self._prepared_until = time.monotonic() + _EXPIRE_EVERY_SECONDS

    def add(self, connection: Connection, contents: Sequence[DeliveredContent]) -> set[DeliveredContent]:
        """Those that were not delivered before; waits for another process that is delivering one of them."""
        key = sha256(f"{self.port}\n{self._statement}".encode()).hexdigest()[:32]
        ids, digests = [content.id for content in contents], [content.digest for content in contents]
        given = {"statement": key, "ids": ids, "digests": digests}
        return {DeliveredContent(*row) for row in connection.execute(self._record, given)}

    def _create(self) -> None:
        with self._database.connected() as connection:
            if connection.execute(_sql("exists")).scalar():
                return
            for verb in ("lock", "create", "create_index"):
                connection.execute(_sql(verb))
            connection.commit()

    def _expire(self) -> None:
        with self._database.connected() as connection:
            connection.execute(_sql("expire"), {"age": KEPT, "limit": _EXPIRED_AT_ONCE})
            connection.commit()


def _sql(verb: str) -> TextClause:
    return text((files("crossdock.adapter.sql") / "record" / f"{verb}.sql").read_text(encoding="utf-8"))
