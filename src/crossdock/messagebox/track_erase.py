"""Erasing what the track has about a person: the properties and bodies of messages; that they were there stays.

Marking takes effect for every reader at once. A job then rewrites the segments without what is erased, and takes the
marks away.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from crossdock.messagebox.statement import statement
from crossdock.messagebox.track_few import promoted_values
from crossdock.messagebox.track_filter import make_filter
from crossdock.messagebox.track_read import unmarked
from crossdock.messagebox.track_segment import UNREADABLE, Segment, compress, decompress, pack_bodies, unpack_bodies
from crossdock.messagebox.track_write import instances_of

_KEPT = ("BTS.MessageType", "BTS.ReceiveLocationName", "BTS.ReceivePortName")
_REASON = "The reason is erased."


def read_erased(connection: psycopg.Connection) -> frozenset[UUID]:
    """The messages that are marked: mostly none."""
    return frozenset(id_ for (id_,) in connection.execute(statement("list_erased")))


def erase(segment: Segment, ids: Collection[UUID]) -> list[int]:
    """Take the properties of these messages out of a segment; gives their positions."""
    positions = segment.find(ids) if ids else []
    if positions:
        contexts = list(segment.contexts)
        for position in positions:
            contexts[position] = erased_context(contexts[position])
        segment.contexts = contexts
        names = {str(segment.id(position)) for position in positions}
        segment.exceptions = {
            kind: [
                {**row, "reason": _REASON} if "reason" in row and row["message_id"] in names else row for row in rows
            ]
            for kind, rows in segment.exceptions.items()
        }
    return positions


def erased_context(context: bytes) -> bytes:
    """Its type, where it came in and its labels: only what says nothing of its content."""
    try:
        document = msgspec.json.decode(context)
        kept: dict[str, Any] = {
            kind: {name: value for name, value in document[kind].items() if name in _KEPT}
            for kind in ("promoted", "written")
        }
    except (*UNREADABLE, KeyError, TypeError, AttributeError):
        return b'{"promoted":{},"written":{},"erased":true}'
    if "labels" in document:
        kept["labels"] = document["labels"]
    return msgspec.json.encode({**kept, "erased": True})


def rewrite_erased(connection: psycopg.Connection, *, case_sensitive: bool) -> int:
    """Rewrite the segments of marked messages, in one transaction; gives how many there were."""
    with connection.transaction():
        ids = read_erased(connection)
        if not ids:
            return 0
        rows = connection.execute(statement("take_erased_segments"), {"message": list(ids)}).fetchall()
        for at, number, *_, content in rows:
            segment = Segment.unpack(bytes(content))
            if positions := erase(segment, ids):
                rewritten = _rewritten(connection, number, segment, positions, ids, case_sensitive=case_sensitive)
                connection.execute(statement("rewrite_segment"), {"at": at, "segment": number, **rewritten})
        connection.execute(statement("forget_erased"), {"message": list(ids)})
    return len(rows)


def _rewritten(
    connection: psycopg.Connection,
    number: int,
    segment: Segment,
    positions: Sequence[int],
    ids: Collection[UUID],
    *,
    case_sensitive: bool,
) -> dict[str, bytes | None]:
    """The columns of a segment and of what is kept apart from it."""
    values = promoted_values(map(unmarked, segment.contexts))
    values.update(instances_of(segment.origins))
    sought = {"segment": [number]}
    found = connection.execute(statement("load_personal"), sought).fetchone()
    personal = personal_filter = None
    if found is not None:
        taken = [each for each in _taken(found[1]) if each[0] not in positions]
        apart = promoted_values(_as_context(each) for _, each in taken)
        personal, personal_filter = (
            compress(msgspec.json.encode(taken)),
            make_filter(apart, case_sensitive=case_sensitive),
        )
    stored = connection.execute(statement("load_bodies"), sought).fetchone()
    bodies = None
    if stored is not None:
        kept = {id_: body for id_, body in unpack_bodies(bytes(stored[0])) if id_ not in ids}
        bodies = pack_bodies(b"".join(id_.bytes for id_ in kept), list(kept.values()))
    return {
        "filter": make_filter(values, case_sensitive=case_sensitive),
        "content": segment.pack(),
        "personal": personal,
        "personal_filter": personal_filter,
        "bodies": bodies,
    }


def _taken(content: bytes) -> list[tuple[int, list[tuple[str, str]]]]:
    return msgspec.json.decode(decompress(bytes(content)), type=list[tuple[int, list[tuple[str, str]]]])


def _as_context(values: Sequence[tuple[str, str]]) -> bytes:
    """Values that were taken out, as if they were all of a context."""
    members = ",".join(f"{msgspec.json.encode(name).decode()}:{value}" for name, value in values)
    return f'{{"promoted":{{{members}}},"written":{{}}}}'.encode()
