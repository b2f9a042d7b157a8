"""Messages to web servers: what the request holds, and what each answer means."""

from __future__ import annotations

import gzip
import socket
import ssl
import subprocess
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from crossdock.adapter.contract import Reply
from crossdock.adapter.registry import printable_address, send_adapter
from crossdock.errors import ApplicationError, TerminalError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.message.property import Value
from partner import Partner, partner, raw_partner

ID = MessageId(UUID(int=7))


@pytest.fixture
def server() -> Iterator[Partner]:
    with partner() as made:
        yield made


def a_message(body: bytes = b"hello", **properties: Value) -> Message:
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return Message(ID, Context(written=named), (Part("body", body),))


def send(address: str, message: Message | None = None, **options: Any) -> Reply:
    adapter = send_adapter("http", address, options)
    try:
        reply = adapter.send(message or a_message(), attempt=0)
    finally:
        adapter.close()
    assert reply is not None
    return reply


def test_request_holds_the_body_and_the_id_of_the_message(server: Partner) -> None:
    send(f"{server.address}/orders")

    [request] = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/orders", b"hello")
    assert request.headers["X-Crossdock-Message-ID"] == request.headers["Idempotency-Key"] == str(ID)
    assert request.headers["Content-Type"] == "application/octet-stream"
    assert request.headers["Content-Length"] == "5"


def test_content_type_is_that_of_the_option_unless_the_message_has_one(server: Partner) -> None:
    send(server.address, content_type="application/json")
    send(server.address, a_message(HTTP__ContentType="text/xml"), content_type="application/json")

    assert [request.headers["Content-Type"] for request in server.requests] == ["application/json", "text/xml"]


def test_macros_are_replaced_in_address_and_headers(server: Partner) -> None:
    message = a_message(OrderId="a/b ü?", BTS__MessageType="Order", Amount=12)
    headers = {"X-Type": "%BTS.MessageType% or %MessageType%", "X-None": "<%Missing%>", "X-City": "%City%"}

    send(
        f"{server.address}/K%C3%A4x%20/%OrderId%/%MessageID%?n=%Amount%&c=%Missing%",
        Message(message.id, message.context.promote("City", "Tromsø "), message.parts),
        headers=headers,
    )

    [request] = server.requests
    assert request.path == f"/K%C3%A4x%20/a%2Fb%20%C3%BC%3F/{ID}?n=12&c="
    assert [request.headers[name] for name in headers] == ["Order or Order", "<>", "Tromsø".encode().decode("latin-1")]


@pytest.mark.parametrize("method", ["put", "PURGE"])
def test_every_method_can_be_used(server: Partner, method: str) -> None:
    send(server.address, method=method)

    assert [(request.method, request.body) for request in server.requests] == [(method.upper(), b"hello")]


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD"])
def test_method_that_has_no_body_is_sent_without(server: Partner, method: str) -> None:
    send(server.address, method=method)

    assert [(request.method, request.body) for request in server.requests] == [(method, b"")]


def test_large_body_is_streamed(server: Partner) -> None:
    body = bytes(range(256)) * 20_000
    message = Message(ID, Context(), (StreamedPart("body", partial(BytesIO, body)),))

    send(server.address, message)

    [request] = server.requests
    assert request.headers["Transfer-Encoding"] == "chunked"
    assert request.body == body


def test_answer_is_the_reply(server: Partner) -> None:
    server.status, server.answer, server.headers = 201, b"\xff made", {"Content-Type": "text/plain"}

    assert send(server.address) == Reply(b"\xff made", {"HTTP.StatusCode": 201, "HTTP.ContentType": "text/plain"})


@pytest.mark.parametrize("status", [301, 304, 307, 400, 401, 403, 404, 409, 413, 422, 499])
def test_status_that_stays_suspends(server: Partner, status: int) -> None:
    server.status, server.answer, server.headers = status, b"", {"Location": "/elsewhere"}

    with pytest.raises(TerminalError, match=f"POST {server.address}/a answered {status}"):
        send(f"{server.address}/a")

    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 599])
def test_status_that_may_pass_is_worth_another_try(server: Partner, status: int) -> None:
    server.status = status

    with pytest.raises(TransientError, match=f"answered {status}"):
        send(server.address)


