"""The Spark source of the bulk lane: ranges of the intake ledger, of one receive host.

The offset is a ledger sequence and nothing else.

Planning a batch that has begun raises if the ledger cannot be read; the query ends and is started again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from crossdock.errors import CrossdockError
from crossdock.messagebox.agent import Agent
from crossdock.receive.interchange import IntakeItem

ITEMS_PER_BATCH = 4_000
BYTES_PER_BATCH = 128 * 1024 * 1024
PARTITIONS_PER_BATCH = 2 * (os.cpu_count() or 2)  # more than run at once: a slow one does not hold up the batch
SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("location_id", pa.int32(), nullable=False),
        pa.field("identity", pa.binary(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
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
            " attempts INT NOT NULL"
        )

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        return IntakeReader(str(self.options["databaseSecret"]), int(self.options["host"]))


class IntakeRange(InputPartition):
    """Sources that one task reads."""

    def __init__(self, items: Sequence[IntakeItem]) -> None:
        self.items = tuple(items)


class IntakeReader(DataSourceStreamReader):
    """Plans micro-batches from the ledger."""

    def __init__(self, database: str, host: int) -> None:
        self._database = database
        self._host = host
        self._agent: Agent | None = None

    def __reduce__(self) -> tuple[type[IntakeReader], tuple[str, int]]:
        """Travels to the executors without its connection."""
        return IntakeReader, (self._database, self._host)

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            self._agent = Agent(self._database, connections=1)
        return self._agent

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"sequence": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        try:
            end = self.agent.next_intake_offset(
                start["sequence"], items=ITEMS_PER_BATCH, size=BYTES_PER_BATCH, host=self._host
            )
        except CrossdockError as error:
            logger.warning("The ledger cannot be read: %s", error)
            return start
        return {"sequence": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        items = self.agent.read_intake(start["sequence"], end["sequence"], host=self._host)
        return [IntakeRange(share) for share in shares(items, PARTITIONS_PER_BATCH)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IntakeRange)
        rows = ((i.sequence, i.location_id, i.identity, i.size, i.attempts) for i in partition.items)
        columns = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: what is published is known from the MessageBox, and acknowledged from there."""


def shares(items: Sequence[IntakeItem], count: int) -> list[Sequence[IntakeItem]]:
    """The items in at most `count` runs of about the same number of bytes."""
    total = sum(item.size + 1 for item in items)
    result: list[list[IntakeItem]] = [[] for _ in range(count)]
    seen = 0
    for item in items:
        result[min(count - 1, seen * count // max(total, 1))].append(item)
        seen += item.size + 1
    return [share for share in result if share]
