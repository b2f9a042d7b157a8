"""Secrets come from the environment where an option says so."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Thread
from uuid import uuid4

import pytest

from crossdock.adapter.http.send import HttpSendAdapter
from crossdock.adapter.secret import secret
from crossdock.adapter.sql.database import Database
from crossdock.adapter.sql.send import SqlSendAdapter
from crossdock.errors import ApplicationError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from office import eventually
from partner import partner


def test_a_secret_is_read_from_the_environment_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_KEY", "from the environment")

    assert secret("env:ORDERS_KEY") == "from the environment"
    assert secret("as it is") == "as it is"

    monkeypatch.delenv("ORDERS_KEY")
    with pytest.raises(TransientError, match="'ORDERS_KEY' is not set"):
        secret("env:ORDERS_KEY")


def a_message() -> Message:
    return Message(MessageId(uuid4()), Context({"Region": "env:ORDERS_KEY"}), (Part("body", b"content"),))


@contextmanager
def curious_server() -> Iterator[tuple[str, list[bytes]]]:
    """Host and port of a PostgreSQL that asks every client for its password in the clear, and what it is told."""
    told: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                while (length := struct.unpack("!I", client.recv(4))[0]) == 8:  # TLS or GSS? No.
                    client.recv(4)
                    client.sendall(b"N")
                client.recv(length - 4)
                client.sendall(b"R" + struct.pack("!II", 8, 3))
                told.append(client.recv(1000))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", told


def test_password_in_the_address_of_a_database_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    with curious_server() as (place, told):
        with closing(SqlSendAdapter(f"postgresql://shop:env:SHOP@{place}/d", statement="SELECT 1")) as adapter:
            for password in ("first", "second"):
                monkeypatch.setenv("SHOP", password)
                with pytest.raises(TransientError):
                    adapter.send(a_message(), attempt=0)
            monkeypatch.delenv("SHOP")
            with pytest.raises(TransientError, match="'SHOP' is not set"):
                adapter.send(a_message(), attempt=0)

        eventually(lambda: [message[5:-1] for message in told], [b"first", b"second"])


def test_password_of_the_messagebox_is_offered_to_no_other_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "geheim")
    with curious_server() as (place, told):
        with (
            closing(SqlSendAdapter(f"postgresql://shop@{place}/d", statement="SELECT 1")) as adapter,
            pytest.raises(TransientError, match="no password supplied"),
        ):
            adapter.send(a_message(), attempt=0)

        eventually(lambda: told, [b""])  # the server notices the end of the connection a moment after us


def test_secret_in_the_query_of_an_address_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_KEY", "ge heim&")
    with partner() as shop:
        shop.respond = lambda request: (400, f"what is {request.path}?".encode())
        address = f"{shop.address}/a?key=env:ORDERS_KEY&region=%Region%"
        with closing(HttpSendAdapter(address)) as adapter, pytest.raises(Exception, match="answered 400") as caught:
            adapter.send(a_message(), attempt=0)

        assert shop.requests[0].path == "/a?key=ge%20heim%26&region=env%3AORDERS_KEY"
        assert "heim" not in str(caught.value)


@pytest.mark.parametrize("address", ["postgresql://u:ge@heim@h/d", "postgresql://u:ge@he:1/im@h/d"])
def test_password_that_would_be_shown_as_a_host_is_refused(address: str) -> None:
    with pytest.raises(ApplicationError, match="write an @ in a password as %40") as caught:
        Database(address, timeout=60)

    assert "he" not in str(caught.value).replace("the", "").replace("behind", "")
