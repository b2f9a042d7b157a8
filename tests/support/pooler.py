"""A pooler in transaction mode, as small as it can be: a backend serves whoever has a transaction, the last one left first."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_VERSION_3 = 196608


@contextmanager
def transaction_pooler(database: str) -> Iterator[str]:
    """The connection string by which a database is reached through the pooler; over a unix socket, and trusted."""
    place = conninfo_to_dict(database)
    pooler = _Pooler(Path(str(place["host"])) / ".s.PGSQL.5432", str(place["user"]), str(place["dbname"]))
    thread = threading.Thread(target=pooler.accept)
    thread.start()
    try:
        port = pooler.listening.getsockname()[1]
        yield make_conninfo(
            host="127.0.0.1", port=port, user=str(place["user"]), dbname=str(place["dbname"]), sslmode="disable",
            gssencmode="disable",
        )  # fmt: skip
    finally:
        pooler.close()
        thread.join()


class _Pooler:
    def __init__(self, server: Path, user: str, database: str) -> None:
        self._server = server
        self._hello = f"user\0{user}\0database\0{database}\0\0".encode()
        self._free: list[socket.socket] = []
        self._open: list[socket.socket] = []
        self.listening = socket.create_server(("127.0.0.1", 0))

    def accept(self) -> None:
        threads = []
        with suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(client)
                threads.append(threading.Thread(target=self._serve, args=[client]))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        for each in (self.listening, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            length = struct.unpack(">i", _exactly(client, 4))[0]
            _exactly(client, length - 4)
            backend, greeting = self._backend()
            self._free.append(backend)
            client.sendall(greeting)
            while True:
                self._transaction(client)

    def _transaction(self, client: socket.socket) -> None:
        """From the first message of a client to the end of its transaction."""
        backend: socket.socket | None = None
        while True:
            kind, message = _message(client)
            if kind == b"X":
                raise EOFError
            if backend is None:
                backend = self._free.pop() if self._free else self._backend()[0]
            backend.sendall(message)
            if kind in b"QS" and self._answer(backend, client):
                return

    def _answer(self, backend: socket.socket, client: socket.socket) -> bool:
        """Until the backend is ready again. It is free before the client hears that its transaction has ended."""
        while True:
            kind, message = _message(backend)
            ended = kind == b"Z" and message[-1:] == b"I"
            if ended:
                self._free.append(backend)
            client.sendall(message)
            if kind == b"Z":
                return ended

    def _backend(self) -> tuple[socket.socket, bytes]:
        backend = socket.socket(socket.AF_UNIX)
        self._open.append(backend)
        backend.connect(str(self._server))
        backend.sendall(struct.pack(">ii", 8 + len(self._hello), _VERSION_3) + self._hello)
        greeting = b""
        while True:
            kind, message = _message(backend)
            greeting += message
            if kind == b"Z":
                return backend, greeting


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    return head[:1], head + _exactly(source, struct.unpack(">i", head[1:])[0] - 4)


def _exactly(source: socket.socket, length: int) -> bytes:
    read = b""
    while len(read) < length:
        piece = source.recv(length - len(read))
        if not piece:
            raise EOFError
        read += piece
    return read
