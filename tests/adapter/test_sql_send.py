"""Messages into databases: what parameters stand for, what each error means, and batches with a message that is refused."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, event, text

from crossdock.adapter.registry import send_adapter
from crossdock.adapter.sql.database import Database
from crossdock.adapter.sql.send import SqlSendAdapter
from crossdock.errors import (
    ApplicationError,
    MessageGoneError,
    OutageError,
    PartnerError,
    TerminalError,
    TransientError,
)
from crossdock.host.outcome import Complete, Suspend
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.pipeline.definition import SendPipelineDefinition
from crossdock.send.port import PortDefinition, SendPort

INSERT = "INSERT INTO orders (id, item) VALUES (:id, :item)"


@pytest.fixture
def shop(empty_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, item text NOT NULL)")
        yield connection


@pytest.fixture
def address(empty_database: str) -> str:
    place = {name: str(value) for name, value in conninfo_to_dict(empty_database).items()}
    return URL.create("postgresql", database=place.pop("dbname"), query=place).render_as_string(hide_password=False)


def a_message(body: bytes | str, context: Context | None = None) -> Message:
    content = body if isinstance(body, bytes) else body.encode()
    return Message(MessageId(uuid4()), context or Context(), (Part("body", content),))


def an_order(id_: object, item: object = '"tea"') -> Message:
    return a_message(f'{{"id": {id_}, "item": {item}}}')


def send(address: str, statement: str, message: Message, **options: Any) -> None:
    with closing(SqlSendAdapter(address, statement=statement, **options)) as adapter:
        adapter.send(message, attempt=0)


def values(connection: psycopg.Connection[Any] | sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def test_parameters_are_found_in_the_message(shop: psycopg.Connection[Any], address: str) -> None:
    shop.execute(
        "CREATE TABLE found (message uuid, body text, region text, type text, place text, n int, nothing text)"
    )
    context = Context({"Region": "EU", "BTS.MessageType": "Order"}, {"FILE.ReceivedFileName": "/in/a.json"})
    message = a_message('{"n": 5, "Region": "hidden by the property"}', context)

    send(
        address,
        "INSERT INTO found VALUES (:MessageID, :Body, :Region, :MessageType, :place, :n, :nowhere)",
        message,
        parameters={"place": "FILE.ReceivedFileName"},
    )

    expected = (message.id, message.body.decode(), "EU", "Order", "/in/a.json", 5, None)
    assert values(shop, "SELECT * FROM found") == [expected]


@pytest.mark.parametrize(
    ("written", "type_", "value"),
    [
        ("12.50", "numeric", Decimal("12.50")),
        ("999999999999999999.9999999999999991", "numeric", Decimal("999999999999999999.9999999999999991")),
        ("123456789012345678901234567890", "numeric", Decimal("123456789012345678901234567890")),
        ("-7", "bigint", -7),
        ("17", "text", "17"),
        ("true", "boolean", True),
        ("null", "text", None),
        ('"zwölf €"', "text", "zwölf €"),
        ('"12"', "integer", 12),
        ('{"a": [1.10, null]}', "text", '{"a":[1.10,null]}'),
        ("[1, 2]", "jsonb", [1, 2]),
        ('"2026-02-28T12:30:00Z"', "timestamptz", datetime(2026, 2, 28, 12, 30, tzinfo=UTC)),
    ],
)
def test_json_values_keep_what_they_are(
    shop: psycopg.Connection[Any], address: str, written: str, type_: str, value: object
) -> None:
    shop.execute(f"CREATE TABLE typed (value {type_})".encode())

    send(address, "INSERT INTO typed VALUES (:value)", a_message(f'{{"value": {written}}}'))

    assert values(shop, "SELECT value FROM typed") == [(value,)]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.customer.name", "Ann"),
        ("$.lines[1].amount", "2.50"),
        ("$['two words']", "yes"),
        ("$.lines[9].amount", None),
        ("$.customer.name.first", None),
        ("$.lines.amount", None),
        ("$.customer[0]", None),
        ("$.customer", '{"name":"Ann"}'),
        ("Amount", "7"),
        ("MessageType", "Order"),
    ],
)
def test_parameter_may_be_a_path_or_another_property(
    shop: psycopg.Connection[Any], address: str, path: str, value: str | None
) -> None:
    shop.execute("CREATE TABLE found (value text)")
    body = '{"customer": {"name": "Ann"}, "lines": [{}, {"amount": 2.50}], "two words": "yes", "v": 1, "Amount": 8}'
    context = Context({"Amount": Decimal(7), "BTS.MessageType": "Order", "v": "property"})

    send(address, "INSERT INTO found VALUES (:v)", a_message(body, context), parameters={"v": path})

    assert values(shop, "SELECT value FROM found") == [(value,)]


@pytest.mark.parametrize("body", [b"", b"\xff", b"no json", b"[1]", b"[" * 100_000])
def test_field_of_a_body_that_is_no_object_is_null(shop: psycopg.Connection[Any], address: str, body: bytes) -> None:
    shop.execute("CREATE TABLE found (value text)")

    send(address, "INSERT INTO found VALUES (:value)", a_message(body))

    assert values(shop, "SELECT value FROM found") == [(None,)]


def test_sqlite_gets_exact_values_as_text(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as shop:
        shop.execute("CREATE TABLE found (a numeric, b text, c text, d text, e integer, f text)")
        body = '{"a": 12.50, "b": 0.1000000000000000000001, "c": 123456789012345678901234567890, "e": true, "f": "x"}'
        context = Context({"d": datetime(2026, 2, 28, tzinfo=UTC)})

        send(
            f"sqlite:///{folder}/shop.db", "INSERT INTO found VALUES (:a, :b, :c, :d, :e, :f)", a_message(body, context)
        )

        row = (
            12.5,
            "1.000000000000000000001E-1",
            "123456789012345678901234567890",
            "2026-02-28T00:00:00+00:00",
            1,
            "x",
        )
        [found] = values(shop, "SELECT * FROM found")
        assert (found[0], Decimal(found[1]), *found[2:]) == (row[0], Decimal(row[1]), *row[2:])


def outcomes(adapter: SqlSendAdapter, messages: Sequence[Message]) -> list[type | None]:
    return [None if outcome is None else type(outcome) for outcome in adapter.send_batch(messages)]


def test_refused_message_does_not_hold_back_the_others(shop: psycopg.Connection[Any], address: str) -> None:
    shop.execute("ALTER TABLE orders ADD sequence serial")
    batch = [an_order(5), an_order('"five"'), an_order(4), an_order(5), a_message(b"{}"), an_order(3)]

    with closing(SqlSendAdapter(address, statement=INSERT)) as adapter:
        told = outcomes(adapter, batch)
        again = outcomes(adapter, batch)

    assert told == again == [None, PartnerError, None, PartnerError, PartnerError, None]
    assert values(shop, "SELECT id FROM orders ORDER BY sequence") == [(5,), (4,), (3,)]


def test_body_that_is_no_text_is_refused_alone(shop: psycopg.Connection[Any], address: str) -> None:
    statement = "INSERT INTO orders SELECT length(:Body), :Body"

    with closing(SqlSendAdapter(address, statement=statement)) as adapter:
        first, second = adapter.send_batch([a_message(b"\xff"), a_message(b"tea")])

    assert "the body is not text in UTF-8" in str(first)
    assert second is None
    assert values(shop, "SELECT * FROM orders") == [(3, "tea")]


@pytest.mark.parametrize("error", [MessageGoneError, TransientError])
def test_part_that_cannot_be_fetched_holds_back_no_other_message(
    shop: psycopg.Connection[Any], address: str, error: type[MessageGoneError | TransientError]
) -> None:
    def fetched() -> BinaryIO:
        raise error("the part is not there")

    broken = Message(MessageId(uuid4()), Context(), (StreamedPart("body", fetched),))

    with closing(SqlSendAdapter(address, statement=INSERT)) as adapter:
        assert outcomes(adapter, [an_order(1), broken, an_order(2)]) == [None, error, None]
    assert values(shop, "SELECT id FROM orders") == [(1,), (2,)]


def test_messages_do_not_wait_for_a_messagebox_that_is_away_one_after_the_other(
    shop: psycopg.Connection[Any], address: str
) -> None:
    asked: list[int] = []

    def fetched() -> BinaryIO:
        asked.append(1)
        raise OutageError("PostgreSQL cannot be reached", "")

    broken = [Message(MessageId(uuid4()), Context(), (StreamedPart("body", fetched),)) for _ in range(3)]

    with closing(SqlSendAdapter(address, statement=INSERT)) as adapter, pytest.raises(OutageError):
        adapter.send_batch([an_order(1), *broken])
    assert (len(asked), values(shop, "SELECT id FROM orders")) == (1, [])


def test_batch_is_one_transaction_with_few_statements(shop: psycopg.Connection[Any], address: str) -> None:
    with closing(SqlSendAdapter(address, statement=INSERT)) as adapter:
        adapter.send(an_order(0), attempt=0)
        statements: list[str] = []
        event.listen(adapter._database.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))

        told = outcomes(adapter, [an_order(number) for number in range(1, 101)])

    assert told == [None] * 100
    assert len(statements) == 3  # the time limits, the record of deliveries, the messages
    assert values(shop, "SELECT count(*), count(DISTINCT xmin::text) FROM orders") == [(101, 2)]


def test_refused_message_on_sqlite_does_not_hold_back_the_others(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as shop:
        shop.execute("CREATE TABLE orders (id integer PRIMARY KEY, item text NOT NULL)")
        with closing(SqlSendAdapter(f"sqlite:///{folder}/shop.db", statement=INSERT)) as adapter:
            told = outcomes(adapter, [an_order(1), an_order(2, "null"), an_order(3)])

        assert told == [None, PartnerError, None]
        assert values(shop, "SELECT id FROM orders") == [(1,), (3,)]


@pytest.mark.parametrize(
    ("statement", "message", "problem"),
    [
        (INSERT, an_order(1), "duplicate key value violates unique constraint"),
        (INSERT, an_order('"geheim"'), "invalid input syntax for type integer: a value"),
        (INSERT, an_order('"99999999999"'), "value a value is out of range for type integer"),
        (INSERT, an_order(99999999999), "integer out of range"),
        (INSERT, an_order(2, "null"), 'null value in column "item"'),
        (INSERT, an_order(2, r'"geheim\u0000"'), "NUL"),
        ("INSERT INTO missing VALUES (:id)", an_order(2), 'relation "missing" does not exist'),
        ("INSRT :id", an_order(2), "syntax error"),
        ("SELECT 1 / (:id - 2)", an_order(2), "division by zero"),
        ("SELECT refuse(:item)", an_order(2), "a value is not wanted"),
    ],
)
def test_what_the_database_refuses_is_told_without_values(
    shop: psycopg.Connection[Any], address: str, statement: str, message: Message, problem: str
) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'geheim')")
    shop.execute(
        "CREATE FUNCTION refuse(text) RETURNS void LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION '''%'' is not wanted', $1 USING DETAIL = $1; END$$"
    )

    with pytest.raises(TerminalError, match="the statement is refused: ") as raised:
        send(address, statement, message)

    told = "".join(traceback.format_exception(raised.value))
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "geheim" not in told
    assert "tea" not in str(raised.value)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SELECT fail('40001')",
        "SELECT fail('40P01')",
        "SELECT fail('55P03')",
        "SELECT fail('57014')",
        "SELECT fail('53100')",
        "SELECT fail('25006')",
    ],
)
def test_what_may_pass_is_worth_another_try(shop: psycopg.Connection[Any], address: str, statement: str) -> None:
    shop.execute(
        "CREATE FUNCTION fail(state text) RETURNS void LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'busy' USING ERRCODE = state; END$$"
    )

    with pytest.raises(TransientError) as raised:
        send(address, statement, an_order(1))

    assert "\n" not in str(raised.value)


def test_batch_is_not_tried_one_by_one_once_the_connection_is_lost(shop: psycopg.Connection[Any], address: str) -> None:
    statement = "SELECT CASE WHEN :id = 2 THEN pg_terminate_backend(pg_backend_pid()) ELSE true END"
    connects: list[object] = []

    with closing(SqlSendAdapter(address, statement=statement)) as adapter:
        event.listen(adapter._database.engine, "connect", lambda *call: connects.append(call))
        told = outcomes(adapter, [an_order(number) for number in range(5)])

    assert told == [TransientError] * 5
    assert len(connects) == 1
    assert values(shop, "SELECT count(*) FROM crossdock_delivery") == [(0,)]


def test_sqlite_that_is_locked_is_worth_another_try(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as shop:
        shop.execute("CREATE TABLE orders (id integer PRIMARY KEY, item text NOT NULL)")
        shop.execute("BEGIN IMMEDIATE")

        with pytest.raises(TransientError, match="database is locked"):
            send(f"sqlite:///{folder}/shop.db?timeout=0", INSERT, an_order(1))


@pytest.mark.parametrize("statement", ["INSERT INTO missing VALUES (:id)", "INSRT :id"])
def test_wrong_statement_on_sqlite_suspends(folder: Path, statement: str) -> None:
    (folder / "shop.db").touch()

    with pytest.raises(TerminalError, match=r"the statement is refused: (no such table|near)"):
        send(f"sqlite:///{folder}/shop.db", statement, an_order(1))


def test_as_many_connections_as_threads_are_there_at_once(address: str) -> None:
    database = Database(address, timeout=60)

    with ExitStack() as stack:
        connections = [stack.enter_context(database.connected()) for _ in range(20)]
        assert len({connection.execute(text("SELECT pg_backend_pid()")).scalar() for connection in connections}) == 20
    database.engine.dispose()


@pytest.mark.parametrize("encode", [(), ("gzip",)])
def test_message_that_shows_a_bug_does_not_take_the_rest_of_its_batch_along(
    folder: Path, encode: tuple[str, ...]
) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("CREATE TABLE orders (id text)")
        options = {"statement": "INSERT INTO orders VALUES (:id)", "parameters": {"id": "Number"}}
        if not encode:
            options = {"statement": "INSERT INTO orders SELECT :Number WHERE :Body > ''"}
        definition = PortDefinition(
            name="Shop",
            adapter="sql",
            address=f"sqlite:///{folder}/shop.db",
            options=options,
            pipeline=SendPipelineDefinition(encode=encode),
        )
        port = SendPort.from_definition(definition.model_dump(mode="json"), lambda: MessageId(uuid4()))
        numbered = [a_message("content", Context({"Number": str(n)})) for n in range(3)]
        numbered[1] = Message(numbered[1].id, numbered[1].context, ())  # nobody thought of one without a body

        outcomes = port.deliver_batch([(message, 0) for message in numbered], now=lambda: datetime.now(UTC))
        port.close()

        assert [type(outcome) for outcome in outcomes] == [Complete, Suspend, Complete]
        assert values(shop, "SELECT id FROM orders") == [("0",), ("2",)]


def test_database_file_that_is_missing_is_not_made(folder: Path) -> None:
    with pytest.raises(TransientError, match="cannot be reached: there is no such file"):
        send(f"sqlite:///{folder}/shop.db", INSERT, an_order(1))

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "options", "problem"),
    [
        ("shop:geheim@nowhere", {"statement": INSERT}, "the address of adapter 'sql' is a URL such as"),
        ("postgresql://u@h:geheim/d", {"statement": INSERT}, "the address of adapter 'sql' is a URL such as"),
        ("nosuch://u:geheim@h/d", {"statement": INSERT}, "'nosuch' is no database that SQLAlchemy knows"),
        ("sqlite:///x.db", {}, "adapter 'sql' needs the option 'statement'"),
        ("sqlite:///x.db", {"statement": INSERT, "query": "SELECT 1"}, "adapter 'sql' has no option 'query'"),
        (
            "sqlite:///x.db",
            {"statement": INSERT, "parameters": {"ident": "$.id"}},
            "`parameters` has 'ident', and the statement has no :ident",
        ),
        (
            "sqlite:///x.db",
            {"statement": INSERT, "parameters": {"id": "$.a[*]"}},
            "'$.a[*]' is not a path to one field",
        ),
        ("sqlite:///x.db", {"statement": INSERT, "parameters": {"id": 1}}, "option 'parameters' of adapter 'sql'"),
    ],
)
def test_wrong_declaration_is_refused_in_one_sentence(address: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ApplicationError) as raised:
        send_adapter("sql", address, options)

    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "geheim" not in str(raised.value)
