"""The MessageBox that a benchmark works with: always a fresh one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer


@contextmanager
def fresh_messagebox(database: str) -> Iterator[tuple[Agent, Path]]:
    """In an embedded PostgreSQL of its own, or in the empty database that was given; with a folder for the while."""
    with TemporaryDirectory(prefix="crossdock-bench-") as home:
        server = None if database else EmbeddedServer(Path(home))
        try:
            with Agent(server.acquire() if server else database, connections=12) as agent:
                agent.box.create()
                yield agent, Path(home)
        finally:
            if server:
                server.release()
