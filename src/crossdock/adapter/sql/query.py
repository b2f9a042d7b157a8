"""The statements that are made of a location's query, and how large a row may be in them.

PostgreSQL gives a row that is too large without its values. SQLite refuses a statement that meets one. Other databases
give it, and it is refused once it is here.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
    Integer,
    Select,
    Text,
    cast,
    column,
    event,
    func,
    literal_column,
    select,
    text,
)

from crossdock.adapter.sql.transport import SqlReceiveOptions

SIZE = "crossdock_size"
NAME = "crossdock_name"
_NAME_CHARACTERS = 100
_SQLITE_LENGTH_LIMIT = 0  # SQLITE_LIMIT_LENGTH


class RowQuery:
    """`rows` gives whole rows, `keys` the column of the key alone.

    On PostgreSQL the columns SIZE and NAME come last: the bytes of the row as text, and the beginning of its key.
    """

    def __init__(self, options: SqlReceiveOptions, dialect: str) -> None:
        lines = options.query.strip().rstrip(";") + "\n"  # a comment may end the last one
        source = text(lines).columns(column(options.key)).subquery("crossdock_row")
        self.key: ColumnElement[Any] = source.c[options.key]
        self.keys: Select[Any] = select(self.key)
        self.rows: Select[Any] = select(literal_column("*")).select_from(source)
        if dialect != "postgresql":
            return
        size = literal_column("octet_length(CAST(crossdock_row AS text))", Integer)
        fits = size <= options.maximum_size
        told = size.label(SIZE), func.left(cast(self.key, Text), _NAME_CHARACTERS).label(NAME)
        whole = select(literal_column("crossdock_row.*")).lateral("crossdock_whole")
        self.rows = select(text("crossdock_whole.*"), *told).select_from(source.outerjoin(whole, fits))


def limit_size(engine: Engine, size: int) -> None:
    """From now on, for every connection of this engine, where the driver can."""

    def connected(connection: Any, _: Any) -> None:
        connection.setlimit(_SQLITE_LENGTH_LIMIT, size)

    if engine.dialect.driver == "pysqlite":
        event.listen(engine, "connect", connected)
