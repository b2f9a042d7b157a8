"""From a request to its answer: finds the route, asks its guard, reads the body and waits for the handler.

`answer.py` gives the answer to the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from crossdock.adapter.http.answer import Receive, Send, deliver, next_event, refuse
from crossdock.adapter.http.connection import Connection
from crossdock.adapter.http.guard import (
    RETRY_SOON,
    Admitted,
    Answer,
    Guard,
    Room,
    failure,
    too_large,
)
from crossdock.adapter.http.transport import HttpReceiveOptions
from crossdock.errors import ApplicationError, ClientGoneError, CrossdockError, RefusedError, TransientError

HEAD_BYTES = 16 * 1024

logger = logging.getLogger(__name__)

_FAILED = "the request could not be handled"


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request. Header names are in lower case; `path` is decoded, `client` the address without its port."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    client: str
    user: str | None


Handler = Callable[[Request], Awaitable[Answer]]
_Scope = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """Requests for exactly this path, which is decoded and begins with a slash, go to this handler."""

    path: str
    options: HttpReceiveOptions
    handler: Handler


class HttpApp:
    """The ASGI application of one address. Any thread may replace the routes."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._routes: Mapping[str, tuple[Route, Guard]] = {}

    def replace(self, routes: Sequence[Route]) -> None:
        """A route whose options stay the same keeps its count of requests. ApplicationError if two have one path."""
        served: dict[str, tuple[Route, Guard]] = {}
        for route in routes:
            if route.path in served:
                raise ApplicationError(
                    f"two http locations listen on the same path {route.path!r}: give one another path"
                )
            _, guard = self._routes.get(route.path, (None, None))
            same = guard is not None and guard.options == route.options
            served[route.path] = (route, guard if guard is not None and same else Guard(route.options, self._room))
        self._routes = served

    @property
    def routes(self) -> list[Route]:
        return [route for route, _ in self._routes.values()]

    async def __call__(self, scope: _Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens: what escapes from here becomes a traceback."""
        headers = _headers(scope)
        client: Connection = scope["state"]["client"]
        with suppress(ClientGoneError):
            try:
                answer = await self._answer(scope, headers, receive)
            except RefusedError as refused:
                answer = failure(refused.status, refused.reason, refused.headers)
                await refuse(client, receive, send, answer, headers)
                return
            except asyncio.CancelledError:
                # Only the server cancels, where it stops: the answer is the last thing this task does.
                answer = failure(
                    503, "the server is stopping, and whether this was taken is not known: try again later", RETRY_SOON
                )
            await deliver(client, send, answer)

    async def _answer(self, scope: _Scope, headers: Mapping[str, str], receive: Receive) -> Answer:
        _check_head(scope)
        route, guard = self._routes.get(scope["path"], (None, None))
        if route is None or guard is None:
            raise RefusedError(404, "nothing listens on this path")
        client = scope["client"][0] if scope["client"] else ""
        with guard.admitted(scope["method"], headers, client) as admitted:
            body = await _body(receive, route.options, admitted)
            query = scope["query_string"].decode("latin-1")
            request = Request(scope["method"], scope["path"], query, headers, body, client, admitted.user)
            return await _handled(route, request, receive)


def _headers(scope: _Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check_head(scope: _Scope) -> None:
    # h11 counts only heads that are incomplete: a large one that comes in one piece passes it.
    size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) + 4 for n, v in scope["headers"])
    if size > HEAD_BYTES:
        raise RefusedError(431, f"the head of the request is larger than {HEAD_BYTES} bytes")


async def _body(receive: Receive, options: HttpReceiveOptions, admitted: Admitted) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(options.read_timeout):
            while True:
                event = await next_event(receive)
                if len(body) + len(event["body"]) > options.maximum_size:
                    raise too_large(options.maximum_size)
                admitted.hold(len(event["body"]))
                body += event["body"]
                if not event["more_body"]:
                    return bytes(body)
    except TimeoutError:
        raise RefusedError(408, f"the body did not come within {options.read_timeout:g} seconds") from None


async def _handled(route: Route, request: Request, receive: Receive) -> Answer:
    """What the handler answers. It is cancelled if the client hangs up, and then nobody is answered."""
    task = asyncio.current_task()
    assert task is not None
    presence = asyncio.create_task(_until_gone(receive))
    presence.add_done_callback(lambda ended: None if ended.cancelled() else task.cancel())
    try:
        return await _outcome(route, request)
    except asyncio.CancelledError:
        if presence.done():
            raise ClientGoneError from None
        if task.cancelling():
            raise
        return failure(500, _FAILED)  # the handler cancelled itself
    finally:
        presence.cancel()


async def _outcome(route: Route, request: Request) -> Answer:
    try:
        return await route.handler(request)
    except TransientError as error:
        logger.warning("A request for %s was answered with 503, and may be sent again: %s", route.path, error)
        return failure(503, "the request cannot be taken now: try again later", RETRY_SOON)
    except CrossdockError as error:
        logger.error("A request for %s failed: %s", route.path, error)
    except Exception:
        logger.exception("A request for %s failed", route.path)
    return failure(500, _FAILED)


async def _until_gone(receive: Receive) -> None:
    with suppress(ClientGoneError):
        while True:
            await next_event(receive)
