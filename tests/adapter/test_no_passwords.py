"""Whatever goes wrong with an address or an option, what is said about it does not hold the password."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from crossdock.adapter.registry import printable_address
from crossdock.adapter.secret import without_secrets
from crossdock.adapter.sql.send import SqlSendAdapter
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import CrossdockError
from crossdock.host.outcome import Outcome, Retry, Suspend
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.receive.intake import Intake
from crossdock.receive.location import ReceiveLocation
from crossdock.send.port import SendPort

OWN = """
from crossdock.errors import TransientError

class Talker:
    def __init__(self, address, how="", **options):
        self.given = f"{address} with {options}"
        if how == "making":
            raise ValueError(f"no good: {self.given}")

    def fail(self, *_, **__):
        raise {"transient": TransientError}.get(self.how, ValueError)(f"cannot use {self.given}")

    how = ""
    send = list = read = acknowledge = fail

    def name(self, identity):
        return "it"

    def close(self):
        pass

class Transient(Talker):
    how = "transient"
"""
ADDRESS = "talk://me:geheim@host/place?api_key=geheim&n=1"


def deployed(folder: Path, text: str) -> Deployment:
    (folder / "own.py").write_text(OWN)
    file = folder / "app.yaml"
    file.write_text("application: talk\n" + text)
    return deployment_of(load_application(file), file, text_limit=256)


def port(name: str = "Talker", how: str = "") -> str:
    options = f"how: '{how}', token: geheim, nested: {{password: [geheim]}}, other: env:TALK_SECRET"
    return f"send_ports: [{{name: Out, adapter: 'own:{name}', address: '{ADDRESS}', options: {{{options}}}}}]"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALK_SECRET", "geheim")


@pytest.mark.parametrize(
    "text",
    [
        "send_ports: [{name: Out, address: 'http://u:geheim@h/'}]",
        "send_ports: [{name: Out, adapter: file, address: {http: geheim}}]",
        "send_ports: [{name: Out, adapter: http, address: 'http://u:geheim@h/', options: geheim}]",
        "send_ports: [{name: Out, adapter: http, address: 'http://u:geheim@h/', options: {tokn: geheim}}]",
        "send_ports: [{name: Out, adapter: http, address: 'http://u:geheim@h/', options: {token: [geheim]}}]",
        "send_ports: [{name: Out, adapter: http, address: 'http://u:geheim@[h/'}]",
        "send_ports: [{name: Out, adapter: sql, address: 'postgresql://u:geheim@h:x/d', options: {statement: a}}]",
        "send_ports: [{name: Out, adapter: sql, address: 'nonsense://u:geheim@h/d', options: {statement: a}}]",
        "send_ports: [{name: Out, adapter: file, address: out, allow: ['http://u:geheim@h/']}]",
        "send_ports: [{name: Out, dynamic: true, allow: ['http://u:geheim@h/']}]",
        "send_ports: [{name: Out, dynamic: true, allow: geheim}]",
        "send_ports: [{name: Out, dynamic: true, allow: [[geheim]]}]",
        "receive_ports: [{name: In, locations: [{adapter: http, address: 'http://u:geheim@h/', pipeline: json}]}]",
        "receive_ports: [{name: In, locations: {address: geheim}}]",
        "receive_ports: [{name: In, locations: [geheim]}]",
        port(how="making"),
    ],
)
def test_application_is_refused_without_its_passwords(tmp_path: Path, text: str) -> None:
    with pytest.raises(CrossdockError) as caught:
        deployed(tmp_path, text)

    assert "geheim" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


@pytest.mark.parametrize(("name", "kind"), [("Talker", Suspend), ("Transient", Retry)])
def test_reason_why_a_delivery_failed_is_told_without_passwords(
    tmp_path: Path, log: pytest.LogCaptureFixture, name: str, kind: type[Outcome]
) -> None:
    [stored] = deployed(tmp_path, port(name)).ports
    made = SendPort.from_definition({**stored.definition, "route_failures": True}, lambda: MessageId(uuid4()))

    outcome = made.deliver(
        Message(MessageId(uuid4()), Context(), (Part("body", b""),)), attempt=0, now=lambda: datetime.now(UTC)
    )

    assert isinstance(outcome, kind)
    assert "cannot use talk://me:***@host/place" in str(outcome)
    assert "geheim" not in str(outcome) + log.text


def test_reason_why_a_location_waits_is_told_without_passwords(
    database: str, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    location = f"{{adapter: 'own:Talker', address: '{ADDRESS}', pipeline: json, options: {{token: geheim}}}}"
    [stored] = deployed(
        tmp_path, f"schemas: [{{type: A, format: json}}]\nreceive_ports: [{{name: In, locations: [{location}]}}]"
    ).locations
    made = ReceiveLocation.from_definition(1, 1, stored.definition)

    Intake(Agent(database).ledger).round({1: made}, {})

    assert "'In.Talker' waits: its adapter failed: ValueError: cannot use talk://me:***@host/place" in log.text
    assert "geheim" not in log.text + made.without_secrets(ADDRESS) + printable_address("own:Talker", ADDRESS)


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("http://u:ge%20heim@h/", {}),
        ("http://ge%20heim@h/", {}),
        ("http://h/?sig=ge%20heim", {}),
        ("sql://u:env:TALK@h/", {}),
        ("", {"password": "ge heim"}),
        ("", {"basic": {"me": "ge heim"}, "api_keys": ["other"]}),
        ("", {"headers": {"X-Any": "env:TALK"}}),
    ],
)
def test_secret_is_hidden_however_it_is_spelled(
    monkeypatch: pytest.MonkeyPatch, address: str, options: Mapping[str, Any]
) -> None:
    monkeypatch.setenv("TALK", "ge heim")

    assert without_secrets("a ge heim b ge%20heim c ge+heim d", address, options) == "a *** b *** c *** d"


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("http://me:ge%2Fheim@h/", {}),
        ("http://me:env:TALK@h/", {}),
        ("", {"user": "me", "password": "ge/heim"}),
        ("", {"user": "env:TALK_USER", "password": "env:TALK"}),
        ("", {"basic": {"me": "env:TALK"}, "other": {"user": ["me"]}}),
    ],
)
def test_user_with_password_is_hidden_in_base64_too(
    monkeypatch: pytest.MonkeyPatch, address: str, options: Mapping[str, Any]
) -> None:
    monkeypatch.setenv("TALK", "ge/heim")
    monkeypatch.setenv("TALK_USER", "me")

    assert without_secrets("Basic bWU6Z2UvaGVpbQ==, bWU6Z2UvaGVpbQ", address, options) == "Basic ***, ***"


def test_password_of_a_database_is_hidden_where_the_driver_tells_it() -> None:
    address = "postgresql://u:env:TALK_SECRET@127.0.0.1:1/d?sslmode=env:TALK_SECRET"
    message = Message(MessageId(uuid4()), Context(), (Part("body", b""),))

    with closing(SqlSendAdapter(address, statement="SELECT 1")) as adapter:
        [outcome] = adapter.send_batch([message])

    assert "invalid sslmode value" in str(outcome)
    assert "geheim" not in str(outcome)
