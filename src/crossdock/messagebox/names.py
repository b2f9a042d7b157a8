"""The names of what is deployed, read as quickly as they are wanted where somebody is typing one."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from crossdock.messagebox.statement import statement

_PATIENCE_SECONDS = 2


def read_names(database: str) -> Mapping[str, list[str]]:
    """By kind: application, host, location, group, port, orchestration. Raises psycopg.Error."""
    with psycopg.connect(
        database, autocommit=True, connect_timeout=_PATIENCE_SECONDS, options="-c search_path=crossdock"
    ) as connection:
        return dict(connection.execute(statement("list_names")).fetchall())
