"""Dynamic ports: every adapter, where the message says, with an answer if there is one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from express import unbalanced
from office import Office, eventually, written
from partner import Partner, partner

Opened = Callable[..., Office]
LOCATION, TYPE = "BTS__OutboundTransportLocation", "BTS__OutboundTransportType"


@pytest.fixture
def office(database: str, tmp_path: Path) -> Iterator[Opened]:
    """Opens an application with these send ports; at the end the books must balance."""
    with ExitStack() as stack:

        def opened(*ports: dict[str, Any], **application: Any) -> Office:
            declared = {"properties": {"Region": "text"}, "send_ports": list(ports), **application}
            return stack.enter_context(Office(database, tmp_path, declared).open())

        yield opened
    assert unbalanced(database) == []


@pytest.fixture
def shop() -> Iterator[Partner]:
    with partner() as made:
        yield made


def anywhere(**more: Any) -> dict[str, Any]:
    return {"name": "Anywhere", "dynamic": True, "filter": "EXISTS(BTS.OutboundTransportLocation)", **more}


def test_dynamic_port_sends_where_the_message_says(office: Opened, tmp_path: Path) -> None:
    running = office(anywhere(allow=["a", f"file://{tmp_path}/b"]))

    by_scheme = running.publish(BTS__OutboundTransportLocation=f"FILE://{tmp_path}/a/%MessageID%")
    by_type = running.publish(
        BTS__OutboundTransportLocation=f"{tmp_path}/b/%MessageID%", BTS__OutboundTransportType="FILE"
    )

    eventually(lambda: written(tmp_path / "a"), {str(by_scheme.id): b"content"})
    eventually(lambda: written(tmp_path / "b"), {str(by_type.id): b"content"})


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        ({"Region": "NO"}, "no BTS.OutboundTransportLocation"),
        ({"Region": "NO", "BTS__OutboundTransportLocation": "gopher://x/y"}, "names no adapter"),
        (
            {"Region": "NO", "BTS__OutboundTransportLocation": "x", "BTS__OutboundTransportType": "pigeon"},
            "no adapter 'pigeon'",
        ),
    ],
)
def test_dynamic_port_suspends_what_says_no_destination(office: Opened, context: dict[str, Any], reason: str) -> None:
    running = office({"name": "Anywhere", "dynamic": True, "filter": "Region = 'NO'", "allow": ["out"]})

    running.publish(**context)

    eventually(running.suspended, [("send", "Anywhere")])
    assert reason in running.agent.suspended.messages()[0].reason


def test_dynamic_port_sends_over_http_with_the_options_for_it(office: Opened, shop: Partner) -> None:
    options = {"http": {"method": "PUT", "headers": {"X-Region": "%Region%"}}}
    running = office(anywhere(allow=[shop.address], options=options))

    by_scheme = running.publish("one", Region="NO", **{LOCATION: f"{shop.address}/a/%Region%"})
    by_type = running.publish("two", Region="SE", **{LOCATION: f"{shop.address}/b", TYPE: "HTTP"})

    running.settled()
    sent = {each.headers["X-Crossdock-Message-ID"]: each for each in shop.requests}
    one, two = sent[str(by_scheme.id)], sent[str(by_type.id)]
    assert (one.method, one.path, one.headers["X-Region"], one.body) == ("PUT", "/a/NO", "NO", b"one")
    assert (two.method, two.path, two.headers["X-Region"], two.body) == ("PUT", "/b", "SE", b"two")
    assert (len(shop.requests), running.suspended()) == (2, [])


def test_what_a_partner_answers_a_dynamic_port_is_published_under_the_name_of_the_port(
    office: Opened, shop: Partner, tmp_path: Path
) -> None:
    shop.answer = b'{"region": "NO", "total": 7}'
    running = office(
        anywhere(response={"pipeline": "json"}, allow=[shop.address]),
        {"name": "Answers", "adapter": "file", "address": "answers/%MessageID%", "filter": "SPName = 'Anywhere'"},
        {"name": "North", "adapter": "file", "address": "north/%MessageID%", "filter": "Region = 'NO'"},
        schemas=[{"type": "Total", "format": "json", "promote": {"Region": "$.region"}}],
    )

    running.publish("how much?", **{LOCATION: shop.address})

    eventually(lambda: list(written(tmp_path / "answers").values()), [shop.answer])
    eventually(lambda: list(written(tmp_path / "north").values()), [shop.answer])
    eventually(lambda: running.agent.statistics().ports, {"Anywhere": 1, "Answers": 1, "North": 1})
    assert [request.body for request in shop.requests] == [b"how much?"]


def test_dynamic_two_way_port_to_where_nobody_answers_suspends(office: Opened, tmp_path: Path) -> None:
    running = office(anywhere(response={"pipeline": "passthrough"}, retry={"count": 0}, allow=["out"]))

    running.publish("how much?", **{LOCATION: f"file://{tmp_path}/out/%MessageID%"})

    eventually(running.suspended, [("send", "Anywhere")])
    assert "the partner gives no answer" in running.agent.suspended.messages()[0].reason


def test_dynamic_port_writes_into_the_database_that_the_message_names(office: Opened, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute("CREATE TABLE orders (id integer)")
    allow = [f"sqlite:///{tmp_path}/{name}" for name in "ab"]
    running = office(anywhere(allow=allow, options={"sql": {"statement": "INSERT INTO orders VALUES (:id)"}}))

    for number, name in enumerate("ab"):
        address = f"sqlite:///{tmp_path}/{name}"
        running.publish(json.dumps({"id": number}), **{LOCATION: address, TYPE: "sql"})

    running.settled()
    assert running.suspended() == []
    for number, name in enumerate("ab"):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            assert database.execute("SELECT id FROM orders").fetchall() == [(number,)]


@pytest.mark.parametrize(
    ("kind", "address"), [("http", "http://[geheim"), ("sql", "geheim"), ("sql", "postgresql://u:geheim@h:p/d")]
)
def test_failure_at_an_address_that_is_none_is_reported_too(
    office: Opened, tmp_path: Path, kind: str, address: str
) -> None:
    running = office(
        anywhere(failed_messages="route", options={"sql": {"statement": "SELECT 1"}}, allow=["http://h", "sqlite:///a.db"]),
        {"name": "Errors", "adapter": "file", "address": "errors/%MessageID%",
         "filter": "ErrorReport.SendPortName = 'Anywhere'"},
    )  # fmt: skip

    running.publish("important", **{LOCATION: address, TYPE: kind})

    eventually(lambda: list(written(tmp_path / "errors").values()), [b"important"])
    assert running.suspended() == []
