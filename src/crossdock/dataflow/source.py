"""The Spark source of the bulk lane: sources of one receive host that this query has claimed in the intake ledger.

The offset counts the micro-batches of one query and means nothing else: the ledger knows what is still to be read.

Before the first message is published, Spark imports this module in seven processes. One of them asks the ledger: the
others do not import what that takes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from crossdock.errors import CrossdockError
from crossdock.messagebox.conninfo import Travelling
from crossdock.receive.item import IntakeItem

if TYPE_CHECKING:
    from crossdock.messagebox.claims import SourceClaims

ITEMS_PER_BATCH = 4_000
BYTES_PER_BATCH = 128 * 1024 * 1024
PARTITIONS_PER_BATCH = 2 * (os.cpu_count() or 2)  # more than run at once: a slow one does not hold up the batch
SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("location_id", pa.int32(), nullable=False),
        pa.field("identity", pa.binary(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("random_bits", pa.int64(), nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
    ]
)

logger = logging.getLogger(__name__)


class IntakeSource(DataSource):
    """`spark.readStream.format("crossdock_intake")`; the option's name makes Spark hide its value in logs."""

    @classmethod
    def name(cls) -> str:
        return "crossdock_intake"

    def schema(self) -> str:
        return (
            "sequence BIGINT NOT NULL, location_id INT NOT NULL, identity BINARY NOT NULL, size BIGINT NOT NULL,"
            " random_bits BIGINT NOT NULL, attempts INT NOT NULL"
        )

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        bare = self.options["bare"] == str(True)
        return IntakeReader(Travelling(str(self.options["databaseSecret"]), bare), int(self.options["host"]))


class IntakeRange(InputPartition):
    """Sources that one task reads."""

    def __init__(self, items: Sequence[IntakeItem]) -> None:
        self.items = tuple(items)


class IntakeReader(DataSourceStreamReader):
    """Plans micro-batches. Spark keeps one in a process of its own for as long as the query runs."""

    def __init__(self, database: Travelling, host: int) -> None:
        self._database = database
        self._host = host
        self._claims: SourceClaims | None = None
        self._batch = 0
        self._items: Sequence[IntakeItem] = ()

    def __reduce__(self) -> tuple[type[IntakeReader], tuple[Travelling, int]]:
        """Travels to the executors without its connection."""
        return IntakeReader, (self._database, self._host)

    @property
    def claims(self) -> SourceClaims:
        if self._claims is None:
            from crossdock.messagebox.agent import Agent

            self._claims = Agent(self._database.arrived(), connections=1).ledger.claims()
        return self._claims

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """Claim the sources of the next batch; the same offset again means that there are none."""
        if start["batch"] == self._batch:  # Spark may ask twice for one batch, and what is claimed has to be read
            try:
                self._items = self.claims.claim(self._host, items=ITEMS_PER_BATCH, size=BYTES_PER_BATCH)
            except CrossdockError as error:
                logger.warning("The ledger cannot be read: %s", error)
                return start
            self._batch += bool(self._items)
        return {"batch": self._batch}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        items = () if start == end else self._items
        return [IntakeRange(part) for part in evenly(items, PARTITIONS_PER_BATCH)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IntakeRange)
        columns = ([getattr(item, name) for item in partition.items] for name in SCHEMA.names)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: what is published is known from the MessageBox, and acknowledged from there."""


def evenly(items: Sequence[IntakeItem], count: int) -> list[Sequence[IntakeItem]]:
    """The items in at most `count` runs of about the same number of bytes."""
    total = sum(item.size + 1 for item in items)
    result: list[list[IntakeItem]] = [[] for _ in range(count)]
    seen = 0
    for item in items:
        result[min(count - 1, seen * count // max(total, 1))].append(item)
        seen += item.size + 1
    return [part for part in result if part]
