"""What a partner answered, as messages that are published for everyone who subscribes to them."""

from __future__ import annotations

from collections.abc import Iterator

from crossdock.adapter.contract import Reply
from crossdock.errors import TransientError
from crossdock.message.context import Context, members
from crossdock.message.message import Message, MessageId, Part
from crossdock.message.property import TOKEN, Value
from crossdock.message.trace import trace_of
from crossdock.pipeline.limits import too_much
from crossdock.pipeline.receive import ReceivePipeline

ANSWER_MESSAGES = 10_000
ANSWER_REPEATED_BYTES = 16 * 1024 * 1024  # of what the answer itself gives to each of its messages, such as its type
DIRECT = "BTS.RouteDirectToTP"


def responses(
    port: str, pipeline: ReceivePipeline, request: Message, reply: Reply | None, ids: Iterator[MessageId]
) -> tuple[Message, ...]:
    """The messages in an answer. One that cannot be read is a TransientError: the partner may do better next time.

    They carry the labels of the request: what is said about a patient is as much to be protected as the question.
    """
    if reply is None:
        raise TransientError("the partner gives no answer")
    documents = pipeline.execute(reply.body, most=ANSWER_MESSAGES)
    failed = next((document.error for document in documents if document.error is not None), None) or too_much(documents)
    if failed is not None:
        # Pipelines speak of the file they read.
        raise TransientError(f"the answer cannot be used: {str(failed).replace('the file', 'it')}")
    if len(documents) * len(members(dict(reply.properties))) > ANSWER_REPEATED_BYTES:
        raise TransientError("the answer cannot be used: what it gives to each of its messages is too much together")
    drawn = [next(ids) for _ in documents]
    trace = trace_of(request.context)
    made = []
    for position, (id_, document) in enumerate(zip(drawn, documents, strict=True), start=1):
        promoted: dict[str, Value] = {
            **document.promoted,
            "BTS.SPName": port,
            "BTS.InterchangeSequenceNumber": position,
            "BTS.LastInterchangeMessage": position == len(documents),
            **route_back(request),
        }
        written: dict[str, Value] = {
            **document.written,
            **reply.properties,
            "BTS.InterchangeID": str(drawn[0]),
            "BTS.MessageID": str(id_),
            "BTS.RequestMessageID": str(request.id),
            **({} if trace is None else trace.properties()),
        }
        made.append(Message(id_, Context(promoted, written, request.context.labels), (Part("body", document.body),)))
    return tuple(made)


def route_back(request: Message) -> dict[str, Value]:
    """To whoever waits for it: the request says who."""
    token = request.context.get(TOKEN)
    return {} if token is None else {TOKEN: token, DIRECT: True}
