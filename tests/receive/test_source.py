"""The Spark source: micro-batches of what is due in the ledger, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from crossdock.dataflow.source import IntakeRange, IntakeReader
from crossdock.messagebox import claims
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.conninfo import Travelling
from large_sources import lines, numbers, worker
from large_sources import listed as large_listed
from server_clock import JumpingClock
from small_sources import deployed, listed

EVERYTHING = ReadAllAvailable()


@contextmanager
def query(agent: Agent) -> Iterator[IntakeReader]:
    """What Spark asks, until the block ends."""
    reader = IntakeReader(Travelling(agent.database), agent.configuration.hosts()["Default"])
    yield reader
    reader.claims.close()


def batch(reader: IntakeReader, start: int) -> list[int]:
    """The sequences of the micro-batch after this offset; none if there is none."""
    end = reader.latestOffset({"batch": start}, EVERYTHING)
    found = reader.partitions({"batch": start}, end)
    return [item.sequence for each in found if isinstance(each, IntakeRange) for item in each.items]


def test_batch_that_spark_asks_for_twice_is_the_same_and_the_next_one_has_what_is_new(
    agent: Agent, folder: Path
) -> None:
    deployed(agent, folder)
    first = [item.sequence for item in listed(agent, folder, a=b"{}", b=b"{}")]

    with query(agent) as reader:
        assert batch(reader, 0) == first
        second = [item.sequence for item in listed(agent, folder, c=b"{}")][2:]
        assert batch(reader, 0) == first
        assert (batch(reader, 1), batch(reader, 2)) == (second, [])


def test_source_that_could_not_be_read_is_in_a_batch_again_once_it_is_due(
    agent: Agent, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is published in part, which has to go on under its number."""
    monkeypatch.setattr(claims, "_SWEEP_SECONDS", 0.0)
    item = large_listed(agent, folder, lines(200))
    with query(agent) as reader:
        assert batch(reader, 0) == [item.sequence]
        next(receiving := iter(worker(agent).receive([item])))
        (folder / "orders.txt").rename(folder / "elsewhere")
        list(receiving)
        [row] = agent.configuration.list_locations()
        assert row.reason is not None
        assert (row.postponed, "orders.txt" in row.reason) == (1, True)
        assert batch(reader, 1) == []

        (folder / "elsewhere").rename(folder / "orders.txt")
        JumpingClock(database).jump(seconds=1)

        assert batch(reader, 1) == [item.sequence]
    list(worker(agent).receive([item]))
    assert numbers(database) == list(range(200))
