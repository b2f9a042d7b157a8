"""A MessageBox for tests: made in a moment from a template, with a clock that can be shifted, and gone afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Self
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer

# Nobody reads it after the tests.
_UNSAFE_AND_QUICK: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
_CLOCK = """
CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN now() + {}
"""


class TemporaryServer:
    """An embedded PostgreSQL under `home`, on which `create` makes a MessageBox each time. Use it in a `with`."""

    def __init__(self, home: Path) -> None:
        self._server = EmbeddedServer(home, _UNSAFE_AND_QUICK)
        self._template: str | None = None

    def __enter__(self) -> Self:
        self._address = self._server.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.release()

    def create(self) -> str:
        """The connection string of a new, empty MessageBox. The first takes a few seconds, the others a moment."""
        if self._template is None:
            self._template = self._database("template1")
            with Agent(self._template) as agent:
                agent.box.create()
        return self._database(str(conninfo_to_dict(self._template)["dbname"]))

    def drop(self, database: str) -> None:
        name = sql.Identifier(str(conninfo_to_dict(database)["dbname"]))
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def _database(self, template: str) -> str:
        name = f"crossdock_{uuid4().hex}"
        making = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute(making.format(sql.Identifier(name), sql.Identifier(template)))
        return make_conninfo(**{**conninfo_to_dict(self._address), "dbname": name})  # type: ignore[arg-type]


def shift_clock(database: str, by: timedelta) -> None:
    """From now on the clock of this MessageBox is so much ahead of the server's. Only for tests."""
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(sql.SQL(_CLOCK).format(sql.Literal(by)))
