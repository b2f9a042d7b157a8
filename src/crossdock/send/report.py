"""A message that could not be sent, published for whoever looks after failures."""

from __future__ import annotations

from crossdock.errors import brief
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId
from crossdock.message.property import TOKEN, Value

_TYPE = "ErrorReport.ErrorType"


def is_report(message: Message) -> bool:
    """Whether it is about a message that failed, on the way in or out."""
    return _TYPE in message.context.promoted


def awaiting_orchestration(message: Message) -> str | None:
    """The token of a request whose sender, an orchestration, has to hear if it fails; None if it is none."""
    token = message.context.written.get(TOKEN)
    return token if isinstance(token, str) and token.startswith("Request:") else None


def error_report(id_: MessageId, failed: Message, port: str, address: str | None, reason: str) -> Message:
    """The same content; only that it failed, and where, is promoted. The rest is demoted.

    Where an orchestration waits for the answer it is promoted too by what that finds back.
    """
    promoted: dict[str, Value] = {
        _TYPE: "FailedMessage",
        "ErrorReport.FailureCode": "send",
        "ErrorReport.FailureCategory": 0,
        "ErrorReport.SendPortName": port,
    }
    type_ = failed.context.get("BTS.MessageType")
    if address is not None:
        promoted["ErrorReport.OutboundTransportLocation"] = address
    if type_ is not None:
        promoted["ErrorReport.MessageType"] = type_
    written: dict[str, Value] = {
        **failed.context.promoted,
        **failed.context.written,
        "ErrorReport.Description": brief(reason),
        "ErrorReport.FailureMessageID": str(failed.id),
        "BTS.MessageID": str(id_),
    }
    if (token := awaiting_orchestration(failed)) is not None:
        promoted[TOKEN] = written.pop(TOKEN, token)
    return Message(id_, Context(promoted, written, failed.context.labels), failed.parts)
