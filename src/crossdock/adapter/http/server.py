"""The transport half of http locations: one server per address, in a thread and an event loop of its own.

Read `guard.py` next for who is admitted, `app.py` for how a request is answered, and `connection.py` for
what a client may hold. Nothing here knows messages.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from uvicorn import Config
from uvicorn.server import ServerState

from crossdock.adapter.http.app import HEAD_BYTES, HttpApp, Route
from crossdock.adapter.http.connection import Connection, Limits, files_for
from crossdock.adapter.http.guard import Room, network_of
from crossdock.errors import ApplicationError, TransientError

logger = logging.getLogger(__name__)

_BACKLOG = 4096
_SHARES = 2  # one client has at most such a part of the connections
_CLOSE_SECONDS = 1.0
_CANCEL_SECONDS = 1.0
_PAUSE_SECONDS = 0.5


class HttpServer:
    """Listens on one address and hands requests to its routes. Threads may share it; handlers run on its event loop.

    Servers of one process share the `room` for bodies.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        certificate: str | None = None,
        key: str | None = None,
        limits: Limits | None = None,
        room: Room | None = None,
    ) -> None:
        self.port = port
        self._host = host
        self._certificate = certificate
        self._key = key
        self._limits = limits or Limits()
        self._app = HttpApp(room or Room())
        self._lock, self._changing = threading.Lock(), threading.Lock()
        self._running: _Running | None = None

    def start(self) -> None:
        """Listen from now on; nothing if it does. TransientError if address or certificate cannot be used."""
        with self._lock:
            if self._running is not None:
                return
            context = self._context()
            listener = self._listener()
            self.port = listener.getsockname()[1]
            running = _Running(listener, context, self._app, self._limits)
            running.start()
            self._running = running

    def routes(self, routes: Sequence[Route]) -> None:
        """Serve these and no others; requests in progress keep their handler. ApplicationError if one cannot be."""
        for route in routes:
            other = (route.options.certificate, route.options.key) != (self._certificate, self._key)
            if route.options.certificate is not None and other:
                raise ApplicationError(
                    f"http location {route.path!r} has another certificate or key than its address: "
                    f"all locations on {self._host}:{self.port} need the same"
                )
        self._app.replace(routes)

    def add(self, route: Route) -> None:
        """Serve this one, too, and no other on its path."""
        with self._changing:
            self.routes([*(each for each in self._app.routes if each.path != route.path), route])

    def remove(self, route: Route) -> bool:
        """Serve it no longer, if it is served; whether others are left."""
        with self._changing:
            self.routes([each for each in self._app.routes if each is not route])
            return bool(self._app.routes)

    def close(self, seconds: float = 10) -> None:
        """Take no new requests; those in progress have so long, which is not waited for. Others may listen now."""
        with self._lock:
            if self._running is not None:
                self._running.close(seconds)

    def stop(self, seconds: float = 10) -> None:
        """Take no new requests, wait so long for those in progress, then cancel them; nothing if it does not run."""
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                running.close(seconds)
                running.join(seconds)

    def _context(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            raise TransientError(
                f"the http server on {self._host}:{self.port} cannot read certificate {self._certificate!r}"
                f" and its key: {error}"
            ) from error
        return context

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        both = self._host == "::" and socket.has_dualstack_ipv6()
        try:
            return socket.create_server((self._host, self.port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        except (OSError, OverflowError, UnicodeError) as error:
            raise TransientError(f"the http server cannot listen on {self._host}:{self.port}: {error}") from error


def _no_password() -> str:
    raise ValueError("the key has a password: store it without")  # else OpenSSL would ask on the terminal


class _Running:
    """The server between its start and its stop. All but those two happens in its thread."""

    def __init__(self, listener: socket.socket, context: ssl.SSLContext | None, app: HttpApp, limits: Limits) -> None:
        self._listener = listener
        self._context = context
        self._limits = limits
        self._capacity = min(limits.connections, files_for(limits.connections))
        self._config = _config(app)
        self._state = ServerState()
        self._greetings: set[asyncio.Task[None]] = set()
        self._held: dict[str, set[socket.socket]] = {}  # by the network of the client
        self._patience = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._name = f"The http server on port {listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._loop is None:
            raise TransientError(f"{self._name} cannot start: see the log for the reason")

    def close(self, seconds: float) -> None:
        self._patience = seconds
        with suppress(RuntimeError):  # the loop is closed already
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._closed.wait(_CLOSE_SECONDS)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds + 4 * _CANCEL_SECONDS)
        if self._thread.is_alive():
            logger.error("%s has stopped, but some of its handlers go on though they were cancelled", self._name)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            logger.exception("%s has ended", self._name)
        finally:
            self._listener.close()
            self._closed.set()
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)
        self._ready.set()
        await self._stopping.wait()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._closed.set()
        await self._finish()

    def _accept(self) -> None:
        """Take one connection, so that those who are there already get their turn where many knock."""
        try:
            client, (host, *_) = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            logger.warning("%s cannot accept a connection: %s", self._name, error)
            self._pause_accepting()
            return
        network = network_of(host)
        if len(self._greetings) + len(self._state.connections) >= self._capacity:
            logger.debug("%s has %d connections and takes no more", self._name, self._capacity)
            client.close()
        elif len(self._held.get(network, ())) >= self._capacity // _SHARES:
            logger.debug("%s takes no more connections from %s for now", self._name, network)
            client.close()
        else:
            self._held.setdefault(network, set()).add(client)
            self._greet(client, partial(self._let_go, network, client))

    def _let_go(self, network: str, client: socket.socket) -> None:
        held = self._held.get(network, set())
        held.discard(client)
        if not held:
            self._held.pop(network, None)

    def _pause_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        loop.call_later(_PAUSE_SECONDS, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if not self._stopping.is_set():
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _greet(self, client: socket.socket, ended: Callable[[], None]) -> None:
        task = asyncio.create_task(self._greeted(client, ended))
        self._greetings.add(task)
        task.add_done_callback(self._greetings.discard)

    async def _greeted(self, client: socket.socket, ended: Callable[[], None]) -> None:
        """Until the connection is made, which with TLS depends on the client."""
        seconds = self._limits.head_seconds if self._context else None
        try:
            # asyncio sets it only where the socket names its protocol, and those of create_server do not.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(self._config, self._state, self._limits, ended),
                client,
                ssl=self._context,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=self._limits.linger_seconds if self._context else None,
            )
        except OSError as error:
            logger.debug("%s: a connection was not made: %s", self._name, error)
            client.close()
            ended()

    async def _finish(self) -> None:
        """End what is in progress: first by waiting, then by cancelling, and at last by hanging up."""
        now = asyncio.get_running_loop().time
        patience_ends = now() + self._patience
        self._shut_down_connections()
        await asyncio.sleep(0)  # a greeting that has not begun would not close its socket
        await _cancelled(self._greetings)
        self._shut_down_connections()  # those made meanwhile
        if self._state.tasks:
            await asyncio.wait(set(self._state.tasks), timeout=self._patience)
        await _cancelled(self._state.tasks)
        await self._hang_up(max(patience_ends, now() + _CANCEL_SECONDS))

    def _shut_down_connections(self) -> None:
        for connection in list(self._state.connections):
            connection.shutdown()

    async def _hang_up(self, deadline: float) -> None:
        while self._state.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)  # the last answers are being written
        for connection in list(self._state.connections):
            assert isinstance(connection, Connection)
            connection.hang_up()
        await asyncio.sleep(0)


async def _cancelled(tasks: set[asyncio.Task[None]]) -> None:
    for task in list(tasks):
        task.cancel()
    if tasks:
        await asyncio.wait(set(tasks), timeout=_CANCEL_SECONDS)


def _config(app: HttpApp) -> Config:
    config = Config(
        app,
        interface="asgi3",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        workers=1,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    config.load()
    logging.getLogger("crossdock.adapter.http.connection.uvicorn").setLevel(logging.ERROR)
    return config
