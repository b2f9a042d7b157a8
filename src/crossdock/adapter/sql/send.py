"""Runs a statement for each message on a database: an INSERT, an UPDATE, a procedure.

On PostgreSQL each message is delivered exactly once; on other databases at least once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, text

from crossdock.adapter.sql.database import Database, DatabaseErrors, Trouble, trouble
from crossdock.adapter.sql.delivery import KEPT, DeliveredContent, DeliveryRecord, delivered_content
from crossdock.adapter.sql.parameter import Parameters
from crossdock.adapter.sql.transport import SqlSendOptions
from crossdock.errors import CrossdockError, MessageGoneError, OutageError, PartnerError, TerminalError, TransientError
from crossdock.message.message import Message

_TOLD_CHARACTERS = 300
_TOGETHER_BYTES = 16 * 1024 * 1024  # of values in one transaction: hundreds of bodies may come at once


@dataclass(frozen=True, slots=True)
class _Row:
    content: DeliveredContent
    values: Mapping[str, Any]

    @property
    def size(self) -> int:
        return sum(len(value) for value in self.values.values() if isinstance(value, str | bytes))


class SqlSendAdapter:
    """Runs `statement` on the database at `address`, a URL of SQLAlchemy, with the message's values as `:name`.

    A name is `MessageID`, `Body`, a property or a field of a JSON body; `parameters` gives it another source.
    """

    def __init__(self, address: str, **options: Any) -> None:
        given = SqlSendOptions(**options)
        self._database = Database(address, timeout=given.timeout)
        self.address = self._database.address
        self._statement = text(given.statement)
        names = sorted(self._statement.compile().params)
        self._parameters = Parameters(names, given.parameters, plain=self._database.dialect == "sqlite")
        postgresql = self._database.dialect == "postgresql"
        self._record = DeliveryRecord(self._database, given.statement) if postgresql else None

    def remember_for(self, port: str) -> None:
        if self._record is not None:
            self._record.port = port

    def remembers(self) -> timedelta | None:
        return None if self._record is None else KEPT

    def send(self, message: Message, *, attempt: int) -> None:  # noqa: ARG002
        [outcome] = self.send_batch([message])
        if outcome is not None:
            raise outcome

    def send_batch(self, messages: Sequence[Message]) -> Sequence[CrossdockError | None]:
        """All in one transaction, if their values are not too large; what fails for a reason of its own, in its own."""
        outcomes: list[CrossdockError | None] = []
        rows: list[_Row | CrossdockError] = []
        size = 0
        for message in messages:
            try:
                rows.append(self._row(message))
            except OutageError as error:  # the others need not wait for the MessageBox one after the other
                if not outcomes:
                    raise
                return outcomes + [error] * (len(messages) - len(outcomes))
            size += rows[-1].size if isinstance(rows[-1], _Row) else 0
            if size >= _TOGETHER_BYTES:
                outcomes += self._sent(rows)
                if isinstance(outcomes[-1], TransientError) and (away := self._away()) is not None:
                    return outcomes + [away] * (len(messages) - len(outcomes))
                rows, size = [], 0
        return outcomes + self._sent(rows)

    def close(self) -> None:
        self._database.engine.dispose()

    def _away(self) -> TransientError | None:
        try:
            with self._database.connected():
                return None
        except TransientError as error:
            return error

    def _sent(self, rows: Sequence[_Row | CrossdockError]) -> list[CrossdockError | None]:
        ready = [row for row in rows if isinstance(row, _Row)]
        outcomes = iter(self._delivered(ready) if ready else ())
        return [next(outcomes) if isinstance(row, _Row) else row for row in rows]

    def _row(self, message: Message) -> _Row | CrossdockError:
        """What cannot be read of one message is of no concern to the others."""
        try:
            return _Row(delivered_content(message), self._parameters.of(message))
        except MessageGoneError as error:
            return error
        except TerminalError as error:
            return TerminalError(f"{self.address}: {error}")
        except OutageError:
            raise
        except TransientError as error:
            return error

    def _delivered(self, rows: Sequence[_Row]) -> Sequence[CrossdockError | None]:
        try:
            self._deliver(rows)
        except TransientError as error:
            return [error] * len(rows)
        except DatabaseErrors as error:
            if len(rows) > 1 and trouble(error) is not Trouble.AWAY:
                return self._one_by_one(rows)
            return [self._explained(error, rows)] * len(rows)
        return [None] * len(rows)

    def _one_by_one(self, rows: Sequence[_Row]) -> Sequence[CrossdockError | None]:
        """Find those that are refused. Once the database is away, the rest need not wait for it one after the other."""
        outcomes: list[CrossdockError | None] = []
        for row in rows:
            try:
                self._deliver([row])
                outcomes.append(None)
            except TransientError as error:
                return outcomes + [error] * (len(rows) - len(outcomes))
            except DatabaseErrors as error:
                away = trouble(error) is Trouble.AWAY
                outcomes += [self._explained(error, [row])] * (len(rows) - len(outcomes) if away else 1)
                if away:
                    break
        return outcomes

    def _deliver(self, rows: Sequence[_Row]) -> None:
        if self._record is not None:
            self._record.prepare()
        with self._database.connected() as connection:
            self._run(connection, rows if self._record is None else self._new(connection, self._record, rows))
            connection.commit()

    def _new(self, connection: Connection, record: DeliveryRecord, rows: Sequence[_Row]) -> Sequence[_Row]:
        """Those that the database does not have, each once."""
        new = record.add(connection, [row.content for row in rows])
        first = {row.content: row for row in reversed(rows)}
        return [row for row in rows if row.content in new and first[row.content] is row]

    def _run(self, connection: Connection, rows: Sequence[_Row]) -> None:
        if len(rows) == 1:  # not as a list: a statement that gives rows back would be refused by some drivers
            connection.execute(self._statement, rows[0].values)
        elif rows:
            connection.execute(self._statement, [row.values for row in rows])

    def _explained(self, error: Exception, rows: Iterable[_Row]) -> CrossdockError:
        """Not chained: the driver's own error holds the values, and may hold the password."""
        match trouble(error):
            case Trouble.AWAY:
                return TransientError(f"{self.address} cannot be used now: {self._told(error, rows)}")
            case Trouble.BUSY:
                return TransientError(f"{self.address}: the statement fails for now: {self._told(error, rows)}")
            case Trouble.REFUSED:
                return PartnerError(f"{self.address}: the statement is refused: {self._told(error, rows)}")

    def _told(self, error: Exception, rows: Iterable[_Row]) -> str:
        """What the server says in its first sentence; the next ones give values, and so do words in quotes."""
        diagnosis = getattr(getattr(error, "orig", None), "diag", None)
        told = getattr(diagnosis, "message_primary", None) or self._database.reason(error)
        for value in {str(value) for row in rows for value in row.values.values()}:
            told = told.replace(f'"{value}"', "a value").replace(f"'{value}'", "a value")
        return self._database.one_line(told)[:_TOLD_CHARACTERS]