def test_message_tells_the_beginning_of_the_answer_in_one_line(server: Partner) -> None:
    server.status, server.answer = 400, b"no\x00\x1b[31m\r\n such \xff order\n" + b"x" * 100_000

    with pytest.raises(TerminalError) as raised:
        send(f"{server.address}/orders?key=secret")

    told = str(raised.value)
    assert told.startswith(f"POST {server.address}/orders answered 400 Bad Request: no[31m such � order xxx")
    assert told.isprintable()
    assert len(told) < 300


def test_answer_that_is_too_large_suspends(server: Partner) -> None:
    server.answer = bytes(1001)

    assert len(send(server.address, maximum_response=1001).body) == 1001
    with pytest.raises(TerminalError, match="more than 1,000 bytes; raise maximum_response"):
        send(server.address, maximum_response=1000)


def compressed_thrice() -> bytes:
    """Little that would be 17 MB."""
    return gzip.compress(gzip.compress(gzip.compress(bytes(17 * 1024 * 1024))))


@pytest.mark.parametrize("encoding", ["gzip, gzip, gzip", "GZIP", "br", "identity, gzip"])
def test_answer_in_an_encoding_that_was_not_asked_for_is_not_decoded(server: Partner, encoding: str) -> None:
    server.answer, server.headers = compressed_thrice(), {"Content-Encoding": encoding}

    with pytest.raises(TerminalError, match="has taken the message, and its answer has a Content-Encoding"):
        send(server.address)
    for status, kind in ((400, TerminalError), (503, TransientError)):
        server.status = status
        with pytest.raises(kind, match=f"answered {status} [A-Z][A-Za-z ]+$"):
            send(server.address)


@pytest.mark.parametrize(("method", "encoding"), [("POST", "Identity"), ("HEAD", "gzip")])
def test_answer_in_which_nothing_is_encoded_is_the_reply(server: Partner, method: str, encoding: str) -> None:
    server.answer, server.headers = b"made", {"Content-Encoding": encoding}

    assert send(server.address, method=method).body == (b"" if method == "HEAD" else b"made")


@pytest.mark.parametrize("value", ["a\r\nX-Admin: yes", "a\nb", "a\rb", "a\x00b", "a\x7fb"])
def test_property_cannot_add_a_header(server: Partner, value: str) -> None:
    with pytest.raises(TerminalError, match="the header 'X-Order' would have a line break"):
        send(server.address, a_message(OrderId=value), headers={"X-Order": "%OrderId%"})
    with pytest.raises(TerminalError, match="the header 'Content-Type' would have a line break"):
        send(server.address, a_message(HTTP__ContentType=value))

    assert server.requests == []


def test_address_that_gets_too_long_suspends(server: Partner) -> None:
    with pytest.raises(TerminalError, match="is no address: URL too long") as raised:
        send(f"{server.address}/%OrderId%", a_message(OrderId="x" * 100_000))

    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    "value",
    [
        "..",
        ".",
        "..\x00",
        ".. ",
        " ..",
        "..\t",
        ".\n.",
        "..\x85",
        "．．",
        "‥",
        "a／..",
        "..\u200b",
        "..％２ｆ",
        "%c0%ae%c0%ae",
        "..%00",
        "..%20",
        "..%09",
        ".%0a.",
        "%EF%BC%8E%EF%BC%8E",
        "..%C2%A0",
        "a\nb",
        "\ufffd",
    ],
)
def test_property_cannot_lead_to_another_place(server: Partner, value: str) -> None:
    with pytest.raises(TerminalError, match=r"would be a step '.' or '..' of the path"):
        send(f"{server.address}/orders/%OrderId%/lines", a_message(OrderId=value))

    assert server.requests == []


@pytest.mark.parametrize("value", ["...", "..a", "a..", ". a .", "Käse & Brot", "Ka\u0308se", "½", "注文", "a.b/c"])
def test_property_that_leads_nowhere_else_is_a_step_of_the_path(server: Partner, value: str) -> None:
    send(f"{server.address}/orders/%OrderId%", a_message(OrderId=value))

    assert server.requests[0].path == f"/orders/{quote(value, safe='')}"


def test_macro_that_begins_like_an_escaped_letter_is_a_macro(server: Partner) -> None:
    send(f"{server.address}/%Account%/%DeliveryDate%", a_message(Account="a", DeliveryDate="b"))

    assert server.requests[0].path == "/a/b"


