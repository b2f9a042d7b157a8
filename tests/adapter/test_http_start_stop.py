"""Starting and stopping the http server: requests in progress, ports in use, addresses that do not exist."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from crossdock.adapter.http.server import HttpServer
from crossdock.errors import TransientError
from http_client import DEADLINE, Client, Gate, a_route, ask, echo, post, serving


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert caplog.records == []


def test_stopping_waits_for_requests_in_progress_and_takes_no_new_ones() -> None:
    gate = Gate()
    with serving(a_route("/orders", gate.handler)) as server, Client(server, post(b"last")) as client:
        waiting = gate.arrived()
        idle = Client(server)
        stopping = threading.Thread(target=server.stop, args=(DEADLINE,))
        stopping.start()
        idle_closed = idle.is_closed()
        with pytest.raises(ConnectionRefusedError):
            Client(server)
        waiting.go_on()
        reply = client.reply()
        stopping.join(DEADLINE)
        idle.hang_up()

        assert (idle_closed, reply.body, client.is_closed(), stopping.is_alive()) == (True, b"last", True, False)


def test_stopping_cancels_what_takes_too_long() -> None:
    gate = Gate()
    with serving(a_route("/orders", gate.handler)) as server, Client(server, post()) as client:
        gate.arrived()

        server.stop(0)
        server.stop(0)

        assert gate.cancelled.is_set()
        assert (client.reply().status, client.is_closed()) == (503, True)


def test_a_server_that_does_not_run_may_be_stopped() -> None:
    HttpServer("127.0.0.1", 0).stop()


def test_a_server_starts_again_on_the_same_port() -> None:
    with serving() as server, Client(server, post()) as client:
        port = server.port
        client.reply()
        for _ in range(3):
            server.stop()
            server.start()

        assert (server.port, ask(server, post()).status) == (port, 200)


def test_a_port_in_use_is_told_and_works_once_it_is_free() -> None:
    with serving() as first:
        second = HttpServer("127.0.0.1", first.port)
        second.routes([a_route("/second", echo)])
        with pytest.raises(TransientError, match=f"cannot listen on 127.0.0.1:{first.port}: .*in use"):
            second.start()
        first.stop()

        second.start()

        answer = ask(second, post(path="/second"))
        second.stop()
    assert answer.status == 200


@pytest.mark.parametrize(
    ("host", "port"), [("no.such.host.invalid", 0), ("203.0.113.1", 0), ("127.0.0.1", 70000), ("a..b", 0)]
)
def test_an_address_that_cannot_be_bound_is_told(host: str, port: int) -> None:
    with pytest.raises(TransientError, match="cannot listen on"):
        HttpServer(host, port).start()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_all_interfaces_are_those_of_ipv4_too() -> None:
    server = HttpServer("::", 0)
    server.routes([a_route()])
    server.start()

    assert ask(server, post()).status == 200
    server.stop()
