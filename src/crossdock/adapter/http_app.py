"""From a request to its answer: finds the route, asks its guard, reads the body and waits for the handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from crossdock.adapter.http_guard import RETRY_SOON, Answer, Guard, HttpOptions, RefusedError, failure, too_large
from crossdock.errors import ApplicationError, CrossdockError, TransientError

HEAD_BYTES = 16 * 1024
LINGER_SECONDS = 2.0

logger = logging.getLogger(__name__)

_OURS = {"connection", "content-length", "date", "transfer-encoding"}
_FAILED = "the request could not be handled"
_WITHOUT_BODY = {204, 304}


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
_Receive = Callable[[], Awaitable[Mapping[str, Any]]]
_Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """Requests for exactly this path, which is decoded and begins with a slash, go to this handler."""

    path: str
    options: HttpOptions
    handler: Handler


class ClientGoneError(Exception):
    """Nobody is there to answer."""


class HttpApp:
    """The ASGI application of one address. Any thread may replace the routes."""

    def __init__(self) -> None:
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
            served[route.path] = (route, guard if guard is not None and same else Guard(route.options))
        self._routes = served

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request, whatever happens: what escapes from here becomes a traceback."""
        headers = _headers(scope)
        with suppress(ClientGoneError):
            try:
                await _deliver(send, await self._answer(scope, headers, receive))
            except RefusedError as refused:
                await _refuse(receive, send, refused.answer, headers)
            except asyncio.CancelledError:
                # Only the server cancels, where it stops: the answer is the last thing this task does.
                await _send(send, failure(503, "the server is stopping: try again later", RETRY_SOON))

    async def _answer(self, scope: _Scope, headers: Mapping[str, str], receive: _Receive) -> Answer:
        _check_head(scope)
        route, guard = self._routes.get(scope["path"], (None, None))
        if route is None or guard is None:
            raise RefusedError(404, "nothing listens on this path")
        with guard.admitted(scope["method"], headers) as user:
            body = await _body(receive, route.options)
            return await _handled(route, _request(scope, headers, body, user), receive)


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


def _request(scope: _Scope, headers: Mapping[str, str], body: bytes, user: str | None) -> Request:
    client = scope["client"][0] if scope["client"] else ""
    query = scope["query_string"].decode("latin-1")
    return Request(scope["method"], scope["path"], query, headers, body, client, user)


async def _body(receive: _Receive, options: HttpOptions) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(options.read_timeout):
            while True:
                event = await _next(receive)
                pieces.append(event["body"])
                size += len(event["body"])
                if size > options.maximum_size:
                    raise too_large(options.maximum_size)
                if not event["more_body"]:
                    return b"".join(pieces)
    except TimeoutError:
        raise RefusedError(408, f"the body did not come within {options.read_timeout:g} seconds") from None


async def _next(receive: _Receive) -> Mapping[str, Any]:
    event = await receive()
    if event["type"] == "http.disconnect":
        raise ClientGoneError
    return event


async def _handled(route: Route, request: Request, receive: _Receive) -> Answer:
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
        logger.warning("A request for %s was not taken and may be sent again: %s", route.path, error)
        return failure(503, "the request cannot be taken now: try again later", RETRY_SOON)
    except CrossdockError as error:
        logger.error("A request for %s failed: %s", route.path, error)
    except Exception:
        logger.exception("A request for %s failed", route.path)
    return failure(500, _FAILED)


async def _until_gone(receive: _Receive) -> None:
    with suppress(ClientGoneError):
        while True:
            await _next(receive)


async def _deliver(send: _Send, answer: Answer) -> None:
    """Send it, and say so."""
    try:
        await _send(send, answer)
    except BaseException:
        answer.lost()
        raise
    answer.sent()


async def _send(send: _Send, answer: Answer) -> None:
    await send(_start(answer))
    await send({"type": "http.response.body", "body": _carried(answer)})


async def _refuse(receive: _Receive, send: _Send, answer: Answer, headers: Mapping[str, str]) -> None:
    if "transfer-encoding" in headers or headers.get("content-length", "0").strip("0"):
        await _send_and_close(receive, send, answer)
    else:
        await _send(send, answer)


async def _send_and_close(receive: _Receive, send: _Send, answer: Answer) -> None:
    """Answer a client that may still be sending: closing at once would reset the connection, and lose the answer."""
    await send(_start(answer, (b"connection", b"close")))
    await send({"type": "http.response.body", "body": _carried(answer), "more_body": True})
    with suppress(TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await _next(receive))["more_body"]:
                pass
    await send({"type": "http.response.body", "body": b""})


def _start(answer: Answer, *more: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": answer.status, "headers": [*_lines(answer), *more]}


def _lines(answer: Answer) -> Iterator[tuple[bytes, bytes]]:
    yield b"date", formatdate(usegmt=True).encode()
    for name, value in answer.headers.items():
        if name.lower() not in _OURS:
            yield name.lower().encode("latin-1"), value.encode("latin-1")
    if answer.status not in _WITHOUT_BODY:
        yield b"content-length", str(len(answer.body)).encode()


def _carried(answer: Answer) -> bytes:
    return b"" if answer.status in _WITHOUT_BODY else answer.body