@pytest.mark.parametrize("step", ["..%00", "..%20", "..%09", ".%0a.", "%c0%ae%c0%ae", "%EF%BC%8E%EF%BC%8E", "%ff"])
def test_address_with_a_step_that_leads_elsewhere_is_refused(step: str) -> None:
    with pytest.raises(ApplicationError, match=r"has a step '.' or '..', a control character or bytes that"):
        send(f"http://localhost/orders/{step}/admin")


def test_credentials_are_read_from_the_environment_when_they_are_used(
    server: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "geh:im")
    monkeypatch.setenv("SHOP_TOKEN", "t0ken")

    send(server.address, user="me", password="env:SHOP_PASSWORD", headers={"X-Key": "env:SHOP_TOKEN"})
    send(server.address, token="env:SHOP_TOKEN")
    send(server.address.replace("//", "//me:geh%3Aim@"))

    sent = [request.headers["Authorization"] for request in server.requests]
    assert sent == ["Basic bWU6Z2VoOmlt", "Bearer t0ken", "Basic bWU6Z2VoOmlt"]
    assert server.requests[0].headers["X-Key"] == "t0ken"


def test_property_is_never_taken_for_the_name_of_a_secret(server: Partner) -> None:
    send(server.address, a_message(OrderId="env:HOME"), headers={"X-Order": "%OrderId%"})

    assert server.requests[0].headers["X-Order"] == "env:HOME"


