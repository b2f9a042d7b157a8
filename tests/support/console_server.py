"""The console as a server in a thread of the test, on a real socket, and a browser that fails a test by any error."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

import uvicorn

from crossdock.api.app import create_app
from crossdock.api.options import AccessOptions
from crossdock.api.serve import configured
from crossdock.console.pages import install
from crossdock.settings import Settings
from office import free_port
from walk import until


@dataclass(frozen=True, slots=True)
class ServedConsole:
    """`address` is that of the first page; `entrance` the one that signs in, once."""

    address: str
    entrance: str


@contextmanager
def served(settings: Settings) -> Iterator[ServedConsole]:
    """The API and the pages for this MessageBox."""
    port, token = free_port(), secrets.token_urlsafe(16)
    app = create_app(settings, AccessOptions(port=port, one_time_token=token))
    install(app)
    config = configured(app)
    config.port = port
    server = uvicorn.Server(config)
    thread = Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), 60)
        assert server.started, "the console did not start"
        yield ServedConsole(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/?token={token}")
    finally:
        server.should_exit = True
        thread.join(30)
