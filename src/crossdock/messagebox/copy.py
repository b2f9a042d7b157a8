"""Binary COPY without a Python step per value: rows of fixed width come from arrays, the others from joined bytes.

In a pipeline, where statements go out without waiting for each answer, the same rows go in by INSERT: COPY cannot be
sent that way, and for a few rows the waiting is what takes time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, islice
from struct import Struct
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.pq import PipelineStatus

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_CHUNK_ROWS = 256
_LENGTH = Struct(">i")
# Types of fixed width, as PostgreSQL sends them.
WIDTHS = {"int2": ">i2", "int4": ">i4", "int8": ">i8", "uuid": "V16"}

Row = tuple[bytes, ...]
Column = tuple[str, npt.NDArray[Any]]
length = _LENGTH.pack


def copy_columns(connection: psycopg.Connection, command: str, columns: Sequence[Column]) -> None:
    """COPY rows whose columns are arrays: (type, values) each. Nothing is sent where there are no rows."""
    if in_pipeline(connection):
        values = (map(_uuid, column) if type_ == "uuid" else column.tolist() for type_, column in columns)
        copy_tuples(connection, command, [type_ for type_, _ in columns], list(zip(*values, strict=True)))
    elif len(columns[0][1]):
        with connection.cursor() as cursor, cursor.copy(command) as copy:
            copy.write(_HEADER)
            copy.write(fixed_rows(columns))
            copy.write(_TRAILER)


def copy_rows(connection: psycopg.Connection, command: str, rows: Iterable[Row]) -> None:
    """COPY rows that are bytes already, a few hundred at a time."""
    rows = iter(rows)
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        copy.write(_HEADER)
        while chunk := b"".join(chain.from_iterable(islice(rows, _CHUNK_ROWS))):
            copy.write(chunk)
        copy.write(_TRAILER)


def copy_tuples(
    connection: psycopg.Connection, command: str, types: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> None:
    """COPY a few rows of any types, where speed does not matter."""
    if in_pipeline(connection):
        for row in rows:
            connection.execute(_insert(command, tuple(types)), row)
    elif rows:
        with connection.cursor() as cursor, cursor.copy(command) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)


def in_pipeline(connection: psycopg.Connection) -> bool:
    return connection.pgconn.pipeline_status != PipelineStatus.OFF


@cache
def _insert(command: str, types: tuple[str, ...]) -> bytes:
    """The INSERT of one row for `COPY table (columns) FROM ...`."""
    table = command.removeprefix("COPY ").partition(" FROM ")[0]
    values = ", ".join(f"%s::{type_}" for type_ in types)
    return f"INSERT INTO {table} VALUES ({values})".encode()  # noqa: S608 - both are ours


def _uuid(value: Any) -> UUID:
    return UUID(bytes=bytes(value))


def uuid_array(values: Iterable[bytes]) -> npt.NDArray[Any]:
    """UUIDs, given as bytes, as a column."""
    return np.frombuffer(b"".join(values), "V16")


def fixed_rows(columns: Sequence[Column]) -> bytes:
    """Each row is the number of its fields, then for each the length and the value, all big-endian."""
    fields: list[tuple[str, str]] = [("count", ">i2")]
    for number, (type_, _) in enumerate(columns):
        fields += [(f"length{number}", ">i4"), (f"value{number}", WIDTHS[type_])]
    rows = np.empty(len(columns[0][1]), np.dtype(fields))
    rows["count"] = len(columns)
    for number, (type_, values) in enumerate(columns):
        rows[f"length{number}"] = np.dtype(WIDTHS[type_]).itemsize
        rows[f"value{number}"] = values
    return rows.tobytes()
