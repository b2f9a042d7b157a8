"""Stores messages: one row in the spool with the ids of its parts, one row per part, fragments for what is large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from io import BufferedReader, RawIOBase
from itertools import chain, islice, repeat
from struct import Struct
from typing import Any
from uuid import UUID

import psycopg

from crossdock.message.columns import BODY, MessageColumns
from crossdock.message.message import Message, Part, StreamedPart
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.copy import Row, copy_rows, length
from crossdock.messagebox.statement import array_text, statement
from crossdock.subscription.router import Int64s

PART_LIMIT_BYTES = 1024 * 1024
_MESSAGES = "COPY message (id, context, part_count, parts, reference_count) FROM STDIN (FORMAT BINARY)"
_PARTS = "COPY part (id, name, body, size, fragments) FROM STDIN (FORMAT BINARY)"
_UUID_OID = 2950
_ARRAY = Struct(">iiiii")
_ID = Struct(">hi").pack(5, 16)  # both kinds of row begin so: five fields, the first an id
_BODY_NAME = length(len(BODY)) + BODY.encode()
_COUNT = Struct(">ih")
_SIZE = Struct(">iqii")
_REFERENCES = Struct(">ii")
# (size, fragments) of parts in fragments, by the id of their message and their number in it
Large = Mapping[tuple[UUID, int], tuple[int, int]]
_WHOLE = {"size": "{}", "pieces": "{}"}
_ONE_PART = _COUNT.pack(2, 1) + length(40) + _ARRAY.pack(1, 0, _UUID_OID, 1, 1) + length(16)


def store(connection: psycopg.Connection, messages: Batch, counts: Int64s) -> None:
    """Write the messages, each with the number of references it is given, and their parts.

    Bodies over the limit go in as fragments.
    """
    large = _store_fragments(connection, messages)
    copy_rows(connection, _MESSAGES, message_rows(messages, counts))
    copy_rows(connection, _PARTS, part_rows(messages, large))


def store_columns(connection: psycopg.Connection, messages: Batch) -> dict[str, list[Any] | str]:
    """Store fragments and give the rest as columns, for the function that writes it: messages, and their parts."""
    large = {} if messages.is_few else _store_fragments(connection, messages)
    names = ("message", "context", "part_of", "part", "name", "body", "size", "pieces")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for message, context in zip(messages, messages.contexts, strict=True):
        columns["message"].append(message.id)
        columns["context"].append(context.decode())
        for number, part in enumerate(message.parts):
            size, pieces = large.get((message.id, number), (None, None))
            columns["part_of"].append(message.id)
            columns["part"].append(UUID(bytes=_part_id(message.id, number)))
            columns["name"].append(part.name)
            columns["body"].append(part.body if isinstance(part, Part) and pieces is None else None if pieces else b"")
            columns["size"].append(size)
            columns["pieces"].append(pieces)
    return {
        **columns,
        **{name: array_text(columns[name]) for name in ("message", "part_of", "part")},
        **({} if large else _WHOLE),
    }


def _part_ids(message: Message) -> list[bytes]:
    return [_part_id(message.id, n) for n in range(len(message.parts))]


class FragmentStream(RawIOBase):
    """Reads a part fragment by fragment; `load` gives the fragment of a number."""

    def __init__(self, load: Callable[[int], bytes], fragments: int) -> None:
        self._load = load
        self._fragments = fragments
        self._next = 0
        self._rest = memoryview(b"")

    @classmethod
    def open(cls, load: Callable[[int], bytes], fragments: int) -> BufferedReader:
        return BufferedReader(cls(load, fragments))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest and self._next < self._fragments:
            self._rest = memoryview(self._load(self._next))
            self._next += 1
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _part_id(message: UUID, number: int) -> bytes:
    """The body has the id of its message; the id of another part follows from it."""
    return message.bytes if number == 0 else blake2b(message.bytes + length(number), digest_size=16).digest()


def message_rows(messages: Batch, counts: Int64s) -> Iterator[Row]:
    """Rows of the spool, as pieces of bytes."""
    references = (_REFERENCES.pack(4, number) for number in counts.tolist())
    contexts = iter(messages.contexts)
    for piece in messages.pieces:
        if isinstance(piece, MessageColumns):
            own = list(islice(contexts, len(piece)))
            ids, sizes = _ids(piece), [length(len(context)) for context in own]
            yield from zip(repeat(_ID), ids, sizes, own, repeat(_ONE_PART), ids, references)
        else:
            yield from map(_message_row, piece, contexts, references)


def _message_row(message: Message, context: bytes, references: bytes) -> Row:
    id_ = message.id.bytes
    if len(message.parts) == 1:
        return _ID, id_, length(len(context)), context, _ONE_PART, id_, references
    ids = _part_ids(message)
    array = _ARRAY.pack(1 if ids else 0, 0, _UUID_OID, len(ids), 1) if ids else Struct(">iii").pack(0, 0, _UUID_OID)
    array += b"".join(length(16) + each for each in ids)
    return _ID, id_, length(len(context)), context, _COUNT.pack(2, len(ids)), length(len(array)), array, references


def part_rows(messages: Batch, large: Large) -> Iterator[Row]:
    """Rows of the parts; `large` are those that are in fragments."""
    for piece in messages.pieces:
        if isinstance(piece, MessageColumns) and _are_whole(piece):
            sizes = [length(len(body)) for body in piece.bodies]
            whole = [_SIZE.pack(8, len(body), 4, 0) for body in piece.bodies]
            yield from zip(repeat(_ID), _ids(piece), repeat(_BODY_NAME), sizes, piece.bodies, whole)
        else:
            yield from chain.from_iterable(_part_rows(message, large) for message in piece)


def _part_rows(message: Message, large: Large) -> Iterator[Row]:
    for number, part in enumerate(message.parts):
        name = part.name.encode()
        head = (_ID, _part_id(message.id, number), length(len(name)), name)
        if (message.id, number) in large:
            yield *head, *_in_fragments(*large[message.id, number])
        else:
            body = part.body if isinstance(part, Part) else b""
            yield *head, length(len(body)), body, _SIZE.pack(8, len(body), 4, 0)


def _in_fragments(size: int, fragments: int) -> Row:
    return length(-1), _SIZE.pack(8, size, 4, fragments)


def _ids(piece: MessageColumns) -> list[bytes]:
    return [piece.ids[start : start + 16] for start in range(0, len(piece.ids), 16)]


def _are_whole(piece: MessageColumns) -> bool:
    return max(map(len, piece.bodies), default=0) <= PART_LIMIT_BYTES


def _store_fragments(connection: psycopg.Connection, messages: Batch) -> Large:
    """A stream is read once, a fragment at a time."""
    stored: dict[tuple[UUID, int], tuple[int, int]] = {}
    for id_, number, part in _large_parts(messages):
        size = fragments = 0
        for fragment in _fragments(part):
            # Not by COPY: libpq would take in more than the server has written, and memory would grow with the part.
            connection.execute(
                statement("insert_fragment"),
                {"part": UUID(bytes=_part_id(id_, number)), "number": fragments, "body": fragment},
            )
            size, fragments = size + len(fragment), fragments + 1
        if fragments:
            stored[id_, number] = (size, fragments)
    return stored


def _large_parts(messages: Batch) -> Iterator[tuple[UUID, int, Part | StreamedPart]]:
    """Parts that are too large for one row, with the id of their message and their number in it."""
    for piece in messages.pieces:
        if isinstance(piece, MessageColumns) and _are_whole(piece):
            continue
        for message in piece:
            for number, part in enumerate(message.parts):
                if isinstance(part, StreamedPart) or len(part.body) > PART_LIMIT_BYTES:
                    yield message.id, number, part


def _fragments(part: Part | StreamedPart) -> Iterator[bytes]:
    if isinstance(part, StreamedPart):
        yield from (chunk for chunk in part.chunks() if chunk)
        return
    view = memoryview(part.body)
    for start in range(0, len(view), PART_LIMIT_BYTES):
        yield bytes(view[start : start + PART_LIMIT_BYTES])
