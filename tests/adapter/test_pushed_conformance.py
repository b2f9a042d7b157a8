"""The pushed adapters that there are keep what `testing/pushed_conformance.py` says about every one of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event

import pytest

from crossdock.adapter.contract import PushedReceiveAdapter
from crossdock.adapter.http.receive import HttpReceiveAdapter
from crossdock.component import load_callable
from crossdock.testing.pushed_conformance import PushedAdapterConformance
from http_client import head
from office import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"


class Port(PushedAdapterConformance):
    """Partners of an adapter that listens on a port of TCP."""

    answers = True

    @pytest.fixture(autouse=True)
    def _port(self) -> None:
        self.port = free_port()

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=self.deadline_seconds) as connection:
            yield connection


class TestHttp(Port):
    def make_adapter(self) -> PushedReceiveAdapter:
        return HttpReceiveAdapter(f"http://127.0.0.1:{self.port}/orders")

    def push(self, body: bytes) -> bool:
        return self._posted(body)[0] == 202

    def push_half(self, body: bytes) -> None:
        with self.connected() as connection:
            connection.sendall(head("/orders", f"Content-Length: {len(body)}") + body[: len(body) // 2])

    def ask(self, body: bytes) -> bytes | None:
        status, answer = self._posted(body)
        return answer if status == 200 else None

    def ask_and_hang_up(self, body: bytes, asked: Event) -> None:
        with self.connected() as connection:
            connection.sendall(head("/orders", f"Content-Length: {len(body)}") + body)
            asked.wait(self.deadline_seconds)

    def _posted(self, body: bytes) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=self.deadline_seconds)
        try:
            connection.request("POST", "/orders", body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            return 0, b""
        finally:
            connection.close()


class TestLines(Port):
    """The example of docs/how-to/write-a-pushed-adapter.md."""

    def make_adapter(self) -> PushedReceiveAdapter:
        made: PushedReceiveAdapter = load_callable("lines:LineListener", str(EXAMPLES))(f"127.0.0.1:{self.port}")
        return made

    def push(self, body: bytes) -> bool:
        return self._told(body).startswith(b"ok ")

    def push_half(self, body: bytes) -> None:
        with self.connected() as connection:
            connection.sendall(body[: len(body) // 2])

    def ask(self, body: bytes) -> bytes | None:
        answer = self._told(body)
        return None if not answer or answer.startswith(b"error ") else answer.rstrip(b"\n")

    def ask_and_hang_up(self, body: bytes, asked: Event) -> None:
        with self.connected() as connection:
            connection.sendall(body + b"\n")
            asked.wait(self.deadline_seconds)

    def _told(self, body: bytes) -> bytes:
        try:
            with self.connected() as connection, connection.makefile("rb") as answers:
                connection.sendall(body + b"\n")
                return answers.readline()
        except OSError:
            return b""


def test_example_is_the_one_that_the_page_shows() -> None:
    page = (EXAMPLES.parent / "docs" / "how-to" / "write-a-pushed-adapter.md").read_text("utf-8")

    assert f"```python\n{(EXAMPLES / 'lines.py').read_text('utf-8')}```" in page
