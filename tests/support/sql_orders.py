"""What tests of the sql adapter share: one that reads the orders of a shop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from crossdock.adapter.sql.receive import SqlReceiveAdapter

QUERY = "SELECT id, item FROM orders WHERE sent = 0"
DONE = "UPDATE orders SET sent = 1 WHERE id = :key"


def receiving(folder: Path, **options: Any) -> SqlReceiveAdapter:
    return SqlReceiveAdapter(f"sqlite:///{folder}/shop.db", **{"query": QUERY, "key": "id", "done": DONE, **options})


def on_postgresql(database: str, **options: Any) -> SqlReceiveAdapter:
    place = {name: str(value) for name, value in conninfo_to_dict(database).items()}
    url = URL.create("postgresql", database=place.pop("dbname"), query=place)
    return SqlReceiveAdapter(url.render_as_string(hide_password=False), **options)