def test_missing_variable_is_worth_another_try(server: Partner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_TOKEN", raising=False)

    with pytest.raises(TransientError, match="the environment variable 'SHOP_TOKEN' is not set"):
        send(server.address, token="env:SHOP_TOKEN")


@pytest.mark.parametrize(
    "options", [{"token": "geh@im"}, {"user": "me", "password": "geh@im"}, {"headers": {"X-Key": "env:SHOP_KEY"}}]
)
def test_secret_that_the_partner_repeats_is_hidden(
    server: Partner, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "geh@im")
    server.status, server.answer = 401, b"geh@im is wrong, and so is bWU6Z2VoQGlt"

    with pytest.raises(TerminalError, match=r"answered 401 Unauthorized: \*\*\* is wrong") as raised:
        send(server.address, **options)

    assert "geh@im" not in "".join(traceback.format_exception(raised.value))
    assert "bWU6Z2VoQGlt" not in str(raised.value) or "user" not in options


@pytest.mark.parametrize(
    "told",
    [
        b"Basic bWU6Z2V\x00oL+KCrCJ\x1bpbQ==",
        b"Basic bWU6Z2VoL+KC\xe2\x80\x8brCJpbQ",
        rb"Basic bWU6Z2VoL\u002bKCrCJpbQ\u003D\u003d",
        b"Basic bWU6Z2VoL%2bKCrCJpbQ%3D%3D",
        b'ge\x00h/\xe2\x82\xac"im',
        rb"geh\/\u20AC\"im",
        rb"geh\u002f\u20ac\u0022im",
        b"geh&#x2F;&#8364;&quot;im",
        b"geh&#047;&euro;&#X22;im",
        b"geh%2f%e2%82%AC%22im",
    ],
)
def test_secret_that_the_partner_writes_in_another_way_is_hidden(server: Partner, told: bytes) -> None:
    server.status, server.answer = 401, b"no: <" + told + b">"

    with pytest.raises(TerminalError, match=r"answered 401 Unauthorized: no: <(Basic )?\*\*\*>$"):
        send(server.address, user="me", password='geh/€"im')


def test_connections_are_kept_until_it_is_closed(server: Partner) -> None:
    adapter = send_adapter("http", server.address, {})

    for _ in range(3):
        adapter.send(a_message(), attempt=0)
    assert server.connections == 1

    adapter.close()
    adapter.send(a_message(), attempt=0)
    adapter.close()
    assert server.connections == 2


def test_message_on_its_way_is_finished_though_it_is_closed() -> None:
    arrived, closed = threading.Event(), threading.Event()

    def answer_late(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        arrived.set()
        closed.wait(30)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with raw_partner(answer_late) as address, ThreadPoolExecutor(1) as threads:
        adapter = send_adapter("http", address, {})
        sending = threads.submit(adapter.send, a_message(), attempt=0)
        arrived.wait(30)
        adapter.close()
        closed.set()

        assert sending.result(30) == Reply(b"ok", {"HTTP.StatusCode": 200})


def test_cookies_are_not_carried_from_one_message_to_the_next(server: Partner) -> None:
    server.headers = {"Set-Cookie": "session=1"}
    adapter = send_adapter("http", server.address, {})

    adapter.send(a_message(), attempt=0)
    adapter.send(a_message(), attempt=0)
    adapter.close()

    assert "Cookie" not in server.requests[1].headers


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("certificate")
    key, made = str(folder / "key.pem"), str(folder / "certificate.pem")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    new = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", made]
    subprocess.run(["openssl", "req", "-x509", *new, *names], check=True, capture_output=True)
    return made, key


def test_certificate_of_the_partner_is_checked(certificate: tuple[str, str]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)

    with partner(context) as secure:
        with pytest.raises(TransientError, match="certificate verify failed"):
            send(secure.address)
        send(secure.address, ca=certificate[0])
        send(secure.address, verify=False)

    assert len(secure.requests) == 2


def test_own_certificate_is_shown_to_the_partner(certificate: tuple[str, str]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate[0])
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED

    with partner(context) as secure:
        with pytest.raises(TransientError):
            send(secure.address, ca=certificate[0])
        send(secure.address, ca=certificate[0], certificate=certificate[0], certificate_key=certificate[1])

    assert len(secure.requests) == 1


def test_certificate_that_cannot_be_read_is_worth_another_try(folder: Path, certificate: tuple[str, str]) -> None:
    with pytest.raises(TransientError, match="a certificate cannot be read"):
        send("https://localhost:1", ca=str(folder / "missing.pem"))

    locked = str(folder / "locked.pem")
    lock = ["openssl", "rsa", "-aes256", "-passout", "pass:geheim", "-in", certificate[1], "-out", locked]
    subprocess.run(lock, check=True, capture_output=True)
    with pytest.raises(TransientError, match="a certificate cannot be read"):
        send("https://localhost:1", certificate=certificate[0], certificate_key=locked)


@pytest.mark.parametrize(
    ("address", "options", "problem"),
    [
        ("orders", {}, "the address of an http port is a URL such as https://"),
        ("ftp://me:geheim@h/a", {}, "the address of an http port is a URL"),
        ("http://me:geheim@h:port/a", {}, "the address of an http port is a URL"),
        ("http://me:geheim@a..b/a", {}, "the address of an http port is a URL"),
        ("http://me:geheim@%Host%/a", {}, "has a macro in its host; only path and query may have one"),
        ("http://h/a/../b", {}, "has a step '.' or '..'"),
        ("http://h", {"method": "CONNECT"}, "'CONNECT' is no method that sends a message"),
        ("http://h", {"method": "GET /\r\n"}, "is no method"),
        ("http://h", {"headers": {"X Y": "a"}}, "'X Y' is no name of a header"),
        ("http://h", {"headers": {"X-Y": "a\nb"}}, "the header 'X-Y' has a line break"),
        ("http://h", {"headers": {"content-Type": "a"}}, "is not set by hand; use the option content_type"),
        ("http://h", {"headers": {"Content-Length": "1"}}, "the header 'Content-Length' is not set by hand"),
        ("http://h", {"headers": {"X-Y": 1}}, "option 'headers' of adapter 'http': input should be a valid string"),
        ("http://h", {"user": "me", "token": "geheim"}, "takes a user or a token, not both"),
        ("http://h", {"password": "geheim"}, "has a password without a user"),
        ("http://h", {"verify": False, "ca": "a.pem"}, "has a ca that nothing is checked against"),
        ("http://h", {"certificate_key": "a.pem"}, "has a certificate_key without a certificate"),
        ("http://h", {"timeout": 0}, "option 'timeout' of adapter 'http': input should be greater than 0"),
        ("http://h", {"metod": "PUT"}, "adapter 'http' has no option 'metod'; did you mean 'method'?"),
    ],
)
def test_wrong_declaration_is_refused_in_one_sentence(address: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ApplicationError) as raised:
        send_adapter("http", address, options)

    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "geheim" not in str(raised.value)


def test_address_is_shown_without_its_password_and_query() -> None:
    address = "https://me:secret@shop.example.org:8443/orders/%OrderId%?key=secret#there"

    assert printable_address("http", address) == "https://shop.example.org:8443/orders/%OrderId%"
