"""The database a process works with: the embedded PostgreSQL of its home, or the server it was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crossdock.errors import CrossdockError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer
from crossdock.settings import Settings


class Store:
    """Open from `open()` to `close()`. `agent` is the door to its MessageBox."""

    def __init__(self, settings: Settings) -> None:
        self._server = None if settings.database else EmbeddedServer(settings.home)
        self._given = settings.database

    def open(self) -> Agent:
        database = self._server.acquire() if self._server else self._given
        self.agent = Agent(database)
        if not self._server:
            self._check()
        return self.agent

    def _check(self) -> None:
        """A server that is not ours may be away, refuse us, or be of another version: say so before anything starts."""
        try:
            self.agent.server_version()
        except CrossdockError:
            self.agent.close()
            raise

    def revive(self) -> None:
        """Start the embedded server again if it is gone; a given server is somebody else's to start."""
        if self._server:
            self._server.acquire()

    def close(self) -> None:
        self.agent.close()
        if self._server:
            self._server.release()


@contextmanager
def opened(settings: Settings) -> Iterator[Agent]:
    """The agent for one command."""
    store = Store(settings)
    agent = store.open()
    try:
        yield agent
    finally:
        store.close()
