"""Brings the schema of a database up to date by numbered migrations, forward only, under a lock."""

from __future__ import annotations

from importlib.resources import files

import psycopg
from psycopg import sql

from crossdock.errors import UnavailableError
from crossdock.message.message import random_bits
from crossdock.messagebox.host_functions import digest, renew_functions

SCHEMA = "crossdock"
OLDEST_SERVER, NEWEST_SERVER = 15, 18
MIGRATION_LOCK = 0x0C05_5D0C


def check_server(connection: psycopg.Connection) -> str:
    """The server's version; refuses one that Crossdock was not tested with."""
    version = connection.info.server_version
    if not OLDEST_SERVER <= version // 10000 <= NEWEST_SERVER:
        raise UnavailableError(
            f"The database is PostgreSQL {version // 10000}, and Crossdock needs {OLDEST_SERVER} to {NEWEST_SERVER}."
        )
    return f"{version // 10000}.{version % 10000}"


def check_version(connection: psycopg.Connection) -> None:
    """Refuse a MessageBox of a newer or older Crossdock; one that is not there yet is not refused."""
    table = sql.Identifier(SCHEMA, "migration")
    row = connection.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.migration"]).fetchone()
    if row is None or row[0] is None:
        return
    applied = {name for (name,) in connection.execute(sql.SQL("SELECT name FROM {}").format(table))}
    _refuse_newer(applied)
    if missing := [name for name in migrations() if name not in applied]:
        raise UnavailableError(
            f"The MessageBox is of an older Crossdock: the migration {missing[0]!r} is missing. "
            "Stop its other processes, and bring it up to date with: crossdock run APP"
        )
    row = connection.execute(sql.SQL("SELECT functions FROM {}").format(sql.Identifier(SCHEMA, "box"))).fetchone()
    if row is not None and row[0] != digest():
        raise UnavailableError(
            "The functions in the MessageBox are those of another Crossdock. "
            "Stop its other processes, and bring it up to date with: crossdock run APP"
        )


def _refuse_newer(applied: set[str]) -> None:
    if unknown := sorted(applied - migrations().keys()):
        raise UnavailableError(
            f"The MessageBox is of a newer Crossdock than this one, which does not know the migration {unknown[-1]!r}. "
            "Update this Crossdock."
        )


def migrate(connection: psycopg.Connection, *, case_sensitive: bool = False) -> list[str]:
    """Apply what is missing, all in one transaction; gives the names of the migrations applied."""
    check_server(connection)
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
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
    _refuse_newer(applied)
    missing = [name for name in migrations() if name not in applied]
    for name in missing:
        connection.execute(sql.SQL(migrations()[name]))
        connection.execute("INSERT INTO migration (name) VALUES (%s)", [name])
    connection.execute(
        "WITH created AS (INSERT INTO box (number, case_sensitive) SELECT %s, %s WHERE NOT EXISTS (SELECT FROM box)"
        " RETURNING epoch, epoch_token)"
        " INSERT INTO epoch_history (epoch, token) SELECT epoch, epoch_token FROM created",
        [random_bits(), case_sensitive],
    )
    if renew_functions(connection) or missing:
        connection.execute("SELECT create_host_role(name) FROM host WHERE to_regrole(host_role(id)) IS NOT NULL")
        connection.execute("SELECT renew_access_roles()")
    return missing


def migrations() -> dict[str, str]:
    """The migrations by name, in their order."""
    folder = files("crossdock.messagebox") / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {name.removesuffix(".sql"): (folder / name).read_text(encoding="utf-8") for name in found}
