"""What PostgreSQL means to do for a statement, and what it did: scans in plans, and blocks that were read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer

LARGE = re.compile(
    r"(message|part|fragment|queue_\d+|claimed_\d+|suspended_\d+|scheduled_\d+|instance_subscription|intake|publication"
    r"|instance_\d+|history_\d+|held_\d+|timer_\d+|convoy"
    r"|message_ref_total|part_ref_total)$"
)


@dataclass(frozen=True, slots=True)
class Node:
    """A scan in a plan."""

    kind: str
    table: str
    index: str | None
    condition: str | None
    partial: bool
    limited: bool

    @property
    def reads_all(self) -> bool:
        """Whether it goes through a whole large table, itself or by an index; until a limit is reached is fine."""
        if not LARGE.match(self.table) or self.partial:
            return False
        if self.index is None:
            return self.kind == "Seq Scan"
        # All rows of a partition are of one host.
        unbounded = self.condition is None or re.fullmatch(r"\(host_id = \S+\)", self.condition) is not None
        return unbounded and not self.limited

    def __str__(self) -> str:
        return f"{self.kind} on {self.table}" + (f" using {self.index} where {self.condition}" if self.index else "")


def explain(
    connection: psycopg.Connection,
    text: str,
    parameters: Mapping[str, Any],
    mode: str,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """The plan of a statement as psycopg would have it prepared."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", text)
    values = [parameters[name] for name in names]
    transformer = Transformer(connection)
    transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
    declared = ", ".join(type_name(connection, oid) for oid in transformer.types or ())
    given = ", ".join(transformer.as_literal(value).decode() for value in values)
    with connection.transaction(force_rollback=True):
        for name, value in {"plan_cache_mode": mode, **(settings or {})}.items():
            connection.execute("SELECT set_config(%s, %s, true)", [name, value])
        connection.execute(f"PREPARE hot {f'({declared})' if names else ''} AS {numbered}")
        try:
            row = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE hot {f'({given})' if names else ''}").fetchone()
        finally:
            connection.execute("DEALLOCATE hot")
    assert row is not None
    return row[0][0]["Plan"]


def blocks_read(
    connection: psycopg.Connection,
    text: str,
    parameters: Mapping[str, Any],
    settings: Mapping[str, str] | None = None,
) -> int:
    """How many blocks the scans of a statement look at; what it does is undone."""
    with connection.transaction(force_rollback=True):
        for name, value in (settings or {}).items():
            connection.execute("SELECT set_config(%s, %s, true)", [name, value])
        connection.execute("SET LOCAL statement_timeout = '60s'")
        row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", parameters).fetchone()
    assert row is not None
    return sum_of_leaves(row[0][0]["Plan"])


def sum_of_leaves(plan: Mapping[str, Any]) -> int:
    below = plan.get("Plans", ())
    own = int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
    return sum(map(sum_of_leaves, below)) if below else own


def type_name(connection: psycopg.Connection, oid: int) -> str:
    row = connection.execute("SELECT coalesce(nullif(%s::oid, 0)::regtype::text, 'unknown')", [oid]).fetchone()
    assert row is not None
    return str(row[0])


def nodes(connection: psycopg.Connection, plan: Mapping[str, Any], *, limited: bool = False) -> Iterator[Node]:
    """The scans of a plan, from the top."""
    index = plan.get("Index Name")
    if "Scan" in plan["Node Type"] and (index or "Relation Name" in plan):
        table, partial = index_of(connection, index) if index else (plan["Relation Name"], False)
        yield Node(plan["Node Type"], table, index, plan.get("Index Cond"), partial, limited)
    for below in plan.get("Plans", ()):
        yield from nodes(connection, below, limited=limited or plan["Node Type"] == "Limit")


def index_of(connection: psycopg.Connection, index: str) -> tuple[str, bool]:
    """(table, whether it holds only some of its rows)."""
    row = connection.execute(
        "SELECT indrelid::regclass::text, indpred IS NOT NULL FROM pg_index WHERE indexrelid = %s::regclass", [index]
    ).fetchone()
    assert row is not None
    return row[0], row[1]
