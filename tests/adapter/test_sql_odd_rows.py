"""Rows with keys or values that are hard to have: they come as well as they can, and keep back no others."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest

from crossdock.adapter.sql import receive
from crossdock.errors import TransientError
from sql_orders import on_postgresql, receiving


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("SELECT 1, 'one' UNION ALL SELECT 1, 'uno'", "two rows with id = 1, and each needs its own key"),
        ("SELECT NULL, 'nothing'", "the key 'id' of a row is NULL"),
        ("SELECT 1.5, 'half'", "the key 'id' of a row is a float, and a key is"),
        ("SELECT CAST(x'61ff' AS text), 'odd'", "the key 'id' of a row is b'a\\xff', which is not UTF-8"),
    ],
)
def test_row_that_cannot_be_received_is_reported_once_and_does_not_keep_back_the_others(
    folder: Path, orders: sqlite3.Connection, caplog: pytest.LogCaptureFixture, bad: str, problem: str
) -> None:
    orders.execute(f"CREATE VIEW mixed AS SELECT 9 AS id, 'good' AS item UNION ALL {bad} UNION ALL SELECT 0, 'fine'")
    adapter = receiving(folder, query="SELECT * FROM mixed")

    found = [adapter.list().ready for _ in range(2)]

    for ready in found:
        contents = adapter.read_batch([source.identity for source in ready])
        assert contents == [b'{"id":0,"item":"fine"}', b'{"id":9,"item":"good"}']
    [report] = [record.getMessage() for record in caplog.records]
    assert problem in report


def test_many_rows_that_cannot_be_received_are_counted(
    folder: Path, orders: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    orders.executemany("INSERT INTO orders (id, item) VALUES (?, 'x')", [(n,) for n in range(10, 40)] * 2)

    assert len(receiving(folder).list().ready) == 3
    assert len(caplog.records) == 11
    assert "20 more rows are left out" in caplog.records[-1].getMessage()


def test_row_whose_key_is_there_twice_by_now_is_neither_read_nor_marked(
    folder: Path, orders: sqlite3.Connection
) -> None:
    adapter = receiving(folder)
    source = adapter.list().ready[0]
    orders.execute("INSERT INTO orders (id, item) VALUES (1, 'uno')")

    assert adapter.read(source.identity) is None
    with pytest.raises(TransientError, match="two rows with id = 1"):
        adapter.acknowledge(source.identity)
    assert orders.execute("SELECT count(*) FROM orders WHERE sent = 1").fetchone() == (0,)


def test_text_that_is_not_utf_8_comes_as_bytes_do(folder: Path, orders: sqlite3.Connection) -> None:
    orders.execute("UPDATE orders SET item = CAST(x'61ff' AS text) WHERE id = 2")
    adapter = receiving(folder)

    contents = adapter.read_batch([source.identity for source in adapter.list().ready])

    assert contents == [b'{"id":1,"item":"one"}', b'{"id":2,"item":"Yf8="}', b'{"id":3,"item":"three"}']


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("date", "infinity"),
        ("date", "0044-03-15 BC"),
        ("date", "12026-01-01"),
        ("timestamp", "-infinity"),
        ("timestamptz", "12026-01-01 00:00:00+00"),
        ("time", "24:00:00"),
        ("timetz", "24:00:00+00"),
        ("interval", "3000000 years"),
    ],
)
def test_time_that_python_does_not_have_is_text_also_as_a_key(empty_database: str, type_: str, value: str) -> None:
    with psycopg.connect(empty_database) as connection:
        connection.execute(f"CREATE TABLE dated (id int, moment {type_})".encode())
        connection.execute("INSERT INTO dated VALUES (1, %s), (2, NULL)", [value])
    statements = {"query": "SELECT * FROM dated", "done": "DELETE FROM dated WHERE id = :key"}
    adapter = on_postgresql(empty_database, key="id", **statements)

    contents = adapter.read_batch([source.identity for source in adapter.list().ready])

    assert contents == [b'{"id":1,"moment":"%s"}' % value.encode(), b'{"id":2,"moment":null}']
    keyed = on_postgresql(
        empty_database, key="moment", query=statements["query"], done="DELETE FROM dated WHERE moment = :key"
    )
    [source] = keyed.list().ready  # the other key is NULL
    assert keyed.read(source.identity) is not None
    keyed.acknowledge(source.identity)
    assert len(adapter.list().ready) == 1


def test_array_may_have_times_that_python_does_not_have(empty_database: str) -> None:
    query = "SELECT 1 AS id, ARRAY['infinity', '2026-01-02']\\:\\:date[] AS days"

    adapter = on_postgresql(empty_database, query=query, key="id", done="SELECT :key")

    assert adapter.read(adapter.list().ready[0].identity) == b'{"id":1,"days":["infinity","2026-01-02"]}'


def test_two_columns_of_one_name_are_refused(empty_database: str) -> None:
    query = "SELECT 1 AS id, 'billed to' AS name, 'sent to' AS name"

    with pytest.raises(TransientError, match="two columns named 'name'; tell them apart with AS"):
        on_postgresql(empty_database, query=query, key="id", done="SELECT :key").list()


@pytest.mark.parametrize(
    "bad",
    ["SELECT NULL, 'nothing'", "SELECT CAST(x'00ff' AS text), 'odd'", "SELECT -1, 'one' UNION ALL SELECT -1, 'two'"],
)
def test_rows_that_cannot_be_received_take_no_place_of_others(
    folder: Path, orders: sqlite3.Connection, bad: str
) -> None:
    orders.execute(f"CREATE VIEW many AS {bad} UNION ALL {bad} UNION ALL {bad}")
    orders.execute("CREATE VIEW mixed (id, item) AS SELECT * FROM many UNION ALL SELECT id, item FROM orders")
    adapter = receiving(folder, query="SELECT * FROM mixed", limit=2)

    listed = [adapter.list().ready for _ in range(4)][-1]

    assert adapter.read_batch([source.identity for source in listed]) == [
        b'{"id":1,"item":"one"}',
        b'{"id":2,"item":"two"}',
    ]


def test_no_more_and_more_rows_are_listed_where_none_can_be_received(
    folder: Path, orders: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "_LEFT_OUT_AT_MOST", 3)
    orders.execute("CREATE VIEW many AS SELECT NULL AS id, item FROM orders, (VALUES (1), (2), (3), (4))")
    adapter = receiving(folder, query="SELECT * FROM many", limit=2)

    assert [adapter.list().ready for _ in range(4)] == [()] * 4

    assert adapter._most == 5
