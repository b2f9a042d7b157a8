"""Values that a driver cannot make: fetched as they are written, since one of them would keep back every other row.

PostgreSQL has times that Python has not: infinity, the years before 1 and after 9999, 24:00. SQLite keeps any bytes as
text. Other drivers fail as they do.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event

from crossdock.adapter.sql.value import NotText

_TIMES = ("date", "time", "timetz", "timestamp", "timestamptz", "interval")
_AS_TEXT = 0


def fetch_everything(engine: Engine) -> None:
    """From now on, for every connection of this engine."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _sqlite)
    elif engine.dialect.driver == "psycopg":
        event.listen(engine, "connect", _psycopg)


def _sqlite(connection: Any, _: Any) -> None:
    connection.text_factory = _text_or_bytes


def _text_or_bytes(written: bytes) -> str | NotText:
    try:
        return written.decode()
    except UnicodeDecodeError:
        return NotText(written)


def _psycopg(connection: Any, _: Any) -> None:
    adapters = connection.adapters
    for name in _TIMES:
        oid = adapters.types[name].oid
        adapters.register_loader(oid, _time_or_text(adapters.get_loader(oid, _AS_TEXT)))


def _time_or_text(loader: Any) -> type:
    class TimeOrText:
        """Beside the loader, not derived from it: one written in C would be called past us."""

        format = _AS_TEXT

        def __init__(self, oid: int, context: Any = None) -> None:
            self._loader = loader(oid, context)

        def load(self, written: Any) -> Any:
            try:
                return self._loader.load(written)
            except Exception:
                return bytes(written).decode()

    return TimeOrText
