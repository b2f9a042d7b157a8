"""Exactly once into PostgreSQL: attempts that come twice, or at the same time, from processes that do not know each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, make_url

from crossdock.adapter.registry import send_adapter
from crossdock.adapter.sql.delivery import delivered_content
from crossdock.adapter.sql.send import SqlSendAdapter
from crossdock.errors import TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.pipeline.send import SendPipeline

INSERT = "INSERT INTO orders VALUES (:MessageID)"
DIGEST = sha256(f"\n{INSERT}".encode()).hexdigest()[:32]


@pytest.fixture
def shop(empty_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (message uuid)")
        connection.execute("CREATE TABLE returns (message uuid)")
        yield connection


@pytest.fixture
def address(empty_database: str) -> str:
    place = {name: str(value) for name, value in conninfo_to_dict(empty_database).items()}
    return URL.create("postgresql", database=place.pop("dbname"), query=place).render_as_string(hide_password=False)


def a_message(body: bytes = b"content", **promoted: str) -> Message:
    return Message(MessageId(uuid4()), Context(dict(promoted)), (Part("body", body),))


def send(address: str, *messages: Message, statement: str = INSERT) -> None:
    with closing(SqlSendAdapter(address, statement=statement)) as adapter:
        assert [outcome for outcome in adapter.send_batch(messages) if outcome is not None] == []


def rows(shop: psycopg.Connection[Any], table: str = "orders") -> int:
    [(number,)] = shop.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
    return int(number)


def test_message_is_delivered_once_however_often_it_is_sent(shop: psycopg.Connection[Any], address: str) -> None:
    first, second = a_message(), a_message()

    send(address, first)
    send(address, first, second, first, second)

    assert rows(shop) == 2


def recorded(message: Message) -> str:
    """How the record knows the statement and the content."""
    return f"{DIGEST} {delivered_content(message).digest}"


@pytest.mark.parametrize("other", [a_message(b"other"), a_message(OrderId="17")])
def test_id_that_was_given_a_second_time_to_another_message_is_not_taken_for_delivered(
    shop: psycopg.Connection[Any], address: str, other: Message
) -> None:
    first = a_message()
    second = Message(first.id, other.context, other.parts)

    send(address, first)
    send(address, second)
    send(address, first, second, second, first)

    assert rows(shop) == 2


def test_what_a_pipeline_makes_anew_in_every_attempt_is_still_the_same_message(
    shop: psycopg.Connection[Any], address: str
) -> None:
    message, times = a_message(b"{}"), iter(("09:00", "09:05"))
    pipeline = SendPipeline(components=[lambda document: document.changed(written={"Sent": next(times)})])

    first, second = pipeline.execute(message), pipeline.execute(message)
    send(address, first)
    send(address, second)

    assert first.context != second.context
    assert rows(shop) == 1


def test_record_from_before_it_knew_the_content_still_counts(shop: psycopg.Connection[Any], address: str) -> None:
    message = a_message()
    send(address, a_message())

    shop.execute("INSERT INTO crossdock_delivery VALUES (%s, %s, now())", [message.id, DIGEST])
    send(address, message)

    assert rows(shop) == 1


def test_two_statements_on_the_same_database_both_deliver(shop: psycopg.Connection[Any], address: str) -> None:
    message = a_message()

    send(address, message)
    send(address, message, statement=INSERT.replace("orders", "returns"))

    assert (rows(shop), rows(shop, "returns")) == (1, 1)


def test_two_ports_with_the_same_statement_both_deliver_each_once(shop: psycopg.Connection[Any], address: str) -> None:
    message = a_message()

    for port in ("First", "Second", "First"):
        with closing(send_adapter("sql", address, {"statement": INSERT}, port=port)) as adapter:
            adapter.send(message, attempt=0)

    assert rows(shop) == 2


def test_refused_message_is_not_recorded(shop: psycopg.Connection[Any], address: str) -> None:
    message = a_message()
    shop.execute("ALTER TABLE orders ADD CONSTRAINT never CHECK (false)")

    with closing(SqlSendAdapter(address, statement=INSERT)) as adapter:
        [refused] = adapter.send_batch([message])
        shop.execute("ALTER TABLE orders DROP CONSTRAINT never")
        [delivered] = adapter.send_batch([message])

    assert refused is not None
    assert delivered is None
    assert rows(shop) == 1


@pytest.mark.parametrize(("ends", "delivered"), [("commit", 0), ("rollback", 1)])
def test_message_that_another_process_is_delivering_is_waited_for(
    shop: psycopg.Connection[Any], empty_database: str, address: str, ends: str, delivered: int
) -> None:
    message = a_message()
    send(address, a_message())
    shop.execute("TRUNCATE orders")

    with psycopg.connect(empty_database) as other, ThreadPoolExecutor(1) as threads:
        other.execute("INSERT INTO crossdock_delivery VALUES (%s, %s, now())", [message.id, recorded(message)])
        sending = threads.submit(send, address, message)
        _wait_for_a_waiting_transaction(shop)
        assert not sending.done()
        getattr(other, ends)()
        sending.result(30)

    assert rows(shop) == delivered


def test_processes_that_deliver_the_same_messages_at_once_deliver_each_once(
    shop: psycopg.Connection[Any], address: str
) -> None:
    """They also make the table at once."""
    messages = [a_message() for _ in range(100)]
    together = threading.Barrier(8, timeout=30)

    def deliver(number: int) -> None:
        with closing(SqlSendAdapter(address, statement=INSERT)) as adapter:
            together.wait()
            turned = messages if number % 2 else messages[::-1]
            for start in range(0, 100, 20):
                outcomes = adapter.send_batch(turned[start : start + 20])
                assert list(outcomes) == [None] * 20

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(deliver, range(8)))

    assert shop.execute("SELECT count(*), count(DISTINCT message) FROM orders").fetchall() == [(100, 100)]


def test_old_deliveries_are_forgotten(shop: psycopg.Connection[Any], address: str) -> None:
    send(address, a_message())
    shop.execute("UPDATE crossdock_delivery SET delivered_at = now() - interval '29 days'")
    old = "INSERT INTO crossdock_delivery SELECT gen_random_uuid(), 'x', now() - interval '31 days'"
    shop.execute(f"{old} FROM generate_series(1, 10)".encode())

    send(address, a_message())

    assert rows(shop, "crossdock_delivery") == 2


def test_role_that_may_not_make_tables_uses_the_one_that_is_there(shop: psycopg.Connection[Any], address: str) -> None:
    role = f"crossdock_sender_{uuid4().hex[:8]}"
    shop.execute(f"CREATE ROLE {role}".encode())
    shop.execute(f"GRANT INSERT ON orders TO {role}".encode())
    limited = make_url(address).update_query_dict({"options": f"-crole={role}"}).render_as_string(hide_password=False)
    try:
        with closing(SqlSendAdapter(limited, statement=INSERT)) as adapter:
            with pytest.raises(TransientError, match="the table crossdock_delivery cannot be used: permission denied"):
                adapter.send(a_message(), attempt=0)
            send(address, a_message())
            shop.execute(f"GRANT SELECT, INSERT, DELETE ON crossdock_delivery TO {role}".encode())
            adapter.send(a_message(), attempt=0)
    finally:
        shop.execute(f"DROP OWNED BY {role}".encode())
        shop.execute(f"DROP ROLE {role}".encode())

    assert rows(shop) == 2


def _wait_for_a_waiting_transaction(shop: psycopg.Connection[Any]) -> None:
    deadline = threading.Event()
    for _ in range(3000):
        if shop.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
            return
        deadline.wait(0.01)
    pytest.fail("nothing waits for the other process")
