"""A console that a test asks over a real socket: the application in a thread of the test, and clients of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Thread

import httpx
import uvicorn
from fastapi import FastAPI

from crossdock.administration.service import Administration
from crossdock.api.app import create_app
from crossdock.api.options import AccessOptions
from crossdock.api.serve import configured
from crossdock.messagebox.agent import Agent
from crossdock.settings import Settings
from walk import until

SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


@dataclass(slots=True)
class Served:
    """A console at work. `client` makes clients of it, which the console does not follow up."""

    url: str
    app: FastAPI
    database: str

    def client(self, token: str | None = None, **options: object) -> httpx.Client:
        """A client with a bearer token, or without anything."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, **options)  # type: ignore[arg-type]

    def token(self, name: str, role: str, *grants: str, application: str | None = None) -> str:
        """A new API token."""
        with Agent(self.database) as agent:
            return Administration(agent, text_limit=256).tokens.create(name, role, grants, application).token

    def as_role(self, role: str, *grants: str, application: str | None = None) -> httpx.Client:
        """A client with a token of this role."""
        name = "-".join([role, *grants, *([] if application is None else [application])])
        return self.client(self.token(name, role, *grants, application=application))


@contextmanager
def served(
    database: str, access: AccessOptions | None = None, install: Callable[[FastAPI], None] | None = None
) -> Iterator[Served]:
    """Serve a MessageBox at a free port until the end of the block."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        app = create_app(Settings(database=database), replace(access or AccessOptions(), port=port))
        if install is not None:
            install(app)
        # As the command runs it, but in a thread: signals are the main thread's.
        server = uvicorn.Server(configured(app))
        thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive(), 60)
            assert server.started
            yield Served(f"http://127.0.0.1:{port}", app, database)
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
