"""The functions by which a host works on its queues, made of statements that say what they take and give.

A statement of `sql/` that begins with `-- takes:` and `-- gives:` becomes a function of each host, `host_3_dequeue` for
host 3; one that touches no table of a host becomes one function for all. It runs with the rights of the owner, so that
whoever may call it can do what the statement does, and nothing else. They are made when a MessageBox is migrated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from typing import NamedTuple

import psycopg

from crossdock.messagebox.statement import host_text, statement, statements

_HEADER = re.compile(r"-- takes: (?P<takes>.*?)\n-- gives: (?P<gives>.*?)\n(?=--(?! {4})|(?!--))", re.DOTALL)
_PARAMETER = re.compile(r"%\((\w+)\)[sb]")
_FUNCTION = """\
CREATE FUNCTION {name}({types}) RETURNS {gives} LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, crossdock, pg_temp{planned} AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
{body}
END $function$;
REVOKE ALL ON FUNCTION {name} FROM PUBLIC;
COMMENT ON FUNCTION {name} IS 'made of a statement';
"""
# What these do does not depend on how many they are given, and to plan them for each call takes longer than a few take.
_PLANNED_ONCE = frozenset({"complete"})


class Declared(NamedTuple):
    """What a function takes, as (name, type), and the columns that it gives."""

    takes: tuple[tuple[str, str], ...]
    gives: str


@cache
def declared() -> dict[str, Declared]:
    """The statements that are functions of each host, by name."""
    return {verb: _declared(match) for verb, text in statements().items() if (match := _HEADER.match(text))}


def _declared(match: re.Match[str]) -> Declared:
    takes, gives = (re.sub(r"\n-- +", " ", match[each]) for each in ("takes", "gives"))
    pairs = [each.split(" ", 1) for each in takes.split(", ")] if takes != "nothing" else []
    return Declared(tuple((name, type_) for name, type_ in pairs), gives)


@cache
def host_statement(verb: str, host_id: int | None) -> str:
    """The statement for the tables of one host, by its function if it has one; or for the tables of all hosts."""
    if verb not in declared() or (host_id is None and not _is_shared(verb)):
        return host_text(verb, host_id)
    values = ", ".join(f"%({name})s::{type_}" for name, type_ in declared()[verb].takes)
    return f"SELECT * FROM {_name(verb, host_id)}({values})"  # noqa: S608 - made of our own files


@cache
def digest() -> str:
    """Changes with every change of what the functions are made of."""
    texts = "".join(_function(verb, 0) for verb in sorted(declared()))
    return sha256(texts.encode()).hexdigest()


def create_functions(connection: psycopg.Connection) -> None:
    """Make the functions of hosts that are new."""
    for (host_id,) in connection.execute(statement("list_hosts_without_functions"), {}).fetchall():
        _create(connection, host_id, [verb for verb in declared() if not _is_shared(verb)])


def renew_functions(connection: psycopg.Connection) -> bool:
    """Make those of all hosts anew, in the caller's transaction, if they were made of other statements."""
    row = connection.execute(statement("read_functions")).fetchone()
    if row is None or row[0] == digest():
        return False
    for (name,) in connection.execute(statement("list_functions")).fetchall():
        connection.execute(f"DROP FUNCTION {name}".encode())
    _create(connection, None, filter(_is_shared, declared()))
    create_functions(connection)
    connection.execute(statement("keep_functions"), {"digest": digest()})
    return True


def _create(connection: psycopg.Connection, host_id: int | None, verbs: Iterable[str]) -> None:
    connection.execute("".join(_function(verb, host_id) for verb in verbs).encode())
    connection.execute(statement("hand_over_functions"))


def _is_shared(verb: str) -> bool:
    return host_text(verb, None) == host_text(verb, 0)


def _function(verb: str, host_id: int | None) -> str:
    takes, gives = declared()[verb]
    places = {name: f"${number}" for number, (name, _) in enumerate(takes, 1)} | {"host": str(host_id)}
    return _FUNCTION.format(
        name=_name(verb, host_id),
        types=", ".join(type_ for _, type_ in takes),
        gives=f"TABLE ({gives})",
        planned=" SET plan_cache_mode = force_generic_plan" if verb in _PLANNED_ONCE else "",
        body=_PARAMETER.sub(lambda match: places[match[1]], host_text(verb, host_id)),
    )


def _name(verb: str, host_id: int | None) -> str:
    return verb if _is_shared(verb) else f"host_{host_id}_{verb}"
