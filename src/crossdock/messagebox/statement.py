"""The statements of the MessageBox: one verb per file in `sql/`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(verb: str) -> str:
    """The text of `sql/<verb>.sql`."""
    return (files("crossdock.messagebox") / "sql" / f"{verb}.sql").read_text(encoding="utf-8")
