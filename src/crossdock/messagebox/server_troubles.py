"""What is wrong with the way to PostgreSQL, or with its settings, while everything still seems to work."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from crossdock.messagebox.statement import statement

_GROWS = "nothing gives back the space of what was delivered, and everything becomes slower and slower"
_OFF = {
    "autovacuum": _GROWS,
    "track_counts": f"autovacuum does not know where to begin; {_GROWS}",
    "fsync": "a crash of its machine loses messages or damages the database",
    "full_page_writes": "a crash of its machine may damage the database",
    "synchronous_commit": "a crash of the server loses messages whose sources are gone",
}
_POOLED = (
    "A pooler in transaction mode stands before PostgreSQL: locks and notifications get lost, and messages may be"
    " delivered twice or late. Connect directly, or set the pooler to session mode."
)


def server_troubles(connect: Callable[[], psycopg.Connection]) -> list[str]:
    """One sentence for each. `connect` gives connections with nothing set but what the server, database or user set."""
    with connect() as first, connect() as second:
        troubles = [_POOLED] if _is_pooled(first, second) else []
        troubles += [
            f"PostgreSQL runs with {name} = off: {_OFF[name]}. Set it to on."
            for (name,) in first.execute(statement("list_settings_off"), {"name": list(_OFF)})
        ]
    return troubles


def _is_pooled(first: psycopg.Connection, second: psycopg.Connection) -> bool:
    """Two sessions have two backends and keep them. By a pooler the second is given what the first has left."""
    before = _backend(first)
    with second.transaction():
        other = _backend(second)
        return other == before or _backend(first) != before


def _backend(connection: psycopg.Connection) -> int:
    row = connection.execute(statement("read_backend")).fetchone()
    assert row is not None
    return int(row[0])
