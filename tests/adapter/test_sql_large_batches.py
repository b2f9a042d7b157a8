"""Messages with large bodies for a database: they are delivered as always, and are not all in memory at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from crossdock.adapter.sql import send
from crossdock.adapter.sql.send import SqlSendAdapter
from crossdock.errors import OutageError, PartnerError, TransientError
from crossdock.host.outcome import Complete, Postpone, Retry
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, StreamedPart
from crossdock.pipeline.definition import SendPipelineDefinition
from crossdock.send import port as port_module
from crossdock.send.port import PortDefinition, SendPort

BODY = "INSERT INTO orders (id, item) VALUES (:Number, :Body)"


@pytest.fixture
def shop(empty_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, item text NOT NULL)")
        yield connection


@pytest.fixture
def address(empty_database: str) -> str:
    place = {name: str(value) for name, value in conninfo_to_dict(empty_database).items()}
    return URL.create("postgresql", database=place.pop("dbname"), query=place).render_as_string(hide_password=False)


def values(shop: psycopg.Connection[Any], query: str) -> list[Any]:
    return shop.execute(query).fetchall()


def outcomes(adapter: SqlSendAdapter, messages: Sequence[Message]) -> list[type[Exception] | None]:
    return [None if outcome is None else type(outcome) for outcome in adapter.send_batch(messages)]


def large(number: int, opened: list[int]) -> Message:
    """Its body is read when it is asked for, which is noted."""

    def body() -> BinaryIO:
        opened.append(number)
        return BytesIO(bytes(str(number % 10) * 1_000_000, "ascii"))

    return Message(MessageId(uuid4()), Context({"Number": number}), (StreamedPart("body", body),))


def test_large_bodies_are_not_all_in_memory_at_once(
    shop: psycopg.Connection[Any], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "_TOGETHER_BYTES", 2_000_000)
    with closing(SqlSendAdapter(address, statement=BODY)) as adapter:
        adapter.send(large(0, []), attempt=0)
        tracemalloc.start()
        told = outcomes(adapter, [large(number, []) for number in range(1, 21)])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert told == [None] * 20
    assert values(shop, "SELECT count(*), count(DISTINCT xmin::text) FROM orders") == [(21, 11)]
    assert peak < 15_000_000


def test_refused_message_among_large_ones_holds_back_no_other(
    shop: psycopg.Connection[Any], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "_TOGETHER_BYTES", 2_000_000)
    numbers = [1, 2, 2, 3, 4]
    with closing(SqlSendAdapter(address, statement=BODY)) as adapter:
        told = outcomes(adapter, [large(number, []) for number in numbers])

    assert told == [None, None, PartnerError, None, None]
    assert values(shop, "SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,), (4,)]


def test_messagebox_that_goes_away_between_large_messages_leaves_what_is_delivered(
    shop: psycopg.Connection[Any], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "_TOGETHER_BYTES", 2_000_000)

    def fetched() -> BinaryIO:
        raise OutageError("PostgreSQL cannot be reached", "")

    broken = Message(MessageId(uuid4()), Context({"Number": 9}), (StreamedPart("body", fetched),))
    with closing(SqlSendAdapter(address, statement=BODY)) as adapter:
        told = outcomes(adapter, [large(1, []), large(2, []), large(3, []), broken, large(4, [])])

    assert told == [None, None, OutageError, OutageError, OutageError]
    assert values(shop, "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]


def test_database_that_is_away_is_not_waited_for_with_each_large_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "_TOGETHER_BYTES", 1_000_000)
    opened: list[int] = []
    with closing(SqlSendAdapter("postgresql://127.0.0.1:1/shop", statement=BODY)) as adapter:
        told = outcomes(adapter, [large(number, opened) for number in range(1, 6)])

    assert told == [TransientError] * 5
    assert set(opened) == {1}


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_pipeline_makes_of_a_batch_goes_out_before_it_is_too_much(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(port_module, "_TOGETHER_BYTES", 2_000_000)
    batches: list[int] = []

    def send_batch(_: object, messages: Sequence[Message]) -> Sequence[TransientError | None]:
        batches.append(len(messages))
        return [TransientError("busy") if fails else None] * len(messages)

    monkeypatch.setattr(SqlSendAdapter, "send_batch", send_batch)
    definition = PortDefinition(
        name="Out",
        adapter="sql",
        address=f"sqlite:///{folder}/shop.db",
        options={"statement": BODY},
        pipeline=SendPipelineDefinition(charset="utf-8"),
    )
    port = SendPort.from_definition(definition.model_dump(mode="json"), lambda: MessageId(uuid4()))

    told = port.deliver_batch([(large(number, []), 0) for number in range(5)], now=lambda: datetime.now(UTC))

    assert batches == ([2] if fails else [2, 2, 1])
    assert [type(each) for each in told] == ([Retry, Retry] + [Postpone] * 3 if fails else [Complete] * 5)
