"""Databases of a server: the name of another one, a copy of a template, and the end of it."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from walk import until

_SESSIONS = "FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"


def named(server: str, name: str) -> str:
    """The connection string of another database on the same server."""
    return make_conninfo(**{**conninfo_to_dict(server), "dbname": name})  # type: ignore[arg-type]


def create(server: str, name: str, template: str = "template1") -> str:
    """A copy of the template, in place of a database that has this name; gives its connection string."""
    with psycopg.connect(server, autocommit=True) as connection:
        _drop(connection, name)
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    return named(server, name)


def drop(server: str, name: str) -> None:
    """End the sessions of a database, and drop it if it is there."""
    with psycopg.connect(server, autocommit=True) as connection:
        _drop(connection, name)


def _drop(connection: psycopg.Connection, name: str) -> None:
    connection.execute(f"SELECT pg_terminate_backend(pid) {_SESSIONS}", [name])
    # DROP DATABASE looks only every 100 ms whether the last session has ended.
    until(lambda: not connection.execute(f"SELECT {_SESSIONS}", [name]).rowcount, every_seconds=0.002)
    connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
