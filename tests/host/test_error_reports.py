"""Failures that are routed: a report reaches whoever wants it, and one that fails itself comes to an end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from crossdock.administration.publish import publish_files
from crossdock.host.outcome import Complete, Retry, Suspend
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.pipeline.definition import PipelineDefinition
from crossdock.send.port import PortDefinition, SendPort
from express import unbalanced
from office import Office, eventually, written
from partner import Partner, partner

REPORTS = "EXISTS(ErrorReport.FailureCode)"


@pytest.fixture
def shop() -> Iterator[Partner]:
    """Refuses everything."""
    with partner() as refusing:
        refusing.status = 422
        yield refusing


@pytest.fixture
def balanced(database: str) -> Iterator[str]:
    """The database of a MessageBox whose books must balance at the end."""
    yield database
    assert unbalanced(database) == []


def port(shop: Partner, name: str, filter_: str) -> dict[str, Any]:
    """One that routes its failures."""
    return {
        "name": name, "adapter": "http", "address": f"{shop.address}/{name}", "filter": filter_,
        "failed_messages": "route",
    }  # fmt: skip


def asked(shop: Partner) -> list[str]:
    """Which ports sent something, in the order of their requests."""
    return [request.path.strip("/") for request in shop.requests]


def test_port_that_wants_its_own_reports_suspends_one_that_is_refused(
    balanced: str, tmp_path: Path, shop: Partner
) -> None:
    ports = [port(shop, "Shop", f"Region = 'NO' OR {REPORTS}")]
    with Office(balanced, tmp_path, {"properties": {"Region": "text"}, "send_ports": ports}).open() as office:
        office.publish("important", Region="NO")

        eventually(office.suspended, [("send", "Shop")])
        office.settled()

    assert asked(shop) == ["Shop", "Shop"]
    [row] = office.agent.suspended.messages()
    assert "422" in row.reason
    assert [request.body for request in shop.requests] == [b"important"] * 2


def test_two_ports_that_want_the_reports_of_each_other_suspend_what_both_refuse(
    balanced: str, tmp_path: Path, shop: Partner
) -> None:
    ports = [
        port(shop, "Ping", "Region = 'NO' OR ErrorReport.SendPortName = 'Pong'"),
        port(shop, "Pong", "ErrorReport.SendPortName = 'Ping'"),
    ]
    with Office(balanced, tmp_path, {"properties": {"Region": "text"}, "send_ports": ports}).open() as office:
        office.publish(Region="NO")

        eventually(office.suspended, [("send", "Pong")])
        office.settled()

    assert asked(shop) == ["Ping", "Pong"]


def test_report_of_a_location_that_cannot_be_sent_is_suspended_too(
    balanced: str, tmp_path: Path, shop: Partner
) -> None:
    location = {"adapter": "file", "address": "in/*.json", "pipeline": "json"}
    application = {
        "schemas": [{"type": "Order", "format": "json"}],
        "receive_ports": [{"name": "In", "locations": [location], "failed_messages": "route"}],
        "send_ports": [port(shop, "Errors", REPORTS)],
    }
    (tmp_path / "bad.json").write_bytes(b"no json")
    with Office(balanced, tmp_path, application).open() as office:
        list(publish_files(office.agent, [tmp_path / "bad.json"], location="In.file", properties={}))

        eventually(office.suspended, [("send", "Errors")])
        office.settled()

    assert [request.body for request in shop.requests] == [b"no json"]


def test_delivered_ones_of_a_batch_stay_delivered_if_no_report_on_another_can_be_made(
    agent: Agent, folder: Path
) -> None:
    agent.close()  # as far as the port can see, the MessageBox is away
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("CREATE TABLE orders (id text NOT NULL)")
        definition = PortDefinition(
            name="Shop",
            adapter="sql",
            address=f"sqlite:///{folder}/shop.db",
            options={"statement": "INSERT INTO orders VALUES (:Number)"},
            route_failures=True,
        )
        port = SendPort.from_definition(definition.model_dump(mode="json"), agent.message_id)
        contexts = [Context({"Number": "0"}), Context(), Context({"Number": "2"})]
        messages = [Message(MessageId(uuid4()), context, (Part("body", b""),)) for context in contexts]

        outcomes = port.deliver_batch([(message, 0) for message in messages], now=lambda: datetime.now(UTC))
        port.close()

        assert [type(outcome) for outcome in outcomes] == [Complete, Suspend, Complete]
        assert isinstance(outcomes[1], Suspend)
        assert "the statement is refused" in outcomes[1].reason
        assert shop.execute("SELECT id FROM orders").fetchall() == [("0",), ("2",)]


def test_partner_is_not_asked_while_its_answer_could_not_be_published(agent: Agent, shop: Partner) -> None:
    agent.close()
    shop.status = 200
    definition = PortDefinition(
        name="Shop", adapter="http", address=shop.address, response=PipelineDefinition(disassemble="passthrough")
    )
    port = SendPort.from_definition(definition.model_dump(mode="json"), agent.message_id)
    message = Message(MessageId(uuid4()), Context(), (Part("body", b"a question"),))

    outcome = port.deliver(message, attempt=0, now=lambda: datetime.now(UTC))
    port.close()

    assert isinstance(outcome, Retry)
    assert "The MessageBox cannot be reached" in outcome.reason
    assert shop.requests == []


LABELLED = {"properties": {"Region": "text"}, "hosts": [{"name": "Ward", "labels": ["patients"]}, {"name": "Desk"}]}


def labelled(office: Office, body: bytes = b"record") -> Message:
    """Publish a message that only some hosts may be given."""
    context = Context({"Region": "NO"}, labels=frozenset({"patients"}))
    message = Message(office.agent.message_id(), context, (Part("body", body),))
    office.agent.publish([Publication(office.agent.configuration.hosts()["Ward"], (message,))])
    return message


def test_report_on_a_labelled_message_goes_only_to_a_host_that_has_the_label(
    balanced: str, tmp_path: Path, shop: Partner
) -> None:
    ports = [
        {**port(shop, "Shop", "Region = 'NO'"), "host": "Ward"},
        {"name": "Near", "host": "Ward", "adapter": "file", "address": "near/%MessageID%", "filter": REPORTS},
        {"name": "Far", "host": "Desk", "adapter": "file", "address": "far/%MessageID%", "filter": REPORTS},
    ]
    with Office(balanced, tmp_path, {**LABELLED, "send_ports": ports}).open() as office:
        labelled(office)

        eventually(lambda: list(written(tmp_path / "near").values()), [b"record"])
        office.settled()

    assert (written(tmp_path / "far"), office.suspended()) == ({}, [])


def test_labelled_message_is_suspended_itself_where_nobody_may_be_given_the_report(
    balanced: str, tmp_path: Path, shop: Partner
) -> None:
    ports = [
        {**port(shop, "Shop", "Region = 'NO'"), "host": "Ward"},
        {"name": "Far", "host": "Desk", "adapter": "file", "address": "far/%MessageID%", "filter": REPORTS},
    ]
    with Office(balanced, tmp_path, {**LABELLED, "send_ports": ports}).open() as office:
        message = labelled(office)

        eventually(office.suspended, [("send", "Shop")])

    assert [row.id for row in office.agent.suspended.messages()] == [message.id]
    assert written(tmp_path / "far") == {}


def test_report_of_a_labelled_location_goes_only_to_a_host_that_has_the_label(
    balanced: str, tmp_path: Path, shop: Partner
) -> None:
    location = {"adapter": "file", "address": "in/*.json", "pipeline": "json", "host": "Ward", "labels": ["patients"]}
    application = {
        **LABELLED,
        "schemas": [{"type": "Order", "format": "json"}],
        "receive_ports": [{"name": "In", "locations": [location], "failed_messages": "route"}],
        "send_ports": [{**port(shop, "Far", REPORTS), "host": "Desk"}],
    }
    (tmp_path / "bad.json").write_bytes(b"no json")
    with Office(balanced, tmp_path, application).open() as office:
        [made] = publish_files(office.agent, [tmp_path / "bad.json"], location="In.file", properties={})

        assert (made.result, "lacks the label patients" in str(made.reason)) == ("unrouted", True)
    assert shop.requests == []
