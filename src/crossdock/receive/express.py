"""The express lane of receiving: what somebody sends us is published at once, and a two-way location gives the answer.

`publish` and `request` are handed in: who they are is not known here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from crossdock.adapter.contract import MAXIMUM_MESSAGES, Response, Taken
from crossdock.errors import ApplicationError, CrossdockError, DocumentError, GivenUpError, TransientError
from crossdock.message.message import Message, MessageId
from crossdock.message.property import Value
from crossdock.message.publication import Publication
from crossdock.message.trace import trace_of, with_trace
from crossdock.pipeline.send import SendPipeline
from crossdock.receive.location import ReceiveLocation
from crossdock.receive.threads import PipelineThreads
from crossdock.tracing import Span, Tracer

_NOTHING: Mapping[str, Value] = MappingProxyType({})
_ROOM_SECONDS, _LOOK_SECONDS = 10.0, 0.05  # until partners are told to come again


class Responder(Protocol):
    """Publishes a request, and waits for the response."""

    async def request(self, publication: Publication, service: str, *, timeout: float) -> ClaimedResponse:
        """Raises NoAnswerError if nobody can give one, GivenUpError if who could has failed, and TimeoutError."""


class ClaimedResponse(Protocol):
    """A response in hand: it is settled by saying what became of it."""

    @property
    def message(self) -> Message: ...

    def sent(self) -> None:
        """The client has it."""

    def lost(self) -> None:
        """The client is gone."""


class PushedReceiver:
    """What the adapter of one location hands its bytes to."""

    def __init__(
        self,
        location: ReceiveLocation,
        response: SendPipeline,
        publish: Callable[[Publication], Awaitable[None]],
        responder: Responder,
        ids: Callable[[], MessageId],
        threads: PipelineThreads,
        tracer: Tracer | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._location = location
        self._response = response
        self._publish = publish
        self._responder = responder
        self._ids = ids
        self._threads = threads
        self._tracer = tracer or Tracer()
        self._has_room = has_room

    @property
    def two_way(self) -> bool:
        return self._location.definition.two_way

    async def publish(
        self, body: bytes, properties: Mapping[str, Value] = _NOTHING, *, maximum_messages: int = MAXIMUM_MESSAGES
    ) -> Taken:
        with self._tracer.span("receive", self._location.definition.name, trace_of(properties)) as received:
            publication = await self._received(body, properties, maximum_messages)
            with self._publishing(received) as span:
                publication = _traced(publication, span)
                await self._publish(publication)
        messages = tuple(message.id for message in publication.messages)
        return Taken(messages, tuple(failure.message.id for failure in publication.failures))

    async def request(self, body: bytes, properties: Mapping[str, Value] = _NOTHING, *, timeout: float) -> Response:
        if not self.two_way:
            raise ApplicationError(f"receive port {self._location.definition.port!r} is not two-way")
        with self._tracer.span("receive", self._location.definition.name, trace_of(properties)) as received:
            return await self._asked(body, properties, timeout, received)

    async def _asked(self, body: bytes, properties: Mapping[str, Value], timeout: float, received: Span) -> Response:
        publication = await self._received(body, properties, MAXIMUM_MESSAGES)
        if len(publication.messages) + len(publication.failures) > 1:
            raise DocumentError("a request is one message, and there is more than one in it")
        [message] = publication.messages
        if message.context.promoted.get("ErrorReport.FailureCode") == "receive":
            await self._publish(publication)  # for whoever looks after failures, who does not answer
            raise DocumentError(_of_body(str(message.context.get("ErrorReport.Description"))))
        service = response_service(self._location.definition.port)
        with self._publishing(received) as span:
            request = _traced(_request(publication), span)
            claimed = await self._responder.request(request, service, timeout=timeout)
        return await self._usable(claimed)

    def _publishing(self, received: Span) -> AbstractContextManager[Span]:
        return self._tracer.span("publish", self._location.definition.name, received.trace)

    async def _received(self, body: bytes, properties: Mapping[str, Value], most: int) -> Publication:
        deadline = time.monotonic() + _ROOM_SECONDS
        while (publication := await self._threads.run(lambda: self._taken_apart(body, properties, most))) is None:
            if time.monotonic() > deadline:
                raise TransientError("Too much waits to be published.")
            await asyncio.sleep(_LOOK_SECONDS)  # on no thread: answers need them too
        if not publication.messages:
            reasons = [_of_body(failure.reason) for failure in publication.failures]
            raise DocumentError(reasons[0] if reasons else "there is no message in it")
        return publication

    def _taken_apart(self, body: bytes, properties: Mapping[str, Value], most: int) -> Publication | None:
        """None if there is no room for what would be made of it."""
        return self._location.pushed(body, properties, self._ids, most=most) if self._has_room() else None

    async def _usable(self, claimed: ClaimedResponse) -> Response:
        """The response as it goes out, through the pipeline of the port. It is lost if that fails."""
        try:
            message, body = await self._threads.run(lambda: self._outgoing(claimed.message))
        except BaseException as error:
            claimed.lost()
            if isinstance(error, CrossdockError) and not isinstance(error, TransientError):
                raise GivenUpError(f"the answer cannot be used: {error}") from error
            raise
        return Response(message, body, claimed.sent, claimed.lost)

    def _outgoing(self, response: Message) -> tuple[Message, bytes]:
        outgoing = self._response.execute(response)
        return outgoing, outgoing.body


def response_service(port: str) -> str:
    """The name of the service that waits for the responses of a two-way receive port."""
    return f"{port}.response"


def _request(publication: Publication) -> Publication:
    """The one message in it, marked: only one partner may answer."""
    [message] = publication.messages
    marked = Message(message.id, message.context.write("BTS.IsRequestResponse", True), message.parts)
    return replace(publication, messages=(marked,))


def _traced(publication: Publication, span: Span) -> Publication:
    """Whoever is given the messages comes after the span."""
    trace = span.trace
    if trace is None or all(trace_of(each.context) == trace for each in publication.messages):
        return publication
    messages = [Message(each.id, with_trace(each.context, trace), each.parts) for each in publication.messages]
    return replace(publication, messages=tuple(messages))


def _of_body(reason: str) -> str:
    """Pipelines speak of the file they read; here it was the body of a request."""
    return reason.replace("the file", "the body")
