"""Http locations: each is a path on a server. Locations of one process on the same port share the server.

Read `exchange.py` next for what becomes of a request, and `server.py` for how it is served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crossdock.adapter.contract import PushedReceiveAdapter, Receiver
from crossdock.adapter.http.address import parse_address
from crossdock.adapter.http.app import Route
from crossdock.adapter.http.exchange import Exchange
from crossdock.adapter.http.guard import Room
from crossdock.adapter.http.server import HttpServer
from crossdock.adapter.http.transport import HttpReceiveOptions
from crossdock.errors import ApplicationError


class HttpReceiveAdapter:
    """Takes the requests for one path."""

    answers = True

    def __init__(self, address: str, **options: Any) -> None:
        scheme, self._host, self._port, self._path = parse_address(address)
        self._options = HttpReceiveOptions(**options)
        if (scheme == "https") != (self._options.certificate is not None):
            raise ApplicationError("an https address needs the option 'certificate', and an http address has none")
        self.maximum_size = self._options.maximum_size
        self.place = (self._host, self._port, self._path)
        self._listens = (self._host, self._port, self._options.certificate, self._options.key)
        self._room = Room()
        self._server: HttpServer | None = None
        self._route: Route | None = None

    def share(self, running: Sequence[PushedReceiveAdapter]) -> bool:
        """All of a process share the room for bodies; those on one port, with one certificate, share the server."""
        others = [each for each in running if isinstance(each, HttpReceiveAdapter)]
        self._room = others[0]._room if others else self._room
        self._server = next((each._server for each in others if each._listens == self._listens), None)
        return self._server is not None

    def start(self, receiver: Receiver) -> None:
        """TransientError if address or certificate cannot be used."""
        host, port, certificate, key = self._listens
        server = self._server or HttpServer(host, port, certificate=certificate, key=key, room=self._room)
        route = Route(self._path, self._options, Exchange(receiver, self._options).handle)
        server.add(route)
        server.start()
        self._server, self._route = server, route

    def close(self) -> None:
        """The server goes with its last location; requests in progress keep their handler."""
        if self._server is not None and self._route is not None and not self._server.remove(self._route):
            self._server.close()

    def stop(self, seconds: float) -> None:
        if self._server is not None and self._route is not None and not self._server.remove(self._route):
            self._server.stop(seconds)
