"""Who is admitted to an http location: addresses, options, credentials, rates and sizes."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from crossdock.adapter.http.address import parse_address
from crossdock.adapter.http.app import Request
from crossdock.adapter.http.guard import Answer, Guard, Room
from crossdock.adapter.http.transport import HttpReceiveOptions
from crossdock.errors import ApplicationError, RefusedError
from http_client import DEADLINE, Client, Gate, a_route, ask, echo, head, post, serving, statuses


def basic(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("http://0.0.0.0:8080/orders", ("http", "0.0.0.0", 8080, "/orders")),  # noqa: S104
        ("https://[::]:8443/in", ("https", "::", 8443, "/in")),
        ("https://[0:0::1]:8443/in/", ("https", "::1", 8443, "/in/")),
        (":8080/orders", ("http", "127.0.0.1", 8080, "/orders")),
        ("http://my-host.example:1", ("http", "my-host.example", 1, "/")),
        ("http://localhost:80/a%20b/%C3%B8", ("http", "localhost", 80, "/a b/ø")),
    ],
)
def test_an_address_says_where_to_listen_and_for_what(address: str, parsed: tuple[str, str, int, str]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize(
    "address",
    [
        "",
        "orders",
        "8080/orders",
        "http://localhost/orders",
        "http://localhost:/orders",
        "http://localhost:65536/orders",
        "http://localhost:80/orders?a=1",
        "http://localhost:80/orders#a",
        "http://localhost:80/a b",
        "http://localhost:80/orders\n",
        "http://localhost:80/%FF",
        "http://localhost:٨٠/orders",
        "http://[12345::]:80/",
        "http://::1:80/",
        "http://:80/orders",
        "ftp://localhost:80/orders",
        "http://a..b:x/",
    ],
)
def test_any_other_address_is_refused_in_one_sentence(address: str) -> None:
    with pytest.raises(ApplicationError, match="is no address for http: write http://HOST:PORT/PATH"):
        parse_address(address)


def test_a_refused_address_does_not_show_its_password() -> None:
    with pytest.raises(ApplicationError) as raised:
        parse_address("http://ann:se@cret@localhost:80/orders?key=hidden")

    assert "cret" not in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_options_are_taken_as_an_application_declares_them() -> None:
    options = HttpReceiveOptions.model_validate({"methods": ["PUT", "POST"], "api_keys": ["k"], "rate_limit": 5})

    assert (options.methods, options.api_keys, options.rate_limit) == (("PUT", "POST"), ("k",), 5)


@pytest.mark.parametrize(
    "options",
    [
        {"method": ["PUT"]},
        {"methods": []},
        {"methods": ["put"]},
        {"methods": "PUT"},
        {"maximum_size": "10"},
        {"api_keys": [""]},
        {"api_keys": [1]},
        {"basic": {"ann": ""}},
        {"rate_limit": 0},
        {"rate_limit": float("inf")},
        {"read_timeout": 0},
        {"concurrency": 0},
        {"key": "key.pem"},
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HttpReceiveOptions.model_validate(options)


def test_options_do_not_show_their_secrets() -> None:
    shown = repr(HttpReceiveOptions(api_keys=("hidden",), basic={"ann": "hidden"}))

    assert "hidden" not in shown


def test_unknown_path_and_wrong_method_are_told() -> None:
    with serving(a_route(options=HttpReceiveOptions(methods=("POST", "PUT")))) as server:
        unknown = ask(server, post(path="/other"))
        wrong = ask(server, head(method="DELETE"))

    assert (unknown.status, unknown.error) == (404, "nothing listens on this path")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST, PUT")
    assert wrong.headers["content-type"] == "application/json"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "GET", "TRACE"])
def test_no_method_is_special(method: str) -> None:
    with serving() as server:
        assert httpx.request(method, f"http://127.0.0.1:{server.port}/orders", trust_env=False).status_code == 405


def test_a_path_is_matched_exactly_once_decoded() -> None:
    with serving(a_route("/a b/ø")) as server:
        found = statuses(server, [post(path=path) for path in ("/a%20b/%C3%B8", "/%61%20b/%c3%b8?x=1")])
        others = statuses(
            server, [post(path=path) for path in ("/a%20b/%C3%B8/", "/a+b/%C3%B8", "//a%20b/%C3%B8", "/")]
        )

    assert found == [200, 200]
    assert others == [404, 404, 404, 404]


def test_a_request_needs_one_of_the_api_keys() -> None:
    with serving(a_route(options=HttpReceiveOptions(api_keys=("first", "sécond")))) as server:
        right = statuses(server, [post(b"", "/orders", "X-API-Key: first")])
        right += [
            httpx.post(
                f"http://127.0.0.1:{server.port}/orders", headers={b"X-API-Key": "sécond".encode()}, trust_env=False
            ).status_code
        ]
        wrong = statuses(server, [post(), post(b"", "/orders", "X-API-Key:"), post(b"", "/orders", "X-API-Key: firs")])
        refused = ask(server, post())

    assert right == [200, 200]
    assert wrong == [401, 401, 401]
    assert "www-authenticate" not in refused.headers


def test_a_request_needs_a_user_and_the_password_of_that_user() -> None:
    users: list[str | None] = []

    async def handler(request: Request) -> Answer:
        users.append(request.user)
        return Answer(204)

    with serving(a_route("/orders", handler, HttpReceiveOptions(basic={"ann": "a:1", "bjørn": "b"}))) as server:
        right = statuses(server, [post(b"", "/orders", basic("ann", "a:1")), post(b"", "/orders", basic("bjørn", "b"))])
        wrong = [
            basic("ann", "b"),
            basic("", ""),
            basic("eve", "a:1"),
            "Authorization: Basic ?",
            "Authorization: Bearer x",
        ]
        refused = [ask(server, post(b"", "/orders", line)) for line in wrong]

    assert (right, users) == ([204, 204], ["ann", "bjørn"])
    assert [reply.status for reply in refused] == [401] * 5
    assert refused[0].headers["www-authenticate"].startswith("Basic realm=")


def test_either_credential_suffices_where_both_are_declared() -> None:
    with serving(a_route(options=HttpReceiveOptions(api_keys=("k",), basic={"ann": "a"}))) as server:
        lines = ["X-API-Key: k", basic("ann", "a"), "X-API-Key: a"]
        assert statuses(server, [post(b"", "/orders", line) for line in lines]) == [200, 200, 401]


def test_credentials_that_are_not_in_the_environment_admit_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(a_route(options=HttpReceiveOptions(api_keys=("env:ORDERS_KEY",)))) as server:
        unset = ask(server, post(b"", "/orders", "X-API-Key: env:ORDERS_KEY"))
        monkeypatch.setenv("ORDERS_KEY", "k")
        now_set = ask(server, post(b"", "/orders", "X-API-Key: k"))

    assert (unset.status, now_set.status) == (503, 200)
    assert "ORDERS_KEY" not in unset.error
    assert "'ORDERS_KEY' is not set" in caplog.text


def test_nothing_of_the_body_is_asked_for_before_authentication() -> None:
    with serving(a_route(options=HttpReceiveOptions(api_keys=("k",)))) as server:
        reply = ask(server, head("/orders", "Content-Length: 1000", "Expect: 100-continue"))

    assert (reply.status, reply.headers["connection"]) == (401, "close")


def test_a_rate_is_limited_with_a_burst_of_one_second() -> None:
    now = 100.0
    guard = Guard(HttpReceiveOptions(rate_limit=2), clock=lambda: now)

    def admitted() -> bool:
        try:
            with guard.admitted("POST", {}):
                return True
        except RefusedError:
            return False

    assert [admitted() for _ in range(3)] == [True, True, False]
    now += 0.5
    assert [admitted() for _ in range(2)] == [True, False]
    now += 60
    assert [admitted() for _ in range(3)] == [True, True, False]


def test_a_request_over_the_rate_is_told_when_to_come_again() -> None:
    with serving(a_route(options=HttpReceiveOptions(rate_limit=0.01))) as server:
        first, second = ask(server, post()), ask(server, post())

    assert (first.status, second.status) == (200, 429)
    assert 1 <= int(second.headers["retry-after"]) <= 100


def test_wrong_credentials_over_the_rate_are_not_looked_at_and_other_clients_are_admitted() -> None:
    wrong, right = (post(b"", "/orders", f"X-API-Key: {key}") for key in ("w", "r"))
    with serving(a_route(options=HttpReceiveOptions(api_keys=("r",), rate_limit=0.1))) as server:
        first, second, late = (ask(server, request) for request in (wrong, wrong, right))
        with Client(server, right, source="127.0.0.2") as other:
            admitted = other.reply().status

    assert ([first.status, second.status, late.status], admitted) == ([401, 429, 429], 200)
    assert 1 <= int(second.headers["retry-after"]) <= 10
    assert second.error == "no more than 0.1 requests with wrong credentials per second are taken"


@pytest.mark.parametrize("options", [{"api_keys": ("r",)}, {"basic": {"user": "r"}}])
def test_wrong_credentials_are_limited_without_a_rate_too(options: dict[str, Any]) -> None:
    now = 100.0
    guard = Guard(HttpReceiveOptions(**options), clock=lambda: now)

    def status(client: str, **headers: str) -> int:
        given = {"x-api-key": "w", "authorization": "Basic " + base64.b64encode(b"user:w").decode()} | headers
        try:
            with guard.admitted("POST", given, client):
                return 200
        except RefusedError as refused:
            return refused.status

    assert [status("192.0.2.1") for _ in range(12)] == [401] * 10 + [429] * 2
    right = {"x-api-key": "r", "authorization": "Basic " + base64.b64encode(b"user:r").decode()}
    assert (status("192.0.2.1", **right), status("192.0.2.2", **right)) == (429, 200)
    now += 1
    assert [status("192.0.2.1") for _ in range(2)] == [401, 429]
    now += 1
    assert status("192.0.2.1", **right) == 200
    # Whoever has one address of IPv6 has 2^64 of them.
    assert [status(f"2001:db8::{number:x}") for number in range(1, 12)] == [401] * 10 + [429]
    assert (status("2001:db8:0:1::1"), status("::ffff:192.0.2.3"), status("")) == (401, 401, 401)


def test_replacing_routes_does_not_renew_the_rate() -> None:
    route = a_route(options=HttpReceiveOptions(rate_limit=0.01))
    with serving(route) as server:
        ask(server, post())
        server.routes([route, a_route("/other")])

        assert ask(server, post()).status == 429


def test_a_location_with_too_many_requests_refuses_more_and_others_go_on() -> None:
    gate = Gate()
    full = a_route("/full", gate.handler, HttpReceiveOptions(concurrency=2))
    with serving(full, a_route("/other")) as server:
        clients = [Client(server, post(path="/full")) for _ in range(2)]
        arrived = [gate.arrived() for _ in clients]
        refused = ask(server, post(path="/full"))
        other = ask(server, post(path="/other"))
        for waiting in arrived:
            waiting.go_on()
        answered = [client.reply().status for client in clients]
        for client in clients:
            client.hang_up()

    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert (other.status, answered) == (200, [200, 200])


@pytest.mark.parametrize("line", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_bodies_that_are_too_large_together_are_refused_and_leave_room_for_other_locations(line: str) -> None:
    gate = Gate()
    body = b"x" * 100 if line.startswith("Content") else b"64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n"
    options = HttpReceiveOptions(maximum_size=100)
    routes = [a_route(path, gate.handler, options) for path in ("/full", "/other")]
    with serving(*routes, room=Room(600)) as server, ExitStack() as stack:
        clients = [stack.enter_context(Client(server, head("/full", line) + body)) for _ in range(3)]
        arrived = [gate.arrived() for _ in clients]
        refused = ask(server, head("/full", line) + body)
        clients.append(stack.enter_context(Client(server, head("/other", line) + body)))
        for waiting in [*arrived, gate.arrived()]:
            waiting.go_on()
        answered = [client.reply().status for client in clients]
        clients.append(stack.enter_context(Client(server, head("/full", line) + body)))
        gate.arrived().go_on()
        again = clients[-1].reply().status

    assert (refused.status, refused.headers["retry-after"], refused.error) == (
        503,
        "1",
        "the requests in progress are too large together: try again later",
    )
    assert (answered, again) == ([200] * 4, 200)


def test_a_body_as_large_as_its_location_allows_is_taken_though_all_have_less_room() -> None:
    with serving(a_route(options=HttpReceiveOptions(maximum_size=1000)), room=Room(10)) as server:
        assert statuses(server, [post(b"x" * 1000)] * 2) == [200, 200]


def test_a_body_over_the_limit_is_refused_before_it_comes() -> None:
    with serving(a_route(options=HttpReceiveOptions(maximum_size=10))) as server:
        exact = ask(server, post(b"x" * 10))
        announced = head("/orders", "Content-Length: 11")
        with Client(server, announced) as client:
            reply = client.reply()
            client.send(b"x" * 11)
            closed = client.is_closed()

    assert exact.status == 200
    assert (reply.status, reply.error, closed) == (413, "the body is larger than 10 bytes", True)


def test_a_body_without_a_length_is_refused_once_it_is_over_the_limit() -> None:
    start = head("/orders", "Transfer-Encoding: chunked") + b"a\r\n0123456789\r\n"
    with serving(a_route(options=HttpReceiveOptions(maximum_size=10))) as server, Client(server, start) as client:
        client.send(b"1\r\nx\r\n")
        reply = client.reply()
        client.send(b"0\r\n\r\n")
        closed = client.is_closed()

    assert (reply.status, reply.headers["connection"], closed) == (413, "close", True)


def test_a_client_that_sends_all_before_it_reads_gets_its_refusal() -> None:
    with serving(a_route("/orders", echo, HttpReceiveOptions(maximum_size=1000))) as server:
        large = b"x" * 20_000_000
        reply = httpx.post(f"http://127.0.0.1:{server.port}/orders", content=large, trust_env=False, timeout=DEADLINE)

    assert reply.status_code == 413


def test_a_body_that_comes_too_slowly_is_given_up() -> None:
    start = head("/orders", "Content-Length: 10") + b"12345"
    with serving(a_route(options=HttpReceiveOptions(read_timeout=0.05))) as server, Client(server, start) as client:
        reply = client.reply()
        client.send(b"67890")
        closed = client.is_closed()

    assert (reply.status, reply.headers["connection"], closed) == (408, "close", True)
