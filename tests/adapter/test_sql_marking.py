"""Rows are marked as done: each once, and none that changed since it was read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event

from crossdock.errors import TransientError
from sql_orders import DONE, on_postgresql, receiving


def test_many_rows_are_done_together_except_those_that_changed(folder: Path, orders: sqlite3.Connection) -> None:
    adapter = receiving(folder)
    identities = [source.identity for source in adapter.list().ready]
    orders.execute("UPDATE orders SET item = 'new' WHERE id = 2")

    adapter.acknowledge_batch(identities)

    assert orders.execute("SELECT id FROM orders WHERE sent = 1 ORDER BY id").fetchall() == [(1,), (3,)]


def test_statement_that_leaves_the_row_in_the_query_is_undone(folder: Path, orders: sqlite3.Connection) -> None:
    adapter = receiving(folder, done="UPDATE orders SET item = 'done' WHERE id = :key")
    identity = adapter.list().ready[0].identity

    with pytest.raises(TransientError, match=r"id=1: the query still gives the row afterwards"):
        adapter.acknowledge(identity)

    assert orders.execute("SELECT item FROM orders WHERE id = 1").fetchall() == [("one",)]


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("mended", [DONE, "DELETE FROM orders WHERE id = :key"])
def test_row_is_the_same_source_after_the_statement_was_mended(folder: Path, mended: str) -> None:
    wrong = receiving(folder, done="UPDATE orders SET sent = 0 WHERE id = :key")
    listed = wrong.list().ready
    with pytest.raises(TransientError, match="the query still gives the row afterwards"):
        wrong.acknowledge(listed[0].identity)

    adapter = receiving(folder, done=mended)

    assert adapter.list().ready == listed
    adapter.acknowledge(listed[0].identity)
    assert adapter.list().ready == listed[1:]


def test_statement_that_fails_is_worth_another_try(folder: Path, orders: sqlite3.Connection) -> None:
    adapter = receiving(folder)
    identity = adapter.list().ready[0].identity
    orders.execute("CREATE TRIGGER no BEFORE UPDATE ON orders BEGIN SELECT RAISE(ABORT, 'not today'); END")

    with pytest.raises(TransientError, match=r"`done` fails for .*id=1: not today"):
        adapter.acknowledge(identity)

    orders.execute("DROP TRIGGER no")
    adapter.acknowledge(identity)
    assert orders.execute("SELECT id FROM orders WHERE sent = 1").fetchall() == [(1,)]


def test_sqlite_row_cannot_change_between_the_look_and_the_statement(folder: Path, orders: sqlite3.Connection) -> None:
    adapter = receiving(folder)
    refused: list[str] = []

    def interfere(*call: Any) -> None:
        if call[2].startswith("UPDATE"):
            with pytest.raises(sqlite3.OperationalError) as error:
                orders.execute("UPDATE orders SET item = 'new' WHERE id = 1")
            refused.append(str(error.value))

    event.listen(adapter._engine, "before_cursor_execute", interfere)
    adapter.acknowledge(adapter.list().ready[0].identity)

    assert refused == ["database is locked"]


def test_postgresql_row_that_changes_between_the_look_and_the_statement_is_kept(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as orders:
        orders.execute("CREATE TABLE orders AS SELECT 1 AS id, 'one' AS item")
        delete = "DELETE FROM orders WHERE id = :key"
        adapter = on_postgresql(empty_database, query="SELECT * FROM orders", key="id", done=delete)

        def interfere(*call: Any) -> None:
            if call[2].startswith("DELETE"):
                orders.execute("UPDATE orders SET item = 'new'")

        event.listen(adapter._engine, "before_cursor_execute", interfere)
        with pytest.raises(TransientError, match="could not serialize access"):
            adapter.acknowledge(adapter.list().ready[0].identity)

    [source] = adapter.list().ready
    assert adapter.read(source.identity) == b'{"id":1,"item":"new"}'


def test_row_whose_key_the_database_takes_for_that_of_another_is_not_marked_unread(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as shop:
        shop.execute("CREATE TABLE orders (id text COLLATE NOCASE, item text, sent integer DEFAULT 0)")
        shop.execute("INSERT INTO orders (id, item) VALUES ('a1', 'one')")
        adapter = receiving(folder)
        [first] = adapter.list().ready
        shop.execute("INSERT INTO orders (id, item) VALUES ('A1', 'uno')")

        with pytest.raises(TransientError, match="id=A1 would be marked unread"):
            adapter.acknowledge(first.identity)

        assert shop.execute("SELECT id FROM orders WHERE sent = 1").fetchall() == []
        adapter.acknowledge_batch([source.identity for source in adapter.list().ready])
        assert shop.execute("SELECT id FROM orders WHERE sent = 1 ORDER BY item").fetchall() == [("a1",), ("A1",)]
