"""Brings the schema of a database up to date by numbered migrations, forward only, under a lock."""

from __future__ import annotations

from importlib.resources import files

import psycopg
from psycopg import sql

from crossdock.errors import UnavailableError

SCHEMA = "crossdock"
OLDEST_SERVER, NEWEST_SERVER = 15, 18
_LOCK = 0x0C05_5D0C


def check_server(connection: psycopg.Connection) -> str:
    """The server's version; refuses one that Crossdock was not tested with."""
    version = connection.info.server_version
    if not OLDEST_SERVER <= version // 10000 <= NEWEST_SERVER:
        raise UnavailableError(
            f"The database is PostgreSQL {version // 10000}, and Crossdock needs {OLDEST_SERVER} to {NEWEST_SERVER}."
        )
    return f"{version // 10000}.{version % 10000}"


def migrate(connection: psycopg.Connection, *, case_sensitive: bool = False) -> list[str]:
    """Apply what is missing, all in one transaction; gives the names of the migrations applied."""
    check_server(connection)
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            return _apply_missing(connection, case_sensitive=case_sensitive)
    except psycopg.errors.InsufficientPrivilege as error:
        raise UnavailableError(
            f"The database user may not create the schema {SCHEMA!r}: {error.diag.message_primary}. "
            "Grant it CREATE on the database, or let an administrator run Crossdock once."
        ) from error


def _apply_missing(connection: psycopg.Connection, *, case_sensitive: bool) -> list[str]:
    if connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA]).fetchone() is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
    connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(SCHEMA)))
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migration (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    applied = {name for (name,) in connection.execute("SELECT name FROM migration")}
    missing = [name for name in migrations() if name not in applied]
    for name in missing:
        connection.execute(sql.SQL(migrations()[name]))
        connection.execute("INSERT INTO migration (name) VALUES (%s)", [name])
    connection.execute(
        "INSERT INTO box (number, case_sensitive)"
        " SELECT floor(random() * 2 ^ 38)::bigint, %s WHERE NOT EXISTS (SELECT FROM box)",
        [case_sensitive],
    )
    return missing


def migrations() -> dict[str, str]:
    """The migrations by name, in their order."""
    folder = files("crossdock.messagebox") / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {name.removesuffix(".sql"): (folder / name).read_text(encoding="utf-8") for name in found}
