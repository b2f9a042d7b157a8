"""The sql adapter and its database: how it is declared, connections that are lost, passwords that nobody sees."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crossdock.adapter.sql.receive import SqlReceiveAdapter
from crossdock.errors import ApplicationError, TransientError
from sql_orders import DONE, QUERY, on_postgresql, receiving


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
