"""The schema: migrations give what schema.sql shows, and can be applied again and by two at once."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from crossdock.errors import UnavailableError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import binaries
from crossdock.messagebox.migrate import migrations
from crossdock.messagebox.statement import statement


def dump(database: str) -> str:
    parts = {name: str(value) for name, value in conninfo_to_dict(database).items()}
    run = subprocess.run(
        [binaries() / "pg_dump", "--schema-only", "--schema=crossdock", "--no-owner", "--exclude-table=crossdock.migration",
         "--dbname", " ".join(f"{name}='{value}'" for name, value in parts.items())],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    # Some builds of PostgreSQL stamp every column with a version of their own.
    unstamped = re.sub(r"ALTER TABLE ONLY \S+ ALTER COLUMN \S+ SET \(\s*pg_attver=\d+\s*\);", "", run.stdout)
    return "\n".join(line for line in unstamped.splitlines() if line and not line.startswith(("\\", "--")))


def test_migrations_give_the_schema_that_schema_sql_shows(database: str, empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA crossdock")
        connection.execute("SET search_path TO crossdock")
        connection.execute((files("crossdock.messagebox") / "schema.sql").read_text())
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        for (name,) in connection.execute(statement("list_functions")).fetchall():  # these come from the code
            connection.execute(f"DROP FUNCTION {name}".encode())

    assert dump(empty_database) == dump(database)


def test_creating_twice_and_by_several_at_once_changes_nothing(empty_database: str) -> None:
    with Agent(empty_database) as agent, ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(lambda _: agent.box.create(), range(4)))

        assert sorted(map(len, applied)) == [0, 0, 0, len(migrations())]
        assert agent.box.create() == []
        assert agent.epoch().number == 1


def test_messagebox_that_was_never_created_says_so(empty_database: str) -> None:
    with Agent(empty_database) as agent, pytest.raises(UnavailableError, match="has not been created yet"):
        agent.statistics()
