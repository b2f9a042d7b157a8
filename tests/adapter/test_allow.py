"""What a message brings to a dynamic port is not trusted: it goes to places that are allowed, with credentials meant for them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from crossdock.adapter.file.write import open_folder
from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.durable import Folders
from crossdock.errors import ApplicationError
from crossdock.host.outcome import Complete, Outcome, Suspend
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.message.property import Value
from crossdock.send.port import SendPort
from partner import Partner, partner


@pytest.fixture
def shop() -> Iterator[Partner]:
    with partner() as made:
        yield made


def port(folder: Path, *allow: object, **more: Any) -> SendPort:
    declared = {"name": "Anywhere", "dynamic": True, "allow": list(allow), **more}
    application = {"application": "any", "properties": {"Region": "text"}, "send_ports": [declared]}
    deployment = deployment_of(ApplicationModel.model_validate(application), folder / "app" / "a.yaml", text_limit=256)
    return SendPort.from_definition(deployment.ports[0].definition, lambda: MessageId(uuid4()))


def sent(made: SendPort, address: str, kind: str = "", body: bytes = b"content", **properties: Value) -> Outcome:
    brought = {"BTS.OutboundTransportLocation": address, **({"BTS.OutboundTransportType": kind} if kind else {})}
    message = Message(MessageId(uuid4()), Context({**brought, **properties}), (Part("body", body),))
    return made.deliver(message, attempt=0, now=lambda: datetime.now(UTC))


def refused(outcome: Outcome) -> str:
    assert isinstance(outcome, Suspend)
    return outcome.reason


def test_dynamic_port_without_a_list_of_what_is_allowed_sends_nowhere(tmp_path: Path, shop: Partner) -> None:
    made = port(tmp_path)

    outcomes = [sent(made, f"{shop.address}/orders"), sent(made, f"file://{tmp_path}/out/a")]

    assert all("it has no `allow`, and without it a dynamic port sends nowhere" in refused(each) for each in outcomes)
    assert (shop.requests, list(tmp_path.iterdir())) == ([], [])


def test_message_cannot_have_the_environment_sent_as_user_or_password(
    tmp_path: Path, shop: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSDOCK_DATABASE", "postgresql://u:geheim@h/d")
    host = shop.address.removeprefix("http://")

    outcomes = [
        sent(port(tmp_path, shop.address), f"http://{user}@{host}/")
        for user in ("x:env:CROSSDOCK_DATABASE", "env%3ACROSSDOCK_DATABASE:x", "a:b", "a", "")
    ]

    assert all("no user" in refused(each) for each in outcomes)
    assert shop.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "http://{host}@{other}/orders/1",
        "http://{other}/orders/1",
        "http://{other}#@{host}/orders/1",
        "http://{other}/@{host}/orders/1",
        "http://{other}\\@{host}/orders/1",
        "http://{host}.evil.example/orders/1",
        "http://{host}%2eevil.example/orders/1",
        "http://{host}:80/orders/1",
        "http://127.0.0.1/orders/1",
        "https://{host}/orders/1",
        "http://{host}/",
        "http://{host}/ordersx",
        "http://{host}/orders%2f..%2f..%2fadmin",
        "http://{host}/orders/../admin",
        "http://{host}/orders/%2e%2e/admin",
        "http://{host}/orders/%252e%252e/admin",
        "http://{host}/orders/..%2fadmin",
        "http://{host}/orders/..;x/admin",
        "http://{host}/orders/..%5cadmin",
        "http://{host}/orders/..\\admin",
        "http://{host}/orders/.%Region%./admin",
        "http://{host}/%Region%",
        "http://{host}/%Path%",
        "http://{host}/orders/%Up%/admin",
        "http://%Host%/orders/1",
        "http://{host}\t/orders/1",
        "http://{host}/orders/1\nX: y",
        "http://{host}/orders/1 2",
        "http://{host}/orders/\x00",
        "http://ｅvil.example/orders/1",
        "http:///orders/1",
        "http://[::1/orders/1",
        "http:{host}/orders/1",
        " http://{host}/orders/1",
        "//{host}/orders/1",
    ],
)
def test_address_of_a_message_does_not_leave_what_is_allowed(tmp_path: Path, shop: Partner, address: str) -> None:
    with partner() as other:
        host, elsewhere = (each.address.removeprefix("http://") for each in (shop, other))
        made = port(tmp_path, f"{shop.address}/orders/")

        outcome = sent(
            made, address.format(host=host, other=elsewhere), "HTTP", Path="orders/1", Up="../..", Host=host, Empty=""
        )

        refused(outcome)
        assert (shop.requests, other.requests) == ([], [])


@pytest.mark.parametrize(
    "address", ["{0}/orders", "{0}/orders/", "{0}/orders/a/b?c=%Region%", "{0}/orders/%Region%", "HTTP{1}/orders/x"]
)
def test_address_of_a_message_may_be_anything_below_what_is_allowed(
    tmp_path: Path, shop: Partner, address: str
) -> None:
    made = port(tmp_path, "http://elsewhere.example", f"{shop.address}/orders")

    outcome = sent(made, address.format(shop.address, shop.address.removeprefix("http")), Region="N/O")

    assert isinstance(outcome, Complete)
    assert shop.requests[0].path.startswith("/orders")


def test_credentials_go_only_to_the_place_they_are_for(
    tmp_path: Path, shop: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "geheim")
    with partner() as other:
        made = port(tmp_path, {"address": shop.address, "options": {"token": "env:SHOP_TOKEN"}}, other.address)

        outcomes = [sent(made, f"{each.address}/a") for each in (shop, other)]

        assert all(isinstance(each, Complete) for each in outcomes)
        assert shop.requests[0].headers["Authorization"] == "Bearer geheim"
        assert "geheim" not in str(other.requests)


def test_redirect_to_another_server_is_not_followed(tmp_path: Path, shop: Partner) -> None:
    with partner() as other:
        shop.status, shop.headers = 307, {"Location": other.address}

        refused(sent(port(tmp_path, shop.address), shop.address))

        assert other.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "{0}/app/json.py",
        "{0}/outside/a",
        "{0}/out/../app/json.py",
        "{0}/outx/a",
        "{0}/out/link/json.py",
        "{0}/out/%Up%/json.py",
        "{0}/out/%Slash%",
        "{0}/out/%SourceFileName%/json.py",
        "{0}/out/.%Missing%./json.py",
        "{0}/out/%Missing%",
        "{0}/out/a\x00b",
        "{0}/out/a\nb",
        "out/a",
        "~/a",
    ],
)
@pytest.mark.parametrize("scheme", ["file://", "FILE://", ""])
def test_file_of_a_message_is_not_written_outside_the_folder(tmp_path: Path, scheme: str, address: str) -> None:
    for name in ("app", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "app")
    made = port(tmp_path, "../out")
    properties: dict[str, Any] = {"Up": "..", "Slash": "../app/json.py", "FILE.ReceivedFileName": "/in/.."}

    refused(sent(made, scheme + address.format(tmp_path), "FILE", **properties))

    assert [str(path) for path in tmp_path.rglob("*") if path.is_file()] == []


def test_link_within_the_folder_is_followed_and_so_is_one_that_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "out" / "real").mkdir(parents=True)
    (tmp_path / "out" / "link").symlink_to("real")
    (tmp_path / "other").symlink_to("out")
    made = port(tmp_path, "../out")

    outcomes = [sent(made, f"file://{tmp_path}/{name}") for name in ("out/link/a", "other/b", "other/new/c")]

    assert all(isinstance(each, Complete) for each in outcomes)
    assert [(tmp_path / "out" / name).read_bytes() for name in ("real/a", "b", "new/c")] == [b"content"] * 3


def test_link_put_in_the_way_after_the_look_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out" / "a").mkdir(parents=True)
    real = (tmp_path / "out" / "a").resolve()
    (tmp_path / "out" / "a").rmdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path)
    # What was looked at just before is a folder; now a link is there.
    monkeypatch.setattr("crossdock.adapter.file.write.real", lambda path: real if path.name == "a" else path)

    with pytest.raises(OSError, match="Not a directory"), open_folder(real, tmp_path / "out", Folders()):
        pass


def test_message_chooses_among_databases_and_says_nothing_else_of_them(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute("CREATE TABLE orders (id integer)")
    options = {"sql": {"statement": "INSERT INTO orders VALUES (:id)"}}
    made = port(tmp_path, f"sqlite:///{tmp_path}/a", f"sqlite:///{tmp_path}/b", options=options)

    outcomes = {
        place: sent(made, f"sqlite:///{tmp_path}/{place}", "sql", json.dumps({"id": 1}).encode())
        for place in ("a", "b", "c", "a?uri=true", "../a")
    }

    assert [place for place, outcome in outcomes.items() if isinstance(outcome, Complete)] == ["a", "b"]
    for name, rows in (("a", [(1,)]), ("b", [(1,)]), ("c", [])):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            assert database.execute("SELECT id FROM orders").fetchall() == rows


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://other.example/shop",
        "postgresql://db.example/other",
        "postgresql://db.example,other.example/shop",
        "postgresql://db.example/shop?host=other.example",
        "postgresql://db.example/shop?service=other",
        "postgresql://db.example/shop?passfile=/etc/passwd",
        "postgresql://x:env:CROSSDOCK_DATABASE@db.example/shop",
        "postgresql://x@db.example/shop",
        "postgresql://db.example:5433/shop",
        "postgresql:///shop",
        "host=other.example dbname=shop",
        "mysql://db.example/shop",
    ],
)
def test_message_names_no_other_database_no_user_and_no_option(tmp_path: Path, address: str) -> None:
    options = {"sql": {"statement": "SELECT 1"}}
    made = port(tmp_path, "postgresql://shop:env:NOT_SET@db.example/shop", options=options)

    reason = refused(sent(made, address, "sql"))

    assert "NOT_SET" not in reason
    assert "CROSSDOCK_DATABASE" not in reason


@pytest.mark.parametrize(
    ("allow", "options", "sentence"),
    [
        ("", {}, "send_ports"),
        ("http://", {}, "the address of an http port is a URL"),
        ("http://user:geheim@partner.example/", {}, "a prefix for http is a URL such as"),
        ("http://partner.example/%Region%", {}, "a prefix for http is a URL such as"),
        ("http://partner.example/?a=b", {}, "a prefix for http is a URL such as"),
        ("http://pärtner.example/", {}, "a prefix for http is a URL such as"),
        ("http://partner.example/a/../b", {}, "has a step '.' or '..'"),
        ("out/%MessageID%", {}, "has a macro"),
        (".", {}, "holds the application; a message could write its code"),
        ("/", {}, "holds the application; a message could write its code"),
        ("sqlite:///a.db", {}, "adapter 'sql' needs the option 'statement'"),
        ("nonsense://h/d", {"sql": {"statement": "SELECT 1"}}, "is no database that SQLAlchemy knows"),
        ({"address": "http://p.example", "options": {"tokn": "x"}}, {}, "has no option 'tokn'"),
        ("http://p.example", {"http": {"token": "env:T"}}, "option 'token' of adapter 'http' would go to every place"),
        ("http://p.example", {"http": {"headers": {"X-Key": "env:T"}}}, "'X-Key' of adapter 'http' would go to every"),
    ],
)
def test_malformed_list_of_what_is_allowed_is_refused_at_load(
    tmp_path: Path, allow: object, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((ApplicationError, ValueError)) as caught:
        port(tmp_path, allow, options=options)

    assert sentence in str(caught.value)
    assert "geheim" not in str(caught.value)
