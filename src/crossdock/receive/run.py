"""Makes runs of messages: the contexts of all messages of a source are written from one template.

Nearly all of a context is the same for every message from a source. What a document says itself goes in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

from crossdock.message.context import Context, members
from crossdock.message.property import SYSTEM_PROPERTIES, Value
from crossdock.message.run import MessageRun, id_texts
from crossdock.pipeline.document import Document

_NUMBER, _LAST = "BTS.InterchangeSequenceNumber", "BTS.LastInterchangeMessage"
# A document that says one of these itself is a case of its own.
_SYSTEM = frozenset(SYSTEM_PROPERTIES) - {"BTS.MessageType"}


def message_run(
    shared: Context, ids: bytes, positions: Sequence[int], documents: Sequence[Document], *, before: int, end: int
) -> MessageRun | None:
    """The messages that documents without an error become; None if they cannot be made together.

    `shared` is the context but for what differs. So many messages of the source came `before`; the position `end` is
    that of its last one.
    """
    own = [document.promoted for document in documents]
    if not all(map(_SYSTEM.isdisjoint, own)) or not all(_SYSTEM.isdisjoint(each.written) for each in documents):
        return None
    template = _template(shared)
    numbers = [before + position + 1 for position in positions]
    flags = [position == end for position in positions]
    rows = zip(
        numbers,
        (b"true" if flag else b"false" for flag in flags) if any(flags) else repeat(b"false"),
        (b"," + members(each) if each else b"" for each in own),
        (members(each.written) + b"," if each.written else b"" for each in documents),
        id_texts(ids),
        strict=False,
    )
    try:
        contexts = [template % row for row in rows]
    except Exception:  # a value that cannot be written, made by somebody's code; alone it is dealt with
        return None
    numbered: Mapping[str, Sequence[Value]] = {_NUMBER: numbers, _LAST: flags}
    return MessageRun(ids, contexts, [each.body for each in documents], own, numbered, shared.promoted, shared.labels)


def _template(shared: Context) -> bytes:
    """For (number, whether it is the last, promoted, written, id); `Context.to_json` would write the same."""
    promoted, written = _constant(members(shared.promoted)), _constant(members(shared.written))
    varying = b'"%b":{"integer":"%%d"},"%b":{"boolean":"%%b"}%%b' % (_NUMBER.encode(), _LAST.encode())
    labels = Context(labels=shared.labels).to_json().removeprefix(b'{"promoted":{},"written":{}')
    return b'{"promoted":{%b,%b},"written":{%%b%b,"BTS.MessageID":"%%b"}%b' % (
        promoted,
        varying,
        written,
        _constant(labels),
    )


def _constant(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
