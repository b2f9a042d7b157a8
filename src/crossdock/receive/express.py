"""Http locations: what somebody sends us is published at once, and a two-way location gives the answer.

`publish` and `request` are handed in: who they are is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from crossdock.adapter.http_guard import is_header
from crossdock.adapter.http_server import Answer, Request
from crossdock.errors import CrossdockError, TransientError
from crossdock.message.message import Message, MessageId
from crossdock.message.property import Value
from crossdock.pipeline.send import SendPipeline
from crossdock.receive.interchange import Interchange
from crossdock.receive.location import ReceiveLocation
from crossdock.receive.threads import PipelineThreads

ANSWERED = "HTTP.ContentType"
_BYTES = "application/octet-stream"


class Responder(Protocol):
    """Publishes a request, and waits for the response."""

    async def request(self, interchange: Interchange, service: str, *, timeout: float) -> Response:
        """Raises NoAnswerError if there will be none, and TimeoutError if there was none in time."""


class Response(Protocol):
    """A response in hand: it is settled by saying what became of it."""

    @property
    def message(self) -> Message: ...

    def sent(self) -> None:
        """The client has it."""

    def lost(self) -> None:
        """The client is gone."""


class NoAnswerError(CrossdockError):
    """Nobody can answer the request."""


class HttpLocation:
    """Handles the requests to one location."""

    def __init__(
        self,
        location: ReceiveLocation,
        response: SendPipeline,
        publish: Callable[[Interchange], Awaitable[None]],
        responder: Responder,
        ids: Callable[[], MessageId],
        threads: PipelineThreads,
        *,
        timeout: float,
    ) -> None:
        self._location = location
        self._response = response
        self._publish = publish
        self._responder = responder
        self._ids = ids
        self._threads = threads
        self._timeout = timeout

    async def handle(self, request: Request) -> Answer:
        """202 once the messages are committed; two-way, the response. What is no message is refused, and not kept."""
        interchange = await self._threads.run(lambda: self._received(request))
        if not interchange.messages:
            reasons = [failure.reason for failure in interchange.failures]
            return _error(400, _of_body(reasons[0]) if reasons else "there is no message in it")
        if self._location.definition.two_way:
            return await self._answer(interchange)
        await self._publish(interchange)
        ids = [str(message.id) for message in interchange.messages]
        return _json(202, {"messages": ids, "suspended": [str(each.message.id) for each in interchange.failures]})

    def _received(self, request: Request) -> Interchange:
        properties: dict[str, Value] = {
            "HTTP.Method": request.method,
            "HTTP.Path": request.path,
            "HTTP.Query": request.query,
            "HTTP.ContentType": request.headers.get("content-type", ""),
            "HTTP.User": request.user or "",
        }
        written = {name: value for name, value in properties.items() if value != ""}
        return self._location.pushed(request.body, written, self._ids)

    async def _answer(self, interchange: Interchange) -> Answer:
        if len(interchange.messages) + len(interchange.failures) > 1:
            return _error(400, "a request is one message, and there is more than one in it")
        [message] = interchange.messages
        if message.context.promoted.get("ErrorReport.FailureCode") == "receive":
            await self._publish(interchange)  # for whoever looks after failures, who does not answer
            return _error(400, _of_body(str(message.context.get("ErrorReport.Description"))))
        return await self._answered(interchange)

    async def _answered(self, interchange: Interchange) -> Answer:
        service = response_service(self._location.definition.port)
        try:
            response = await self._responder.request(_request(interchange), service, timeout=self._timeout)
        except NoAnswerError as error:
            return _error(503, str(error))
        except TimeoutError:
            return _error(504, f"there was no answer within {self._timeout:g} s")
        try:
            outgoing, body = await self._threads.run(lambda: self._outgoing(response.message))
            return Answer(200, body, _answer_headers(outgoing), sent=response.sent, lost=response.lost)
        except BaseException as error:
            response.lost()
            if isinstance(error, CrossdockError) and not isinstance(error, TransientError):
                return _error(502, f"the answer cannot be used: {error}")
            raise

    def _outgoing(self, response: Message) -> tuple[Message, bytes]:
        outgoing = self._response.execute(response)
        return outgoing, outgoing.body


def response_service(port: str) -> str:
    """The name of the service that waits for the responses of a two-way receive port."""
    return f"{port}.response"


def _answer_headers(response: Message) -> dict[str, str]:
    """A type that no header can carry, which a partner may have given, is not passed on."""
    type_ = str(response.context.get(ANSWERED) or "")
    known = type_ != "" and is_header("content-type", type_)
    return {"content-type": type_ if known else _BYTES, "x-crossdock-message-id": str(response.id)}


def _request(interchange: Interchange) -> Interchange:
    """The one message in it, marked: only one partner may answer."""
    [message] = interchange.messages
    marked = Message(message.id, message.context.write("BTS.IsRequestResponse", True), message.parts)
    return replace(interchange, messages=(marked,))


def _of_body(reason: str) -> str:
    """Pipelines speak of the file they read; here it was the body of a request."""
    return reason.replace("the file", "the body")


def _json(status: int, document: Any) -> Answer:
    return Answer(status, json.dumps(document).encode(), {"content-type": "application/json"})


def _error(status: int, reason: str) -> Answer:
    return _json(status, {"error": reason})
