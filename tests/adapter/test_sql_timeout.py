"""A partner's database that hangs: each statement ends after the time it has, on the server or on our side."""

from __future__ import annotations

import socket
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from crossdock.adapter.sql.receive import SqlReceiveAdapter
from crossdock.errors import TransientError
from sql_orders import DONE, QUERY, on_postgresql, receiving

_SETTINGS = {"server_version": "15.0", "client_encoding": "UTF8", "standard_conforming_strings": "on"}


def test_table_that_the_partner_locks_fails_the_listing_and_the_marking(empty_database: str) -> None:
    adapter = on_postgresql(empty_database, query=QUERY, key="id", done=DONE, timeout=2)
    with psycopg.connect(empty_database) as partner:
        partner.execute("CREATE TABLE orders AS SELECT 1 AS id, 'one' AS item, 0 AS sent")
        partner.commit()
        [source] = adapter.list().ready
        partner.execute("LOCK TABLE orders")

        with pytest.raises(TransientError, match="lock timeout"):
            adapter.list()
        with pytest.raises(TransientError, match="lock timeout"):
            adapter.acknowledge(source.identity)

    assert adapter.list().ready == (source,)


def test_query_that_takes_for_ever_ends(empty_database: str) -> None:
    adapter = on_postgresql(empty_database, query="SELECT 1 AS id, pg_sleep(60)", key="id", done=DONE, timeout=0.3)

    with pytest.raises(TransientError, match="statement timeout"):
        adapter.list()


def test_query_that_takes_for_ever_in_sqlite_ends(folder: Path, orders: sqlite3.Connection) -> None:
    orders.execute(
        "CREATE VIEW endless AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
        "SELECT id FROM n WHERE id < 0"
    )

    with pytest.raises(TransientError, match="interrupted"):
        receiving(folder, query="SELECT * FROM endless", timeout=0.3).list()


def test_server_that_takes_the_connection_and_never_answers_is_given_up() -> None:
    with _deaf_server() as port:
        adapter = SqlReceiveAdapter(f"postgresql://u@127.0.0.1:{port}/d", query=QUERY, key="id", done=DONE, timeout=0.3)

        with pytest.raises(TransientError, match="does not answer"):
            adapter.list()


@contextmanager
def _deaf_server() -> Iterator[int]:
    """Says that it is a PostgreSQL that is ready, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=_welcome_all, args=[server], daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _welcome_all(server: socket.socket) -> None:
    kept = []
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        kept.append(connection)
        while _first_request(connection) in (80877103, 80877104):  # TLS or GSS
            connection.sendall(b"N")
        settings = (_said(b"S", f"{name}\0{value}\0".encode()) for name, value in _SETTINGS.items())
        connection.sendall(_said(b"R", struct.pack("!I", 0)) + b"".join(settings) + _said(b"Z", b"I"))


def _first_request(connection: socket.socket) -> int:
    length = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))[0]
    return int(struct.unpack("!I", connection.recv(length - 4, socket.MSG_WAITALL)[:4])[0])


def _said(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body
