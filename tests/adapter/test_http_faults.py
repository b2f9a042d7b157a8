"""Web servers that do not behave: garbage, silence, resets, and answers that come one byte at a time."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from io import BytesIO
from uuid import UUID

import pytest

from crossdock.adapter.contract import Reply
from crossdock.adapter.http.send import HttpSendAdapter
from crossdock.errors import TerminalError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from partner import raw_partner

ID = MessageId(UUID(int=7))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SMALL = Message(ID, Context(), (Part("body", b"hello"),))


def send(address: str, message: Message = SMALL, *, timeout: float = 30) -> Reply:
    with closing(HttpSendAdapter(address, timeout=timeout)) as adapter:
        return adapter.send(message, attempt=0)


def answering(answer: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def behave(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    return behave


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff garbage \r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 200_000,
    ],
)
def test_answer_that_makes_no_sense_is_worth_another_try(answer: bytes) -> None:
    with raw_partner(answering(answer)) as address, pytest.raises(TransientError, match="has no answer: ") as raised:
        send(address)

    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


def test_refusal_stands_though_its_text_is_cut_off() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\nhalf"

    with raw_partner(answering(answer)) as address, pytest.raises(TerminalError, match="400 Bad Request: half"):
        send(address)


def test_connection_that_is_reset_is_worth_another_try() -> None:
    def reset(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with raw_partner(reset) as address, pytest.raises(TransientError, match="has no answer: "):
        send(address)


def hang(connection: socket.socket, over: threading.Event) -> None:
    over.wait(60)
    connection.close()


def drip(text: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """The text, then one byte now and then for ever."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(text)
        while not over.wait(0.02):
            connection.sendall(b"x")

    return behave


@pytest.mark.parametrize(
    "behave",
    [
        hang,
        drip(b"HTTP/1.1 200 OK\r\nX-Slow: "),
        drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"),
        drip(b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n"),
    ],
    ids=["silent", "drips headers", "drips the answer", "drips the refusal"],
)
def test_partner_cannot_hold_a_worker_for_ever(behave: Callable[[socket.socket, threading.Event], None]) -> None:
    started = time.monotonic()

    with raw_partner(behave) as address, pytest.raises(TransientError):
        send(address, timeout=0.1)

    assert time.monotonic() - started < 10


def test_partner_that_does_not_read_cannot_hold_a_worker() -> None:
    message = Message(ID, Context(), (StreamedPart("body", partial(BytesIO, bytes(50_000_000))),))

    with raw_partner(hang) as address, pytest.raises(TransientError, match="timed out"):
        send(address, message, timeout=0.1)


def test_large_body_may_take_longer_than_the_deadline_while_it_is_read() -> None:
    def read_slowly(connection: socket.socket, over: threading.Event) -> None:
        received = b""
        while not received.endswith(b"0\r\n\r\n") and not over.wait(0.1):
            received = received[-5:] + connection.recv(1_000_000)
        connection.sendall(OK)

    message = Message(ID, Context(), (StreamedPart("body", partial(BytesIO, bytes(30_000_000))),))
    started = time.monotonic()

    with raw_partner(read_slowly) as address:
        reply = send(address, message, timeout=0.7)

    assert reply.body == b"ok"
    assert time.monotonic() - started > 2.8  # which the deadline of a small message would be
