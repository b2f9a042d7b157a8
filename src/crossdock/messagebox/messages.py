"""Messages as they come out of the store, by themselves or with the references that were claimed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, BinaryIO, cast
from uuid import UUID

import psycopg
from msgspec import structs

from crossdock.errors import ContextError, MessageGoneError, TerminalError, TransientError, UnreadableError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.messagebox.database import Database
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.rows import Reference, ServerTime
from crossdock.messagebox.statement import array_text, statement
from crossdock.messagebox.store import FragmentStream

# Larger parts are fetched when they are read: a batch of claims must not fill the memory.
HELD_BYTES = 64 * 1024
_CLAIM_COLUMNS = 11
MESSAGE_GONE = "The message of this reference is gone from the MessageBox: it cannot be delivered, only terminated."
UNREADABLE = "The stored context of this message cannot be read: it can be saved and terminated, not delivered."
_NO_CONTEXT = Context({})
_PartRow = tuple[UUID, str, bytes | None, int]  # id, name, body unless it is large, number of fragments
_Fetch = Callable[[UUID, int | None], bytes]  # a part, or one of its fragments


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

    def on(self, connection: psycopg.Connection, ids: Sequence[UUID]) -> dict[UUID, Message]:
        parameters = {"message": list(set(ids)), "limit": HELD_BYTES}
        rows = connection.execute(statement("load_messages"), parameters, binary=True).fetchall()
        return _told_apart(rows, lambda _: self._piece)[0]

    def read(self, ids: Sequence[UUID], action: str) -> tuple[dict[UUID, Message], dict[UUID, Message]]:
        """The messages that a person reads: those that can be read, and the others with an empty context.

        That they were read is recorded as `action`, and committed, before. What our database user may not read is not
        among them.
        """
        wanted = list(set(ids))
        with self._database.connection() as connection:
            connection.execute(host_statement("record_reads", None), {"messages": wanted, "action": action})
            parameters = {"messages": wanted, "most": HELD_BYTES}
            rows = connection.execute(host_statement("read_messages", None), parameters, binary=True).fetchall()
        return _told_apart(rows, lambda message: partial(self._read_piece, message))

    def _read_piece(self, message: UUID, part: UUID, number: int | None) -> bytes:
        parameters = {"message": message, "part": part, "piece": number}
        with self._database.connection() as connection:
            return _found(part, connection.execute(host_statement("read_piece", None), parameters).fetchall())

    def present(self, ids: Sequence[UUID]) -> set[UUID]:
        """Those of these that are stored."""
        return {id_ for (id_,) in self._database.rows("find_messages", {"message": list(ids)})}

    def _piece(self, part: UUID, number: int | None) -> bytes:
        """A part, or with a number one of its fragments."""
        verb = "load_part" if number is None else "load_fragment"
        return _found(part, self._database.rows(verb, {"part": part, "number": number}))

    def _claimed_piece(self, host_id: int, sequence: int, part: UUID, number: int | None) -> bytes:
        """The same for a message of which the host has claimed this reference."""
        parameters = {"host": host_id, "sequence": sequence, "part": part, "number": number}
        return _found(part, self._database.host_rows("load_claimed_piece", parameters))

    def held(self, host_id: int, instances: Sequence[UUID]) -> dict[UUID, Message]:
        """The messages that running instances of a host hold; those that cannot be read are not among them."""
        found = {}
        parameters = {"host": host_id, "instance": list(instances), "limit": HELD_BYTES}
        for id_, context, parts in _grouped(self._database.host_rows("load_held", parameters)):
            with suppress(ContextError):
                fetch = partial(self._held_piece, host_id, instances, id_)
                found[id_] = Message(MessageId(id_), Context.from_json(context), _parts(parts, fetch))
        return found

    def _held_piece(
        self, host_id: int, instances: Sequence[UUID], message: UUID, part: UUID, number: int | None
    ) -> bytes:
        wanted = {"message": message, "part": part, "number": number}
        parameters = {"host": host_id, "instance": list(instances), **wanted}
        return _found(part, self._database.host_rows("load_held_piece", parameters))

    def references(self, host_id: int, rows: list[tuple[Any, ...]]) -> list[Reference]:
        """What a claim took, with the messages: those that came with it, and the others.

        What has no message that can be read comes with an empty one and the reason: it concerns nobody else.
        """
        if not rows:
            return []
        claimed_at = ServerTime(datetime.fromtimestamp(rows[0][_CLAIM_COLUMNS - 1], UTC), time.monotonic())
        messages: dict[UUID, Message] = {}
        undeliverable: dict[UUID, TerminalError] = {}
        for row in rows if len(rows[0]) > _CLAIM_COLUMNS else ():
            if row[-1] is not None:
                context, name, body = row[_CLAIM_COLUMNS:]
                try:
                    messages[row[2]] = Message(MessageId(row[2]), Context.from_json(context), (Part(name, body),))
                except ContextError:
                    undeliverable[row[2]] = UnreadableError(UNREADABLE)
        streamed: dict[UUID, Sequence[_PartRow]] = {}
        known = messages.keys() | undeliverable.keys()  # mostly none or all: the hash of an UUID takes its time
        missing = {row[2]: row[1] for row in rows if not known or row[2] not in known}
        if missing:
            parameters = {"host": host_id, "sequence": array_text(missing.values()), "limit": HELD_BYTES}
            for id_, context, parts in _grouped(self._database.host_rows("load_claimed", parameters)):
                try:
                    messages[id_] = Message(MessageId(id_), Context.from_json(context), _parts(parts, _unbound))
                except ContextError:
                    undeliverable[id_] = UnreadableError(UNREADABLE)
                    continue
                if any(body is None for _, _, body, _ in parts):
                    streamed[id_] = parts
            if len(messages) + len(undeliverable) < len(known) + len(missing):
                gone = missing.keys() - messages.keys() - undeliverable.keys()
                undeliverable |= dict.fromkeys(gone, MessageGoneError(MESSAGE_GONE))
        messages |= {id_: Message(MessageId(id_), _NO_CONTEXT, ()) for id_ in undeliverable}
        references = [
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
                undeliverable.get(id_) if undeliverable else None,
                host_id,
            )
            for _, sequence, id_, subscription, service, attempt, subqueue, instance, claim, deaths, *_ in rows
        ]
        return [self._streaming(each, streamed) for each in references] if streamed else references

    def _streaming(self, reference: Reference, streamed: Mapping[UUID, Sequence[_PartRow]]) -> Reference:
        """Each reads its large parts by its own claim: another of the same message may be settled before."""
        parts = streamed.get(reference.message.id)
        if parts is None:
            return reference
        fetch = partial(self._claimed_piece, reference.host_id, reference.sequence)
        message = Message(reference.message.id, reference.message.context, _parts(parts, fetch))
        return structs.replace(reference, message=message)


def _told_apart(
    rows: Sequence[tuple[Any, ...]], fetch: Callable[[UUID], _Fetch]
) -> tuple[dict[UUID, Message], dict[UUID, Message]]:
    """The messages that can be read, and the others with an empty context."""
    readable: dict[UUID, Message] = {}
    unreadable: dict[UUID, Message] = {}
    for id_, context, parts in _grouped(rows):
        try:
            read, found = Context.from_json(context), readable
        except ContextError:
            read, found = _NO_CONTEXT, unreadable
        found[id_] = Message(MessageId(id_), read, _parts(parts, fetch(id_)))
    return readable, unreadable


def _grouped(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[UUID, str, list[_PartRow]]]:
    """(id, context, parts) of each message, from rows of its parts."""
    for id_, group in groupby(rows, key=itemgetter(0)):
        own = list(group)
        yield id_, own[0][1], [row[2:] for row in own if row[2] is not None]


def _parts(rows: Iterable[_PartRow], fetch: _Fetch) -> tuple[Part | StreamedPart, ...]:
    return tuple(
        Part(name, body)
        if body is not None
        else StreamedPart(name, partial(_open, partial(fetch, id_), max(pieces, 1), pieces > 0))
        for id_, name, body, pieces in rows
    )


def _open(fetch: Callable[[int | None], bytes], pieces: int, in_fragments: bool) -> BinaryIO:
    load = fetch if in_fragments else lambda _: fetch(None)
    return cast(BinaryIO, FragmentStream.open(load, pieces))


def _unbound(part: UUID, number: int | None) -> bytes:
    raise AssertionError(f"part {part}, {number}: a claimed message is read by its claim")


def _found(part: UUID, rows: Sequence[tuple[Any, ...]]) -> bytes:
    if not rows:
        raise TransientError(f"Part {part} is gone: nobody refers to its message any more.")
    if rows[0][0] is None:  # the role of a host may have published a message without its parts
        raise MessageGoneError(f"Part {part} is not in the MessageBox: the message can only be terminated.")
    return bytes(rows[0][0])
