"""A console process: listens, says where, and answers until it is told to stop.

Connections are those of http locations, with the same deadlines for what comes before it is known who asks, and the
same refusal of requests whose end is ambiguous.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.server import ServerState

from crossdock.adapter.http.connection import Connection, Limits, files_for
from crossdock.administration.open_box import OpenBox
from crossdock.api.app import create_app
from crossdock.api.connections import Connections
from crossdock.api.gate import Gate
from crossdock.api.options import AccessOptions
from crossdock.errors import UnavailableError
from crossdock.settings import Settings

logger = logging.getLogger(__name__)

LIMITS = Limits(connections=1_000)
_GRACE_SECONDS = 2
_HEAD_BYTES = 32 * 1024
_LOOK_SECONDS = 0.2


def serve(
    settings: Settings,
    access: AccessOptions,
    *,
    install: Callable[[FastAPI], None],
    announce: Callable[[str], None],
    stop: Event,
) -> None:
    """Serve a MessageBox until `stop` is set. `install` adds pages; `announce` is given the address to open.

    On loopback the address has a token that signs in once. Raises UsageError where there is no MessageBox, or people
    could come in without signing in, and UnavailableError if the address cannot be listened at.
    """
    access.check()
    with _listening(access) as listening:
        port = int(listening.getsockname()[1])
        token = secrets.token_urlsafe(32) if access.is_loopback else None
        access = replace(access, port=port, one_time_token=token)
        box = OpenBox(settings)
        app = create_app(settings, access, box)
        install(app)
        box.open()  # here, where somebody hears why it cannot be
        _run(app, listening, stop, lambda: announce(_address(access)))


class _Connection(Connection):
    """As uvicorn's own server makes one, as long as there is room for it."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        app: Any = config.app
        self._others: Connections = app.state.connections
        super().__init__(config, server_state, LIMITS, lambda: self._others.let_go(self))
        self.app_state = app_state

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def is_answered(self) -> bool:
        return self._is_answering()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._others.take(self):
            self.hang_up()


def configured(app: FastAPI) -> uvicorn.Config:
    """How a console is served."""
    gate: Gate = app.state.gate
    most = min(LIMITS.connections, files_for(LIMITS.connections))
    app.state.connections = Connections(most, gate.options.proxies)
    return uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whoever asks is who connects; a listed proxy names people by a header of its own
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )


def _run(app: FastAPI, listening: socket.socket, stop: Event, started: Callable[[], None]) -> None:
    """In a thread of its own: the main thread has the signals."""
    server = uvicorn.Server(configured(app))
    thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), name="console", daemon=True)
    thread.start()
    told = False
    while thread.is_alive() and not stop.wait(_LOOK_SECONDS):
        if server.started and not told:
            told = True
            started()
    server.should_exit = True
    thread.join()


def _listening(access: AccessOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((access.host, access.port))
    except OSError as error:
        made.close()
        raise UnavailableError(
            f"The console cannot listen at {access.host}:{access.port}: {error.strerror or error}. "
            "Give another --listen HOST:PORT."
        ) from error
    if not access.is_loopback:
        logger.warning("The console is open to the network without encryption: let a proxy with TLS stand before it")
    return made


def _address(access: AccessOptions) -> str:
    host = f"[{access.host}]" if ":" in access.host else access.host
    token = "" if access.one_time_token is None else f"?token={access.one_time_token}"
    return f"http://{host}:{access.port}/{token}"
