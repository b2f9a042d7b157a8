"""The database a process works with: the embedded PostgreSQL of its home, or the server it was given."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager

from crossdock.errors import CrossdockError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.database import Actor
from crossdock.messagebox.embedded import START_SECONDS, EmbeddedServer
from crossdock.messagebox.rows import storable
from crossdock.settings import Settings

_REVIVE_SECONDS = 5.0
_ANSWER_SECONDS = 20.0  # somebody waits for an answer, or for the reason why there is none


class Store:
    """Open from `open()` to `close()`. `agent` is the door to its MessageBox, `actor` for whom the process acts."""

    def __init__(self, settings: Settings) -> None:
        self._server = None if settings.database else EmbeddedServer(settings.home)
        self._given = settings.database
        self.actor = Actor(storable(settings.person or _operating_system_user()), storable(settings.reason))

    def open(self, *, any_version: bool = False, patience: float = START_SECONDS) -> Agent:
        """Refuses a MessageBox of an older or newer Crossdock, except to who takes `any_version` and migrates it.

        `patience`: how long the embedded server may take to start, in seconds.
        """
        database = self._server.acquire(patience) if self._server else self._given
        self.agent = Agent(database, actor=self.actor)
        try:
            if not self._server:
                # It is not ours, and may be away, refuse us, or be of another version: say so before anything starts.
                self.agent.box.server_version()
            if not any_version:
                self.agent.box.check_version()
        except CrossdockError:
            self.close()
            raise
        return self.agent

    def revive(self) -> None:
        """Start the embedded server again if it is gone; a given server is somebody else's to start."""
        if self._server:
            self._server.acquire(_REVIVE_SECONDS)

    def close(self) -> None:
        self.agent.close()
        if self._server:
            self._server.release()


@contextmanager
def opened(settings: Settings, *, any_version: bool = False) -> Iterator[Agent]:
    """The agent for one command."""
    store = Store(settings)
    agent = store.open(any_version=any_version, patience=_ANSWER_SECONDS)
    try:
        yield agent
    finally:
        store.close()


def existing(settings: Settings) -> Settings:
    """The same, if there is a MessageBox: UsageError if there is none in the home."""
    if not settings.database and not (settings.home / "postgres" / "data").is_dir():
        raise UsageError(
            f"There is no MessageBox in {settings.home}. Create it with `crossdock run APP`, or give --home."
        )
    return settings


def _operating_system_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # in a container the user may have a number only
        return f"user {os.getuid()}"
