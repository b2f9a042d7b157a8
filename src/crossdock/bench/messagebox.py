"""The MessageBox that a benchmark works with: always a fresh one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer


@contextmanager
def fresh_messagebox(database: str, home: Path) -> Iterator[Agent]:
    """In an embedded PostgreSQL of its own below `home`, or in the empty database that was given."""
    server = None if database else EmbeddedServer(home)
    try:
        with Agent(server.acquire() if server else database, connections=12) as agent:
            agent.box.create()
            yield agent
    finally:
        if server:
            server.release()
