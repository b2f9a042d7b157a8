"""Messages as they come out of the store, by themselves or with the references that were claimed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO, cast
from uuid import UUID

import psycopg

from crossdock.errors import ContextError, MessageGoneError, TerminalError, TransientError, UnreadableError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.messagebox.database import Database
from crossdock.messagebox.rows import Reference, ServerTime
from crossdock.messagebox.statement import statement
from crossdock.messagebox.store import FragmentStream

# Larger parts are fetched when they are read: a batch of claims must not fill the memory.
HELD_BYTES = 64 * 1024
_CLAIM_COLUMNS = 11
MESSAGE_GONE = "The message of this reference is gone from the MessageBox: it cannot be delivered, only terminated."
UNREADABLE = "The stored context of this message cannot be read: it can be saved and terminated, not delivered."
_NO_CONTEXT = Context({})


class Messages:
    """`agent.messages`: the verbs for reading messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, ids: Sequence[UUID]) -> dict[UUID, Message]:
        """The messages that are there; a large part comes as a stream that is fetched when it is read.

        One whose context cannot be read is not among them.
        """
        with self._database.connection() as connection:
            return self.on(connection, ids)

    def unreadable(self, ids: Sequence[UUID]) -> dict[UUID, Message]:
        """The messages that are there and whose context cannot be read, with their parts and an empty context."""
        with self._database.connection() as connection:
            return self._stored(connection, ids)[1]

    def on(self, connection: psycopg.Connection, ids: Sequence[UUID]) -> dict[UUID, Message]:
        return self._stored(connection, ids)[0]

    def _stored(
        self, connection: psycopg.Connection, ids: Sequence[UUID]
    ) -> tuple[dict[UUID, Message], dict[UUID, Message]]:
        """The messages that are there: those that can be read, and the others with an empty context."""
        readable: dict[UUID, Message] = {}
        unreadable: dict[UUID, Message] = {}
        parameters = {"message": list(set(ids)), "limit": HELD_BYTES}
        rows = connection.execute(statement("load_messages"), parameters, binary=True)
        for id_, context, part, name, body, fragments in rows:
            try:
                read, found = Context.from_json(context), readable
            except ContextError:
                read, found = _NO_CONTEXT, unreadable
            earlier = found[id_].parts if id_ in found else ()
            parts = earlier if part is None else (*earlier, self._part(part, name, body, fragments))
            found[id_] = Message(MessageId(id_), read, parts)
        return readable, unreadable

    def _part(self, id_: UUID, name: str, body: bytes | None, fragments: int) -> Part | StreamedPart:
        if body is not None:
            return Part(name, body)

        def open_stream() -> BinaryIO:
            return cast(BinaryIO, FragmentStream.open(partial(self._piece, id_, fragments > 0), max(fragments, 1)))

        return StreamedPart(name, open_stream)

    def _piece(self, part: UUID, in_fragments: bool, number: int) -> bytes:
        rows = self._database.rows("load_fragment" if in_fragments else "load_part", {"part": part, "number": number})
        if not rows:
            raise TransientError(f"Part {part} is gone: nobody refers to its message any more.")
        return bytes(rows[0][0])

    def references(self, host_id: int, rows: list[tuple[Any, ...]]) -> list[Reference]:
        """What a claim took, with the messages: those that came with it, and the others.

        What has no message that can be read comes with an empty one and the reason: it concerns nobody else.
        """
        if not rows:
            return []
        claimed_at = ServerTime(datetime.fromtimestamp(rows[0][_CLAIM_COLUMNS - 1], UTC), time.monotonic())
        messages: dict[UUID, Message] = {}
        undeliverable: dict[UUID, TerminalError] = {}
        for row in rows:
            if len(row) > _CLAIM_COLUMNS and row[-1] is not None:
                context, name, body = row[_CLAIM_COLUMNS:]
                try:
                    messages[row[2]] = Message(MessageId(row[2]), Context.from_json(context), (Part(name, body),))
                except ContextError:
                    undeliverable[row[2]] = UnreadableError(UNREADABLE)
        if missing := {row[2] for row in rows} - messages.keys() - undeliverable.keys():
            with self._database.connection() as connection:
                readable, unreadable = self._stored(connection, list(missing))
            messages |= readable
            undeliverable |= dict.fromkeys(unreadable, UnreadableError(UNREADABLE))
            gone = missing - readable.keys() - unreadable.keys()
            undeliverable |= dict.fromkeys(gone, MessageGoneError(MESSAGE_GONE))
        messages |= {id_: Message(MessageId(id_), _NO_CONTEXT, ()) for id_ in undeliverable}
        return [
            Reference(
                sequence,
                service,
                attempt,
                messages[id_],
                claimed_at,
                subqueue,
                instance,
                subscription,
                claim,
                deaths,
                undeliverable.get(id_),
                host_id,
            )
            for _, sequence, id_, subscription, service, attempt, subqueue, instance, claim, deaths, *_ in rows
        ]
