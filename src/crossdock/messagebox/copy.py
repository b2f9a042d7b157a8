"""Binary COPY without a Python step per value: rows of fixed width come from arrays, the others from joined bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

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
    if len(columns[0][1]):
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
