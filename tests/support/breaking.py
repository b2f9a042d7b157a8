"""A way to PostgreSQL that breaks at a chosen statement: before the server hears of it, or before we hear the answer.

Statements are counted on the wire: each ends with a Sync or is a simple Query. What is held back of a statement that
breaks before it was never committed, because a statement outside a transaction commits at its Sync.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

When = Literal["before", "after"]
_ENDS_A_STATEMENT = (b"S", b"Q")
_ANSWERED = (b"Z", b"G")  # ready for the next statement, or for the rows of a COPY


class BreakingWay:
    """`database` leads through it. Nothing breaks before `break_at`; after it has broken once, nothing does again."""

    def __init__(self, database: str) -> None:
        place = conninfo_to_dict(database)
        self._server = Path(str(place["host"])) / ".s.PGSQL.5432"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._statement: int | None = None
        self._when: When = "before"
        self.statements = 0
        self.broken = False
        self.database = make_conninfo(
            host="127.0.0.1",
            port=self._listening.getsockname()[1],
            user=str(place["user"]),
            dbname=str(place["dbname"]),
            sslmode="disable",
            gssencmode="disable",
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def break_at(self, statement: int, when: When) -> None:
        """From now on count statements, and break at this one; 1 is the next."""
        with self._lock:
            self.statements, self._statement, self._when, self.broken = 0, statement, when, False

    def count(self) -> None:
        """From now on count statements, and break at none."""
        self.break_at(0, "before")

    def close(self) -> None:
        self._listening.close()
        self._cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or every answer takes 40 ms
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            with suppress(OSError, EOFError):
                server.connect(str(self._server))
                with self._lock:
                    self._open |= {client, server}
                self._pass_on(client, server)
            with self._lock:
                self._open -= {client, server}
                # Closing is not enough: `_answer` still reads from the server, which would hear of no end.
                _shut_down(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        server.sendall(_message(client, typed=False)[1])
        threading.Thread(target=self._answer, args=[client, server], daemon=True).start()
        held = b""
        while True:
            kind, message = _message(client)
            held += message
            if kind in _ENDS_A_STATEMENT:
                self._meet(server)
            if kind in _ENDS_A_STATEMENT or kind == b"H" or len(held) > 1_000_000 or kind in (b"d", b"c", b"f"):
                server.sendall(held)
                held = b""

    def _meet(self, server: socket.socket) -> None:
        """A statement is complete: count it, and break if it is the one."""
        with self._lock:
            self.statements += 1
            here = self.statements == self._statement
            if here and self._when == "after":
                self._silent = server  # its answer is the last thing that happens
                return
        if here:
            self._cut()
            raise EOFError

    _silent: socket.socket | None = None

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while True:
                kind, message = _message(server)
                if self._silent is server:
                    if kind in _ANSWERED:
                        self._silent = None
                        self._cut()
                        return
                    continue
                client.sendall(message)

    def _cut(self) -> None:
        """Every connection, as when a process or the server ends."""
        with self._lock:
            self.broken, self._statement = True, None
            _shut_down(*self._open)


def _shut_down(*connections: socket.socket) -> None:
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def breaking_way(database: str) -> Iterator[BreakingWay]:
    way = BreakingWay(database)
    try:
        yield way
    finally:
        way.close()


def _message(connection: socket.socket, *, typed: bool = True) -> tuple[bytes, bytes]:
    kind = _exactly(connection, 1) if typed else b""
    length = _exactly(connection, 4)
    return kind, kind + length + _exactly(connection, struct.unpack(">i", length)[0] - 4)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found
