"""Rows as sources: what they look like as JSON, which keys work, what tells one from another."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event

from crossdock.errors import TransientError
from sql_orders import DONE, QUERY, on_postgresql, receiving


def test_values_are_exact(empty_database: str) -> None:
    values = {
        "id": ("1::bigint", "1"),
        "price": ("10.10::numeric(12, 4)", "10.1000"),
        "large": ("123456789012345678901234567890.5::numeric", "123456789012345678901234567890.5"),
        "huge": ("1e400::numeric", "1" + "0" * 400),
        "no_number": ("'NaN'::numeric", '"NaN"'),
        "ratio": ("'Infinity'::float8", '"inf"'),
        "day": ("date '2026-02-28'", '"2026-02-28"'),
        "moment": ("timestamptz '2026-02-28 12:30:00.5+00' AT TIME ZONE 'UTC'", '"2026-02-28T12:30:00.500000"'),
        "picture": ("'\\x00ff'::bytea", '"AP8="'),
        "nothing": ("NULL::text", "null"),
        "yes": ("true", "true"),
        "details": ("""'{"a": 1.10}'::json""", '{"a": 1.10}'),
        "rows": ("ARRAY[1.50, 2]::numeric[]", "[1.50,2]"),
        "word": ("E'zw\\u00f6lf \"\\n'", '"zwölf \\"\\n"'),
    }
    query = "SELECT " + ", ".join(f"{sql} AS {name}" for name, (sql, _) in values.items())
    adapter = on_postgresql(
        empty_database, query=query.replace(":0", r"\:0").replace(":3", r"\:3"), key="id", done="SELECT :key"
    )

    [source] = adapter.list().ready

    expected = "{" + ",".join(f'"{name}":{json}' for name, (_, json) in values.items()) + "}"
    assert adapter.read(source.identity) == expected.encode()


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("bigint", "-7"),
        ("text", "a:b'; DROP TABLE keyed; --"),
        ("char(5)", "ab"),
        ("numeric(9, 3)", "1.500"),
        ("uuid", "a7ee21ea-2c1d-4a58-9d0e-9a3e0f3f5c11"),
        ("date", "2026-02-28"),
        ("timestamptz", "2026-02-28 12:30:00.123456+02"),
        ("bytea", r"\x00ff"),
        ("mood", "good"),
    ],
)
def test_key_of_every_kind_finds_its_row_again(empty_database: str, type_: str, value: str) -> None:
    with psycopg.connect(empty_database) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('good')")
        connection.execute(f"CREATE TABLE keyed (id {type_})".encode())
        connection.execute("INSERT INTO keyed VALUES (%s)", [value])
    adapter = on_postgresql(
        empty_database, query="SELECT * FROM keyed", key="id", done="DELETE FROM keyed WHERE id = :key"
    )

    [source] = adapter.list().ready
    assert adapter.read(source.identity) is not None
    adapter.acknowledge(source.identity)

    assert adapter.list().ready == ()


def test_rows_come_in_the_order_of_their_keys_and_no_more_than_the_limit(
    folder: Path, orders: sqlite3.Connection
) -> None:
    adapter = receiving(folder, limit=2)

    first = [source.identity for source in adapter.list().ready]
    adapter.acknowledge(first[0])
    then = [source.identity for source in adapter.list().ready]

    assert [adapter.name(identity)[-4:] for identity in first] == ["id=1", "id=2"]
    assert [adapter.name(identity)[-4:] for identity in then] == ["id=2", "id=3"]
    assert orders.execute("SELECT id FROM orders WHERE sent = 1").fetchall() == [(1,)]


@pytest.mark.usefixtures("orders")
def test_name_says_where_the_row_is(folder: Path) -> None:
    adapter = receiving(folder)

    assert adapter.name(adapter.list().ready[0].identity) == f"sqlite:///{folder}/shop.db/id=1"


@pytest.mark.usefixtures("orders")
def test_many_rows_are_read_with_one_query(folder: Path) -> None:
    adapter = receiving(folder)
    identities = [source.identity for source in adapter.list().ready]
    adapter.acknowledge(identities[1])
    statements: list[str] = []
    event.listen(adapter._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))

    contents = adapter.read_batch([*identities, b"0:0:i9"])

    assert contents == [b'{"id":1,"item":"one"}', None, b'{"id":3,"item":"three"}', None]
    assert len(statements) == 1


def test_same_key_in_another_table_is_another_source(folder: Path, orders: sqlite3.Connection) -> None:
    orders.execute("CREATE TABLE returns AS SELECT * FROM orders")
    there = receiving(folder, query=QUERY.replace("orders", "returns"), done=DONE.replace("orders", "returns"))

    listed = {source.identity for source in receiving(folder).list().ready}

    assert listed.isdisjoint(source.identity for source in there.list().ready)
    assert there.read(min(listed)) is None
    there.acknowledge(min(listed))
    assert len(there.list().ready) == 3


def test_with_a_version_only_the_version_tells_whether_a_row_changed(folder: Path, orders: sqlite3.Connection) -> None:
    adapter = receiving(folder, query="SELECT id, item, sent AS revision FROM orders", version="revision")
    before = adapter.list().ready

    orders.execute("UPDATE orders SET item = 'changed' WHERE id = 1")
    orders.execute("UPDATE orders SET sent = 8 WHERE id = 2")

    same = [old.identity == new.identity for old, new in zip(before, adapter.list().ready, strict=True)]
    assert same == [True, False, True]


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"query": "SELECT id FROM missing"}, "its query fails: no such table: missing"),
        ({"query": "SELEC id,"}, "its query fails: near .*: syntax error"),
        ({"query": "SELECT item FROM orders", "key": "item", "version": "when"}, "no column 'when', only item"),
    ],
)
def test_query_that_does_not_work_is_told_in_one_sentence(folder: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TransientError, match=problem) as raised:
        receiving(folder, **options).list()

    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("sqlite:///")


@pytest.mark.usefixtures("orders")
def test_query_may_end_in_a_comment_or_a_semicolon(folder: Path) -> None:
    assert len(receiving(folder, query=f"{QUERY};\n").list().ready) == 3
    assert len(receiving(folder, query=f"{QUERY} -- not yet sent").list().ready) == 3
