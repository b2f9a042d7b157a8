"""The statements of the MessageBox: by noun in `sql/`, each under a line `-- name: VERB`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from uuid import UUID

from psycopg import sql

_PER_HOST = ("queue", "claimed", "scheduled", "suspended", "instance", "history", "held", "timer")
# What several statements have in common, written in them as its name in braces.
_PARTS = ("take_claimed", "track_terminated")


def array_text(values: Iterable[int | UUID | str]) -> str:
    """An array of numbers, ids or plain names as PostgreSQL writes it.

    To look for the type of every value, as psycopg does with a list, takes longer than many a statement.
    """
    return "{" + ",".join(map(str, values)) + "}"


def quick(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a statement with lists of numbers and ids as text, where nothing of them is null."""
    return {name: _quick(value) if type(value) is list else value for name, value in parameters.items()}


def _quick(values: list[Any]) -> list[Any] | str:
    kinds = set(map(type, values))
    return array_text(values) if kinds <= {int} or kinds <= {UUID} else values


def statement(verb: str) -> str:
    """The text of the statement of this name."""
    return statements()[verb]


@cache
def statements() -> dict[str, str]:
    """All of them, by name."""
    found: dict[str, str] = {}
    for file in (files("crossdock.messagebox") / "sql").iterdir():
        _, *named = file.read_text(encoding="utf-8").split("\n-- name: ")
        for each in named:
            verb, text = each.split("\n", 1)
            assert verb not in found, f"two statements are named {verb}"
            found[verb] = text.strip() + "\n"
    return found


@cache
def host_text(verb: str, host_id: int | None) -> str:
    """The statement with {queue}, {claimed} and the others named as the tables of one host, or of all.

    They are named directly because the role of a host may read these and no others.
    """
    tables = {table: sql.Identifier(table if host_id is None else f"{table}_{host_id}") for table in _PER_HOST}
    text = statement(verb)
    for part in _PARTS:
        text = text.replace(f"{{{part}}}", statement(part).strip())
    return sql.SQL(text).format(**tables).as_string()


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
