"""The http server with a certificate of its own."""

from __future__ import annotations

import queue
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from crossdock.adapter.http.app import Handler, Request
from crossdock.adapter.http.connection import Limits
from crossdock.adapter.http.guard import Answer
from crossdock.adapter.http.server import HttpServer
from crossdock.adapter.http.transport import HttpReceiveOptions
from crossdock.errors import TransientError
from http_client import DEADLINE, Client, a_route, echo, make_certificate, openssl, post


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate, its key, and that key again with a password."""
    folder = tmp_path_factory.mktemp("keys")
    make_certificate(folder)
    openssl(folder, "ec", "-in", "key.pem", "-aes128", "-passout", "pass:secret", "-out", "locked.pem")
    return folder


@contextmanager
def serving_with(keys: Path, limits: Limits | None = None, handler: Handler = echo) -> Iterator[HttpServer]:
    certificate, key = str(keys / "certificate.pem"), str(keys / "key.pem")
    server = HttpServer("127.0.0.1", 0, certificate=certificate, key=key, limits=limits)
    server.routes([a_route("/orders", handler, HttpReceiveOptions(certificate=certificate, key=key))])
    server.start()
    try:
        yield server
    finally:
        server.stop(0)


@pytest.fixture
def server(keys: Path) -> Iterator[HttpServer]:
    with serving_with(keys) as server:
        yield server


def test_a_request_is_answered_over_tls(server: HttpServer, keys: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(keys / "certificate.pem"))

    with httpx.Client(verify=trusting, trust_env=False, timeout=DEADLINE) as client:
        answers = [client.post(f"https://127.0.0.1:{server.port}/orders", content=b"x" * 1_000_000) for _ in range(2)]

    assert [(answer.status_code, len(answer.content)) for answer in answers] == [(200, 1_000_000)] * 2


def test_what_is_not_http_is_refused_over_tls_too(server: HttpServer, keys: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(keys / "certificate.pem"))

    raw = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE)
    with trusting.wrap_socket(raw, server_hostname="127.0.0.1") as client:
        client.sendall(b"hello\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(1000), b""))

    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(("reads", "outcome"), [(True, "sent"), (False, "lost")])
@pytest.mark.parametrize("line", ["X: 1", "Connection: close"])
def test_an_answer_over_tls_is_sent_if_its_client_reads_it(keys: Path, reads: bool, outcome: str, line: str) -> None:
    outcomes: queue.Queue[str] = queue.Queue()

    async def handler(_: Request) -> Answer:
        return Answer(200, b"x" * 20_000_000, sent=lambda: outcomes.put("sent"), lost=lambda: outcomes.put("lost"))

    trusting = ssl.create_default_context(cafile=str(keys / "certificate.pem"))
    with serving_with(keys, handler=handler) as server:
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE)
        with trusting.wrap_socket(raw, server_hostname="127.0.0.1") as client:
            client.sendall(post(b"1", "/orders", line))
            received = len(client.recv(1000))
            while reads and received < 20_000_000:
                received += len(client.recv(1_000_000))

        assert outcomes.get(timeout=DEADLINE) == outcome


@pytest.mark.parametrize(("data", "head_seconds"), [(b"", 0.1), (post(), 600)])
def test_a_client_without_tls_is_disconnected_quietly(
    keys: Path, data: bytes, head_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    with serving_with(keys, Limits(head_seconds=head_seconds)) as server, Client(server, data) as client:
        assert client.is_closed()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("certificate", "key"),
    [
        ("missing.pem", "key.pem"),
        ("certificate.pem", "missing.pem"),
        ("key.pem", "key.pem"),
        ("certificate.pem", "locked.pem"),
        ("certificate.pem", None),
    ],
)
def test_a_certificate_that_cannot_be_used_is_told(keys: Path, certificate: str, key: str | None) -> None:
    server = HttpServer(
        "127.0.0.1", 0, certificate=str(keys / certificate), key=None if key is None else str(keys / key)
    )

    with pytest.raises(TransientError, match="cannot read certificate"):
        server.start()
