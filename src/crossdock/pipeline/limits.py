"""What the messages of one source have together: an envelope or a header gives its fields to each of them.

A small file may hold one large field and very many messages; it must not become gigabytes of contexts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from crossdock.errors import ContextError
from crossdock.message.columns import MessageColumns
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.property import Value
from crossdock.pipeline.document import Document, DocumentColumns

TOGETHER_BYTES = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


def context_problem(context: Context) -> ContextError | None:
    """Why the MessageBox does not keep a context."""
    try:
        context.to_json()
    except ContextError as error:
        return error
    except Exception as error:  # it cannot be written at all, and whoever stores it says so
        logger.debug("A context cannot be written", exc_info=error)
    return None


def bounded(documents: Sequence[Document], content: bytes, *, piece: bool, stages: bool) -> Sequence[Document]:
    """The documents of a source; all of it is kept back if they have too much together. `stages` may add anything."""
    may_be_much = len(documents) > 1 and (stages or len(documents) * len(content) > TOGETHER_BYTES)
    problem = too_much(documents) if may_be_much else None
    return documents if problem is None else [Document(content, piece=piece).failed(problem)]


def too_much(documents: Sequence[Document]) -> ContextError | None:
    """Why the documents of a source cannot be kept: their properties have far more text than their bodies."""
    if isinstance(documents, DocumentColumns):
        columns = [*documents.promoted.values(), *documents.written.values()]
        texts, bodies = sum(map(_text, columns)), sum(map(len, documents.bodies))
    else:
        texts = sum(_text(each.promoted.values()) + _text(each.written.values()) for each in documents)
        bodies = sum(len(each.body) for each in documents)
    if texts <= TOGETHER_BYTES + bodies:
        return None
    return ContextError(
        f"the properties of its {len(documents):,} messages have {texts:,} characters together, and no more than "
        f"{TOGETHER_BYTES:,} are kept beside the {bodies:,} bytes of the messages; "
        "what an envelope or a header gives to each counts for each"
    )


def context_bytes(messages: Sequence[Message]) -> int:
    """About how much the contexts take where there are several; that of one message alone is bounded."""
    if isinstance(messages, MessageColumns):
        return sum(map(len, messages.contexts))
    if len(messages) < 2:
        return 0
    return sum(_text(each.context.promoted.values()) + _text(each.context.written.values()) for each in messages)


def body_bytes(messages: Sequence[Message]) -> int:
    """How much the bodies take; what is streamed is not held in memory."""
    if isinstance(messages, MessageColumns):
        return sum(map(len, messages.bodies))
    return sum(len(part.body) for message in messages for part in message.parts if isinstance(part, Part))


def _text(values: Iterable[Value | None]) -> int:
    return sum(len(value) for value in values if value.__class__ is str)
