"""Makes messages as columns: the contexts of all messages of a source are written from one template.

Nearly all of a context is the same for every message from a source. What a document says itself goes in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import is_
from types import NoneType
from typing import Any

from crossdock.message.columns import Columns, MessageColumns, id_texts
from crossdock.message.context import (
    CONTEXT_LIMIT_BYTES,
    PROPERTIES_LIMIT,
    Context,
    encoded_values,
    members,
)
from crossdock.message.property import SYSTEM_PROPERTIES, Value
from crossdock.pipeline.document import Document, DocumentColumns

_NUMBER, _LAST, _TYPE = "BTS.InterchangeSequenceNumber", "BTS.LastInterchangeMessage", "BTS.MessageType"
# A document that says one of these itself is a case of its own.
_SYSTEM = frozenset(SYSTEM_PROPERTIES) - {_TYPE}
_OWN = 3  # its number, whether it is the last, its id


def message_columns(
    shared: Context, ids: bytes, positions: Sequence[int], documents: Sequence[Document], *, before: int, end: int
) -> MessageColumns | None:
    """The messages that documents without an error become; None if they cannot be made together.

    `shared` is the context but for what differs. So many messages of the source came `before`; the position `end` is
    that of its last one.
    """
    if isinstance(documents, DocumentColumns):
        shared, own, written = shared.promote(_TYPE, documents.type), documents.promoted, documents.written
        bodies = documents.bodies
    else:
        own, written = _columns(each.promoted for each in documents), _columns(each.written for each in documents)
        bodies = [each.body for each in documents]
    if not _SYSTEM.isdisjoint(own) or not _SYSTEM.isdisjoint(written):
        return None
    if len(own) + len(written) + len(shared.promoted) + len(shared.written) + _OWN > PROPERTIES_LIMIT:
        return None
    numbers = [before + position + 1 for position in positions]
    flags = [position == end for position in positions]
    try:
        contexts = _contexts(shared, numbers, flags, own, written, id_texts(ids))
    except Exception:  # a value that cannot be written, made by somebody's code; alone it is dealt with
        return None
    if max(map(len, contexts)) > CONTEXT_LIMIT_BYTES:
        return None
    return MessageColumns(
        ids, contexts, bodies, {_NUMBER: numbers, _LAST: flags, **own}, shared.promoted, shared.labels
    )


def _columns(rows: Iterable[Mapping[str, Value]]) -> Columns:
    rows = list(rows)
    names = dict.fromkeys(chain.from_iterable(rows))
    return {name: [row.get(name) for row in rows] for name in names}


def _contexts(
    shared: Context, numbers: Sequence[int], flags: Sequence[bool], own: Columns, written: Columns, ids: Sequence[bytes]
) -> list[bytes]:
    """What `Context.to_json` would write for each message."""
    template = (
        b'{"promoted":{%b,"%b":{"integer":"%%d"},"%b":{"boolean":"%%b"}%b},"written":{%b,"BTS.MessageID":"%%b"%b}%b'
    )
    labels = Context(labels=shared.labels).to_json().removeprefix(b'{"promoted":{},"written":{}')
    constant = [_constant(each) for each in (members(shared.promoted), members(shared.written), labels)]
    more, columns = _members(own)
    distinguished, fields = _members(written)
    names = _NUMBER.encode(), _LAST.encode()
    filled = template % (constant[0], *names, more, constant[1], distinguished, constant[2])
    last: Iterable[bytes] = (b"true" if flag else b"false" for flag in flags) if any(flags) else repeat(b"false")
    rows: Iterator[tuple[Any, ...]] = zip(numbers, last, *columns, ids, *fields, strict=False)
    return [filled % row for row in rows]


def _members(columns: Columns) -> tuple[bytes, list[list[bytes]]]:
    """The properties of a column each: a template for them, and what goes into it for each message."""
    template = b""
    filling = []
    for name, column in columns.items():
        member = b"," + members({name: ""}).removesuffix(b'""')
        if all(map(is_, column, repeat(column[0]))):  # they inherit it: it is written once, for all of them
            template += b"" if column[0] is None else _constant(b"," + members({name: column[0]}))
            continue
        values = encoded_values(column)
        if NoneType in set(map(type, column)):  # where a message does not have it, there is nothing
            values = [b"" if value is None else member + text for value, text in zip(column, values, strict=True)]
            member = b""
        template += _constant(member) + b"%b"
        filling.append(values)
    return template, filling


def _constant(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
