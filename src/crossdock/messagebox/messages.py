"""Messages as they come out of the store, by themselves or with the references that were claimed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, BinaryIO, cast
from uuid import UUID

import psycopg

from crossdock.errors import TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.messagebox.database import Database
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.statement import statement
from crossdock.messagebox.store import FragmentStream

# Larger parts are fetched when they are read: a batch of claims must not fill the memory.
HELD_BYTES = 64 * 1024
_CLAIM_COLUMNS = 10


class Messages(Database):
    """The agent's verbs for reading messages."""

    def messages(self, ids: Sequence[UUID]) -> dict[UUID, Message]:
        """The messages that are there; a large part comes as a stream that is fetched when it is read."""
        with self._connection() as connection:
            return self._messages(connection, ids)

    def _messages(self, connection: psycopg.Connection, ids: Sequence[UUID]) -> dict[UUID, Message]:
        found: dict[UUID, Message] = {}
        parameters = {"message": list(set(ids)), "limit": HELD_BYTES}
        rows = connection.execute(statement("load_messages"), parameters, binary=True)
        for id_, context, part, name, body, fragments in rows:
            earlier = found[id_].parts if id_ in found else ()
            parts = earlier if part is None else (*earlier, self._part(part, name, body, fragments))
            found[id_] = Message(MessageId(id_), Context.from_json(context), parts)
        return found

    def _part(self, id_: UUID, name: str, body: bytes | None, fragments: int) -> Part | StreamedPart:
        if body is not None:
            return Part(name, body)

        def open_stream() -> BinaryIO:
            return cast(BinaryIO, FragmentStream.open(partial(self._piece, id_, fragments > 0), max(fragments, 1)))

        return StreamedPart(name, open_stream)

    def _piece(self, part: UUID, in_fragments: bool, number: int) -> bytes:
        rows = self._rows("load_fragment" if in_fragments else "load_part", {"part": part, "number": number})
        if not rows:
            raise TransientError(f"Part {part} is gone: nobody refers to its message any more.")
        return bytes(rows[0][0])

    def _references(self, rows: list[tuple[Any, ...]]) -> list[Reference]:
        """What a claim took, with the messages: those that came with it, and the others."""
        messages: dict[UUID, Message] = {}
        for row in rows:
            if len(row) > _CLAIM_COLUMNS and row[-1] is not None:
                context, name, body = row[_CLAIM_COLUMNS:]
                messages[row[2]] = Message(MessageId(row[2]), Context.from_json(context), (Part(name, body),))
        missing = {row[2] for row in rows} - messages.keys()
        messages |= self.messages(list(missing)) if missing else {}
        return [
            Reference(sequence, service, attempt, messages[message], line, instance, subscription, claim, deaths)
            for _, sequence, message, subscription, service, attempt, line, instance, claim, deaths, *_ in rows
            if message in messages  # else we were taken for dead meanwhile, and somebody else is done with it
        ]
