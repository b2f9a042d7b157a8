"""Rows as sources: what they look like as JSON, which keys work, and what happens when query or statement are wrong."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, event

from crossdock.adapter.sql import SqlReceiveAdapter
from crossdock.errors import ApplicationError, TransientError

QUERY = "SELECT id, item FROM orders WHERE sent = 0"
DONE = "UPDATE orders SET sent = 1 WHERE id = :key"


@pytest.fixture
def orders(folder: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(folder / "shop.db", isolation_level=None, timeout=0)
    connection.execute("CREATE TABLE orders (id, item text, sent integer DEFAULT 0)")
    connection.execute("INSERT INTO orders (id, item) VALUES (2, 'two'), (1, 'one'), (3, 'three')")
    yield connection
    connection.close()


def receiving(folder: Path, **options: Any) -> SqlReceiveAdapter:
    return SqlReceiveAdapter(f"sqlite:///{folder}/shop.db", **{"query": QUERY, "key": "id", "done": DONE, **options})


def on_postgresql(database: str, **options: Any) -> SqlReceiveAdapter:
    place = {name: str(value) for name, value in conninfo_to_dict(database).items()}
    url = URL.create("postgresql", database=place.pop("dbname"), query=place)
    return SqlReceiveAdapter(url.render_as_string(hide_password=False), **options)


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


def test_many_rows_are_done_together_except_those_that_changed(folder: Path, orders: sqlite3.Connection) -> None:
    adapter = receiving(folder)
    identities = [source.identity for source in adapter.list().ready]
    orders.execute("UPDATE orders SET item = 'new' WHERE id = 2")

    adapter.acknowledge_batch(identities)

    assert orders.execute("SELECT id FROM orders WHERE sent = 1 ORDER BY id").fetchall() == [(1,), (3,)]


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


def test_connection_that_the_server_closed_is_opened_again(empty_database: str) -> None:
    adapter = on_postgresql(empty_database, query="SELECT 1 AS id", key="id", done="SELECT :key")
    adapter.list()

    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    assert len(adapter.list().ready) == 1


@pytest.mark.parametrize(
    "place", ["someone:geh%40im@127.0.0.1:1/shop", "127.0.0.1:1/shop?user=someone&password=geh%40im"]
)
def test_password_is_in_no_message(place: str) -> None:
    adapter = SqlReceiveAdapter(f"postgresql://{place}", query="SELECT 1 AS id", key="id", done="SELECT :key")

    with pytest.raises(TransientError, match="it cannot be reached") as raised:
        adapter.list()

    name = adapter.name(adapter._place + b":0:i7")
    told = "".join(traceback.format_exception(raised.value)) + name
    assert "geh@im" not in told.replace(place, "")
    assert "geh%40im" not in told.replace(place, "")
    assert name == "postgresql://127.0.0.1:1/shop/id=7"


def test_password_is_hidden_where_the_driver_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = SqlReceiveAdapter(
        "postgresql://someone:geh%40im@127.0.0.1:1/shop", query="SELECT 1 AS id", key="id", done="SELECT :key"
    )

    def refuse() -> None:
        raise ValueError("geh@im and geh%40im are wrong")

    monkeypatch.setattr(adapter._engine, "connect", refuse)
    with pytest.raises(TransientError, match=r"\*\*\* and \*\*\* are wrong"):
        adapter.list()


def test_database_file_that_is_missing_is_not_made(folder: Path) -> None:
    with pytest.raises(TransientError, match="cannot be reached: there is no such file"):
        receiving(folder).list()

    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("orders")
def test_query_may_end_in_a_comment_or_a_semicolon(folder: Path) -> None:
    assert len(receiving(folder, query=f"{QUERY};\n").list().ready) == 3
    assert len(receiving(folder, query=f"{QUERY} -- not yet sent").list().ready) == 3


@pytest.mark.parametrize(
    ("address", "options", "problem"),
    [
        ("shop:secret@nowhere", {}, "the address of adapter 'sql' is a URL such as"),
        ("nosuch://u:secret@h/d", {}, "'nosuch' is no database that SQLAlchemy knows"),
        ("mysql+cymysql://u:secret@h/d", {}, "the driver of 'mysql\\+cymysql' is not installed"),
        (
            "sqlite:///x.db",
            {"done": "DELETE FROM orders"},
            "`done` has to name the row with :key, or it would mark all of them",
        ),
        ("sqlite:///x.db", {"done": "DELETE FROM orders WHERE id = :id"}, "`done` has the parameter :id"),
        ("sqlite:///x.db", {"query": "SELECT * FROM orders WHERE id > :last"}, "`query` has the parameter :last"),
    ],
)
def test_wrong_declaration_is_refused(address: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ApplicationError, match=problem) as raised:
        SqlReceiveAdapter(address, **{"query": QUERY, "key": "id", "done": DONE, **options})

    assert "secret" not in "".join(traceback.format_exception(raised.value)).replace(address, "")
