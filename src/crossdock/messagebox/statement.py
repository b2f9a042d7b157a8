"""The statements of the MessageBox: one verb per file in `sql/`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from uuid import UUID

from psycopg import sql

_PER_HOST = ("queue", "claimed", "scheduled", "suspended")


def array_text(values: Iterable[int | UUID | str]) -> str:
    """An array of numbers, ids or plain names as PostgreSQL writes it.

    To look for the type of every value, as psycopg does with a list, takes longer than many a statement.
    """
    return "{" + ",".join(map(str, values)) + "}"


@cache
def statement(verb: str) -> str:
    """The text of `sql/<verb>.sql`."""
    return (files("crossdock.messagebox") / "sql" / f"{verb}.sql").read_text(encoding="utf-8")


@cache
def host_statement(verb: str, host_id: int) -> str:
    """The statement with {queue}, {claimed}, {scheduled} and {suspended} named as the tables of one host.

    They are named directly because the role of a host may use these and no others.
    """
    tables = {table: sql.Identifier(f"{table}_{host_id}") for table in _PER_HOST}
    return sql.SQL(statement(verb)).format(**tables).as_string()


@cache
def log_statement(verb: str, kind: str, log: int) -> str:
    """The statement with the reference tables of a kind, `message` or `part`: {log} is the closed one."""
    names = {
        "log": f"{kind}_ref_log_{log}",
        "other": f"{kind}_ref_log_{3 - log}",
        "total": f"{kind}_ref_total",
        "id": f"{kind}_id",
        "kind": kind,
    }
    return sql.SQL(statement(verb)).format(**{name: sql.Identifier(value) for name, value in names.items()}).as_string()
