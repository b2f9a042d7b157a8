"""Rows that are too large: each is reported once and left out, and the others are read."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crossdock.adapter.sql import receive
from crossdock.adapter.sql.receive import SqlReceiveAdapter
from crossdock.errors import TransientError
from sql_orders import DONE, QUERY, on_postgresql, receiving

_VERSIONS: list[dict[str, Any]] = [{}, {"version": "id"}]


@pytest.mark.parametrize("version", _VERSIONS)
def test_large_row_in_sqlite_is_left_out(
    folder: Path, orders: sqlite3.Connection, caplog: pytest.LogCaptureFixture, version: dict[str, Any]
) -> None:
    orders.execute("UPDATE orders SET item = zeroblob(5000000) WHERE id = 2")
    orders.executemany("INSERT INTO orders (id, item) VALUES (?, 'more')", [(number,) for number in range(4, 100)])

    adapter = receiving(folder, maximum_size=1_000_000, **version)

    _check_that_the_second_is_left_out(adapter, caplog, count=98)


@pytest.mark.parametrize("version", _VERSIONS)
def test_large_row_in_postgresql_is_left_out_and_stays_with_the_server(
    empty_database: str, caplog: pytest.LogCaptureFixture, version: dict[str, Any]
) -> None:
    with psycopg.connect(empty_database) as partner:
        partner.execute(
            "CREATE TABLE orders AS SELECT id, repeat('x', CASE id WHEN 2 THEN 5000000 ELSE 5 END) AS item, 0 AS sent "
            "FROM generate_series(1, 100) AS id"
        )

    adapter = on_postgresql(empty_database, query=QUERY, key="id", done=DONE, maximum_size=1_000_000, **version)

    _check_that_the_second_is_left_out(adapter, caplog, count=99)


def test_row_that_grew_too_large_is_neither_read_nor_marked(folder: Path, orders: sqlite3.Connection) -> None:
    adapter = receiving(folder, query="SELECT id, item FROM orders WHERE sent = 0", maximum_size=1_000)
    source = adapter.list().ready[0]
    orders.execute("UPDATE orders SET item = '\"' || hex(zeroblob(450)) WHERE id = 1")
    orders.execute("UPDATE orders SET item = replace(item, '0', char(1)) WHERE id = 1")

    assert adapter.read(source.identity) is None
    adapter.acknowledge(source.identity)

    assert orders.execute("SELECT count(*) FROM orders WHERE sent = 1").fetchone() == (0,)


def _check_that_the_second_is_left_out(
    adapter: SqlReceiveAdapter, caplog: pytest.LogCaptureFixture, *, count: int
) -> None:
    for _ in range(2):
        ready = adapter.list().ready
        names = {adapter.name(source.identity).rpartition("=")[2] for source in ready}
        assert (len(ready), names & {"1", "2", "3"}) == (count, {"1", "3"})
    assert None not in adapter.read_batch([source.identity for source in ready])
    [report] = [record.getMessage() for record in caplog.records]
    assert "id=2 has more than 1,000,000 bytes" in report
    adapter.acknowledge_batch([source.identity for source in ready])
    assert adapter.list().ready == ()


def test_large_rows_take_no_place_of_others(folder: Path, orders: sqlite3.Connection) -> None:
    orders.executemany("INSERT INTO orders (id, item) VALUES (?, zeroblob(5000000))", [(-3,), (-2,), (-1,)])
    adapter = receiving(folder, maximum_size=1_000_000, limit=2)

    listed = [adapter.list().ready for _ in range(3)][-1]

    assert len(adapter.read_batch([source.identity for source in listed])) == 2


def test_rows_that_have_grown_too_large_to_be_read_together_are_read_one_by_one(
    folder: Path, orders: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = receiving(folder, version="id")
    identities = [source.identity for source in adapter.list().ready]
    monkeypatch.setattr(receive, "_READ_TOGETHER_BYTES", 1_000)
    orders.execute("UPDATE orders SET item = hex(zeroblob(300))")

    with pytest.raises(TransientError, match="its rows have grown, and are read one by one"):
        adapter.read_batch(identities)

    assert all(len(adapter.read(identity) or b"") > 600 for identity in identities)


def test_rows_that_have_changed_are_not_held(
    folder: Path, orders: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = receiving(folder)
    identities = [source.identity for source in adapter.list().ready]
    monkeypatch.setattr(receive, "_READ_TOGETHER_BYTES", 1_000)
    orders.execute("UPDATE orders SET item = hex(zeroblob(300))")

    assert set(adapter.read_batch(identities)) == {None}
