"""Requests that end in two places, people that are named twice, and streams of those who have signed out."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from console_fixtures import box, console
from crossdock.api import safety, serve
from crossdock.api.app import API
from crossdock.api.options import AccessOptions
from crossdock.api.routes import live
from served import Served, served

__all__ = ["box", "console"]

ME = f"{API}/me"


def answered(url: str, request: str) -> str:
    """All that comes back until the console closes the connection."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection:
        connection.sendall(request.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def test_request_that_ends_in_two_places_is_refused_with_all_that_follows(database: str) -> None:
    """A proxy that goes by the length takes the second one for a body, and lets the name in it pass."""
    options = AccessOptions(proxies=("127.0.0.1",), user_header="X-Forwarded-User", roles={"*": "administrator"})
    with served(database, options) as made:
        host = urlsplit(made.url).netloc
        hidden = f"GET {ME} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-User: mallory\r\n\r\n"
        body = f"0\r\n\r\n{hidden}"
        head = (
            f"GET /health HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

        told = answered(made.url, head + body)

    assert told.startswith("HTTP/1.1 400 ")
    assert told.count("HTTP/1.1 ") == 1
    assert "mallory" not in told


def test_nobody_is_let_in_whom_a_proxy_names_besides_somebody_else(database: str) -> None:
    options = AccessOptions(proxies=("127.0.0.1",), user_header="X-Forwarded-User", roles={"*": "administrator"})
    with served(database, options) as made, made.client() as client:
        twice = client.get(ME, headers=[("x-forwarded-user", "root"), ("x-forwarded-user", "mallory")])
        empty = client.get(ME, headers=[("x-forwarded-user", ""), ("x-forwarded-user", "mallory")])

    assert (twice.status_code, empty.status_code) == (403, 403)


def test_whoever_is_signed_out_watches_no_longer(console: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.0)
    token = console.token("watcher", "viewer")
    with (
        console.client(token) as watcher,
        console.as_role("administrator") as client,
        watcher.stream("GET", f"{API}/live") as stream,
    ):
        lines = stream.iter_lines()
        first = next(lines)

        assert client.delete(f"{API}/tokens/watcher").status_code == 204
        rest = list(lines)

    assert first in ("event: sample", "event: away")  # nobody has looked at this MessageBox yet
    assert "".join(rest).count("event: ") <= 2


AMBIGUOUS = {
    "folded": "X-Odd: a\r\n b\r\n",
    "bare line end": "X-Odd: a\nX-Other: b\r\n",
    "two lengths": "Content-Length: 0\r\nContent-Length: 0\r\n",
}


@pytest.mark.parametrize("lines", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_head_that_others_read_in_another_way_is_refused(console: Served, lines: str) -> None:
    host = urlsplit(console.url).netloc

    assert answered(console.url, f"GET /health HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n").startswith("HTTP/1.1 400 ")


@pytest.mark.parametrize("sent", ["", "GET /health HTTP/1.1\r\nHo"])
def test_nobody_holds_a_connection_without_asking(database: str, monkeypatch: pytest.MonkeyPatch, sent: str) -> None:
    monkeypatch.setattr(serve, "LIMITS", replace(serve.LIMITS, head_seconds=0.3))
    with served(database) as made:
        assert answered(made.url, sent) == ""


def test_nobody_who_has_not_signed_in_sends_a_body_for_ever(console: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "SIGNING_IN_SECONDS", 0.3)
    host = urlsplit(console.url).netloc
    head = f"POST /session HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 9\r\n"
    form = "Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\r\nt"

    assert answered(console.url, head + form).startswith("HTTP/1.1 408 ")


@pytest.mark.parametrize("name", ["token nightly", "ann\u202e", "ann\u00a0"])
def test_nobody_is_named_so_that_records_name_somebody_else(database: str, name: str) -> None:
    options = AccessOptions(proxies=("127.0.0.1",), user_header="X-Forwarded-User", roles={"*": "viewer"})
    with served(database, options) as made, made.client() as client:
        assert client.get(ME, headers={b"x-forwarded-user": name.encode()}).status_code == 403


def test_nobody_fills_the_console_with_connections_that_ask_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "LIMITS", replace(serve.LIMITS, connections=20, head_seconds=60))
    with served(database) as made, ExitStack() as held:
        where = urlsplit(made.url)
        for _ in range(60):
            held.enter_context(socket.create_connection((where.hostname, where.port), timeout=30))
        with made.client() as client:
            statuses = [client.get("/health", headers={"connection": "close"}).status_code for _ in range(5)]

    assert statuses == [200] * 5
