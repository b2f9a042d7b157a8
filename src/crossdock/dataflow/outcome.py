"""What flows back through Spark: one row for each transaction, or for a source that could not be read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crossdock.messagebox.rows import Published

OUTCOME = (
    "sequence BIGINT, identity BINARY, reason STRING, received BIGINT, published BIGINT,"
    " read_seconds DOUBLE, match_seconds DOUBLE, store_seconds DOUBLE"
)
_OUTCOME_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("identity", pa.binary()),
        ("reason", pa.string()),
        ("received", pa.int64()),
        ("published", pa.int64()),
        ("read_seconds", pa.float64()),
        ("match_seconds", pa.float64()),
        ("store_seconds", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """What a worker published in one transaction, and how long it took to read, to match and to store it."""

    received: int
    published: int
    read_seconds: float
    match_seconds: float
    store_seconds: float


def unreadable(sequence: int, identity: bytes, reason: str) -> pa.RecordBatch:
    """The outcome of a source that cannot be read now."""
    return _outcome(sequence=sequence, identity=identity, reason=reason)


def done(published: Published, read_seconds: float, started: float) -> pa.RecordBatch:
    """The outcome of a transaction that began to match at `started`."""
    return _outcome(
        received=published.received,
        published=published.published,
        read_seconds=read_seconds,
        match_seconds=published.match_seconds,
        store_seconds=time.perf_counter() - started - published.match_seconds,
    )


def _outcome(**values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([values], schema=_OUTCOME_SCHEMA)
