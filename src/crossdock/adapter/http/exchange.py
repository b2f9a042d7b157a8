"""What becomes of a request to an http location: it is handed over, and the outcome is the answer."""

from __future__ import annotations

import json

from crossdock.adapter.contract import Receiver, Response
from crossdock.adapter.http.app import Request
from crossdock.adapter.http.guard import Answer, failure, is_header
from crossdock.adapter.http.transport import HttpReceiveOptions
from crossdock.errors import DocumentError, GivenUpError, NoAnswerError, TooManyMessagesError
from crossdock.message.property import Value
from crossdock.message.trace import as_trace

_BYTES = "application/octet-stream"


class Exchange:
    """Handles the requests to one location."""

    def __init__(self, receiver: Receiver, options: HttpReceiveOptions) -> None:
        self._receiver = receiver
        self._timeout = options.timeout
        self._maximum_messages = options.maximum_messages

    async def handle(self, request: Request) -> Answer:
        """202 once the messages are committed; two-way, the response. What is no message is refused, and not kept."""
        try:
            if self._receiver.two_way:
                return await self._asked(request)
            taken = await self._receiver.publish(
                request.body, _properties(request), maximum_messages=self._maximum_messages
            )
        except TooManyMessagesError as error:
            return failure(413, str(error))
        except DocumentError as error:
            return failure(400, str(error))
        ids = {"messages": [str(id_) for id_ in taken.messages], "suspended": [str(id_) for id_ in taken.suspended]}
        return Answer(202, json.dumps(ids).encode(), {"content-type": "application/json"})

    async def _asked(self, request: Request) -> Answer:
        try:
            response = await self._receiver.request(request.body, _properties(request), timeout=self._timeout)
        except NoAnswerError as error:
            return failure(503, str(error))
        except GivenUpError as error:
            return failure(502, str(error))
        except TimeoutError:
            return failure(504, f"there was no answer within {self._timeout:g} s")
        status = 500 if response.message.context.get("BTS.IsFault") is True else 200
        return Answer(status, response.body, _headers(response), sent=response.sent, lost=response.lost)


def _properties(request: Request) -> dict[str, Value]:
    properties: dict[str, Value] = {
        "HTTP.Method": request.method,
        "HTTP.Path": request.path,
        "HTTP.Query": request.query,
        "HTTP.ContentType": request.headers.get("content-type", ""),
        "HTTP.User": request.user or "",
    }
    trace = as_trace(request.headers.get("traceparent"), request.headers.get("tracestate"))
    return {name: value for name, value in properties.items() if value != ""} | (trace.properties() if trace else {})


def _headers(response: Response) -> dict[str, str]:
    """A type that no header can carry, which a partner may have given, is not passed on."""
    type_ = str(response.message.context.get("HTTP.ContentType") or "")
    known = type_ != "" and is_header("content-type", type_)
    return {"content-type": type_ if known else _BYTES, "x-crossdock-message-id": str(response.message.id)}
