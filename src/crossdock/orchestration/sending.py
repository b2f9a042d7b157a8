"""What the code of an instance sends, as messages: to whom its port is bound, and by what an answer finds back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from uuid import UUID

from crossdock.errors import ApplicationError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId
from crossdock.message.property import TOKEN, Value
from crossdock.message.publication import Awaited
from crossdock.orchestration.program import Program, RunTools
from crossdock.orchestration.stepped import Send

DIRECT, TWO_WAY = "BTS.RouteDirectToTP", "BTS.IsRequestResponse"
FAULT = "BTS.IsFault"
_REQUEST = re.compile(r"Request:(\d{1,9});RRUid:\{[0-9a-f-]{36}\}")


def request_token(instance: UUID, secret: bytes, request: int) -> str:
    """Written into a request, and promoted in what answers it. Only who was given the request can tell it."""
    drawn = blake2b(instance.bytes + f"request:{request}".encode(), key=secret, digest_size=16).digest()
    return f"Request:{request};RRUid:{{{UUID(bytes=drawn, version=4)}}}"


def is_answer(context: Context) -> bool:
    """Whether a message says that it answers a request of some instance."""
    return _REQUEST.fullmatch(str(context.promoted.get(TOKEN, ""))) is not None


def answered_request(instance: UUID, secret: bytes, context: Context) -> int | None:
    """Which request of an instance a message answers, or says has failed; None if it is neither."""
    token = str(context.promoted.get(TOKEN, ""))
    found = _REQUEST.fullmatch(token)
    request = None if found is None else int(found[1])
    return request if request is not None and token == request_token(instance, secret, request) else None


def awaited_response(program: Program, instance: UUID, secret: bytes, request: int) -> Awaited:
    """Who waits for the response, from the commit of the request on."""
    return Awaited(instance, program.service_id, program.host_id, {TOKEN: request_token(instance, secret, request)})


Addresses = Mapping[tuple[str, str], str]


def sent_message(
    send: Send,
    id_: MessageId,
    instance: UUID,
    secret: bytes,
    program: Program,
    tools: RunTools,
    addresses: Addresses,
) -> Message:
    """Raises ApplicationError if the port is bound to nothing that is there."""
    promoted, written = dict(send.promoted), dict(send.written)
    promoted |= _address(send, program, addresses)
    if send.address is not None:
        written["BTS.OutboundTransportLocation"] = send.address
    if send.request is not None:
        written |= {TOKEN: request_token(instance, secret, send.request), TWO_WAY: True}
    if send.reply_to is not None:
        token = tools.load(send.reply_to).context.get(TOKEN)
        if token is not None and send.kind == "reply":
            promoted |= {TOKEN: token, DIRECT: True}
            written["BTS.RequestMessageID"] = str(send.reply_to)
            if send.fault:
                written[FAULT] = True
        elif token is not None:
            written |= {TOKEN: token, TWO_WAY: True}
    written |= {"BTS.MessageID": str(id_), "BTS.InterchangeID": str(id_)}
    return Message(id_, Context(promoted, written, send.labels), send.parts)


def _address(send: Send, program: Program, addresses: Addresses) -> dict[str, Value]:
    if send.port is None:
        return {}
    bound = program.definition["bind"].get(send.port.name)
    if bound is None:
        raise ApplicationError(f"port {send.port.name!r} of orchestration {program.name!r} is bound to nothing")
    if bound["kind"] == "direct":
        return {}
    kind = "group" if bound["kind"] == "group" else "port"
    address = addresses.get((kind, bound["name"]))
    if address is None:
        raise ApplicationError(
            f"port {send.port.name!r} of orchestration {program.name!r} is bound to {bound['name']!r}, "
            "which is not deployed"
        )
    return {"BTS.SPGroupID" if kind == "group" else "BTS.SPTransportID": address}
