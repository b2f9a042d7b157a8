"""Web servers on real sockets: one that keeps what it gets, and one that answers any bytes in any way."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Partner:
    """Keeps requests and answers each as told; `respond` gives status and body where they depend on the request."""

    address: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    respond: Callable[[Request], tuple[int, bytes]] | None = None


@contextmanager
def partner(context: ssl.SSLContext | None = None) -> Iterator[Partner]:
    """A web server; with a `context` it speaks TLS."""
    kept = Partner()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            kept.connections += 1
            super().handle()

        def keep(self) -> None:
            request = Request(self.command, self.path, dict(self.headers.items()), self.content())
            kept.requests.append(request)
            status, answer = (kept.status, kept.answer) if kept.respond is None else kept.respond(request)
            self.send_response(status)
            for name, value in {**kept.headers, "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        do_POST = do_PUT = do_GET = do_DELETE = do_HEAD = do_PURGE = keep  # noqa: N815

        def content(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that goes away is part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    kept.address = f"{'http' if context is None else 'https'}://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def raw_partner(behave: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """The address of a server that does with each connection what it likes; the event says that the test is over."""
    over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                behave(connection, over)
            except OSError:
                return  # the client has gone

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=talk, args=(connection,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()
        for thread in threads:
            thread.join()


def unused_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return int(closed.getsockname()[1])
