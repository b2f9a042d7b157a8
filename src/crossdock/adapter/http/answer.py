"""Gives an answer to a client, who may be slow, silent or gone: it counts as sent once all of it has gone out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from typing import Any

from crossdock.adapter.http.connection import Connection
from crossdock.adapter.http.guard import Answer
from crossdock.errors import ClientGoneError

LINGER_SECONDS = 2.0

_PIECE_BYTES = 64 * 1024
_OURS = {"connection", "content-length", "date", "transfer-encoding"}
_WITHOUT_BODY = {204, 304}
_END = {"type": "http.response.body", "body": b""}

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def deliver(client: Connection, send: Send, answer: Answer) -> None:
    """Send it, and say what became of it; what follows on the connection comes after that."""
    try:
        async with _in_time(client):
            await _write(client, send, answer)
    except BaseException:
        answer.lost()
        raise
    answer.sent()
    await send(_END)


async def refuse(client: Connection, receive: Receive, send: Send, answer: Answer, headers: Mapping[str, str]) -> None:
    """Answer a request with these headers, whose body was not read."""
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0").strip("0")
    async with _in_time(client):
        await _write(client, send, answer, *([(b"connection", b"close")] if has_body else []))
    if has_body:
        await _linger(receive)
    await send(_END)


async def next_event(receive: Receive) -> Mapping[str, Any]:
    """The next piece of the body; ClientGoneError."""
    event = await receive()
    if event["type"] == "http.disconnect":
        raise ClientGoneError
    return event


@asynccontextmanager
async def _in_time(client: Connection) -> AsyncIterator[None]:
    """What is sent in the block has to go out before the client is gone, the time over or the server stopped."""
    try:
        if not client.is_there():
            raise ClientGoneError
        async with asyncio.timeout(client.flush_seconds):
            yield
            if not await client.drained():
                raise ClientGoneError
    except (TimeoutError, asyncio.CancelledError, ClientGoneError):
        client.hang_up()
        raise ClientGoneError from None


async def _write(client: Connection, send: Send, answer: Answer, *more: tuple[bytes, bytes]) -> None:
    """In pieces, with others between them: of all at once asyncio's TLS would say that it has gone out."""
    rest = memoryview(_carried(answer))
    await send({"type": "http.response.start", "status": answer.status, "headers": [*_lines(answer), *more]})
    while len(rest) > _PIECE_BYTES:
        await send(_piece(rest[:_PIECE_BYTES]))
        await asyncio.sleep(0)
        if not await client.drained():
            raise ClientGoneError
        rest = rest[_PIECE_BYTES:]
    await send(_piece(rest))


def _piece(content: memoryview) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": True}


async def _linger(receive: Receive) -> None:
    """The client may still be sending: closing at once would reset the connection, and lose the answer."""
    with suppress(TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await next_event(receive))["more_body"]:
                pass


def _lines(answer: Answer) -> Iterator[tuple[bytes, bytes]]:
    yield b"date", formatdate(usegmt=True).encode()
    for name, value in answer.headers.items():
        if name.lower() not in _OURS:
            yield name.lower().encode("latin-1"), value.encode("latin-1")
    if answer.status not in _WITHOUT_BODY:
        yield b"content-length", str(len(answer.body)).encode()


def _carried(answer: Answer) -> bytes:
    return b"" if answer.status in _WITHOUT_BODY else answer.body
