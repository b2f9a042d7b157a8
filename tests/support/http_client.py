"""An http server to test with, handlers that can be held back, and clients that misbehave on a raw socket."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from crossdock.adapter.http.app import Handler, Request, Route
from crossdock.adapter.http.connection import Limits
from crossdock.adapter.http.guard import Answer, Room
from crossdock.adapter.http.server import HttpServer
from crossdock.adapter.http.transport import HttpReceiveOptions

DEADLINE = 20.0


async def echo(request: Request) -> Answer:
    return Answer(200, request.body)


def a_route(path: str = "/orders", handler: Handler = echo, options: HttpReceiveOptions | None = None) -> Route:
    return Route(path, options or HttpReceiveOptions(), handler)


@contextmanager
def serving(*routes: Route, limits: Limits | None = None, room: Room | None = None) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, limits=limits, room=room)
    server.routes(routes or [a_route()])
    server.start()
    try:
        yield server
    finally:
        server.stop(0)


@dataclass(frozen=True)
class Waiting:
    """A handler in the middle of its work."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]

    def go_on(self) -> None:
        self.loop.call_soon_threadsafe(self.future.set_result, None)


@dataclass
class Gate:
    """Its handler waits until it is told to go on, and then answers with the body it got."""

    waiting: queue.Queue[Waiting] = field(default_factory=queue.Queue)
    cancelled: threading.Event = field(default_factory=threading.Event)

    async def handler(self, request: Request) -> Answer:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.waiting.put(Waiting(loop, future))
        try:
            await future
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Answer(200, request.body)

    def arrived(self) -> Waiting:
        return self.waiting.get(timeout=DEADLINE)


def head(path: str = "/orders", *lines: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: test", *lines, "", ""]).encode()


def post(body: bytes = b"one", path: str = "/orders", *lines: str) -> bytes:
    return head(path, f"Content-Length: {len(body)}", *lines) + body


@dataclass(frozen=True)
class Reply:
    """One answer as it came over the socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


class Client:
    """A raw connection; everything on it has a deadline."""

    def __init__(self, server: HttpServer, data: bytes = b"", source: str = "127.0.0.1") -> None:
        here = (source, 0)
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE, source_address=here)
        self._file = self.socket.makefile("rb")
        self.send(data)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> Reply:
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        for line in iter(self._file.readline, b"\r\n"):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return Reply(status, headers, self._file.read(int(headers.get("content-length", "0"))))

    def rest(self) -> bytes:
        """What comes until the end of the connection."""
        pieces: list[bytes] = []
        with suppress(ConnectionResetError):
            pieces.extend(iter(lambda: self.socket.recv(1_000_000), b""))
        return b"".join(pieces)

    def is_closed(self) -> bool:
        """Waits for the end of the connection; false if there is more to read."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def hang_up(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.hang_up()


def ask(server: HttpServer, data: bytes) -> Reply:
    with Client(server, data) as client:
        return client.reply()


def make_certificate(folder: Path) -> None:
    """`certificate.pem` and `key.pem`, for 127.0.0.1."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    openssl(folder, "req", "-x509", *key, *names, "-days", "2", "-out", "certificate.pem")


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=DEADLINE)


def statuses(server: HttpServer, requests: Sequence[bytes]) -> list[int]:
    return [ask(server, request).status for request in requests]
