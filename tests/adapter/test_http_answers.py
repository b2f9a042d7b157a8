"""What becomes of an answer: it is sent once all of it has gone out, and lost with a client that does not take it."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from crossdock.adapter.http.app import Handler, Request
from crossdock.adapter.http.connection import Limits
from crossdock.adapter.http.guard import Answer
from http_client import DEADLINE, Client, a_route, ask, post, serving

LARGE = 20_000_000


class Outcomes(queue.Queue[str]):
    """What became of the answers of its handler."""

    def answering(self, size: int = LARGE) -> Handler:
        async def handler(_: Request) -> Answer:
            return Answer(200, b"x" * size, sent=lambda: self.put("sent"), lost=lambda: self.put("lost"))

        return handler

    def next(self) -> str:
        return self.get(timeout=DEADLINE)


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert caplog.records == []


@pytest.mark.parametrize("line", ["X: 1", "Connection: close"])
def test_an_answer_is_sent_once_its_client_has_read_it(outcomes: Outcomes, line: str) -> None:
    request = post(b"1", "/orders", line)
    with serving(a_route("/orders", outcomes.answering())) as server, Client(server, request) as client:
        client.socket.recv(1, socket.MSG_PEEK)
        before = outcomes.qsize()
        reply = client.reply()

        assert (before, len(reply.body), outcomes.next()) == (0, LARGE, "sent")


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 200_000])
def test_an_answer_of_any_size_arrives_whole(outcomes: Outcomes, size: int) -> None:
    with serving(a_route("/orders", outcomes.answering(size))) as server, Client(server, post() + post()) as client:
        assert [len(client.reply().body) for _ in range(2)] == [size, size]
        assert [outcomes.next() for _ in range(2)] == ["sent", "sent"]


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("line", ["X: 1", "Connection: close"])
def test_an_answer_whose_client_hangs_up_while_it_is_written_is_lost(
    outcomes: Outcomes, line: str, reset: bool
) -> None:
    with serving(a_route("/orders", outcomes.answering())) as server:
        with Client(server, post(b"1", "/orders", line)) as client:
            client.socket.recv(1000)
            if reset:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        assert outcomes.next() == "lost"
        assert ask(server, post(path="/none")).status == 404


def test_a_small_answer_whose_client_has_just_hung_up_is_lost(outcomes: Outcomes) -> None:
    begun, gone = threading.Event(), threading.Event()

    async def handler(request: Request) -> Answer:
        begun.set()
        assert gone.wait(DEADLINE)  # nor does the event loop hear of it
        return await outcomes.answering(10)(request)

    with serving(a_route("/orders", handler)) as server:
        with Client(server, post()):
            assert begun.wait(DEADLINE)
        gone.set()

        assert outcomes.next() == "lost"


def test_an_answer_is_sent_though_what_follows_its_request_is_no_http(outcomes: Outcomes) -> None:
    with (
        serving(a_route("/orders", outcomes.answering(10))) as server,
        Client(server, post() + b"no http\r\n\r\n") as client,
    ):
        assert [client.reply().status for _ in range(2)] == [200, 400]
        assert outcomes.next() == "sent"


@pytest.mark.parametrize("requests", [1, 2])
def test_a_client_that_does_not_read_is_given_up_with_all_it_asked_for(outcomes: Outcomes, requests: int) -> None:
    limits = Limits(idle_seconds=600, flush_seconds=0.2)
    route = a_route("/orders", outcomes.answering())
    with serving(route, limits=limits) as server, Client(server, post() * requests) as client:
        lost = outcomes.next()
        rest = client.rest()

    assert (lost, outcomes.empty(), len(rest) < LARGE) == ("lost", True, True)


def test_stopping_does_not_wait_for_a_client_that_does_not_read(outcomes: Outcomes) -> None:
    with serving(a_route("/orders", outcomes.answering())) as server, Client(server, post()) as client:
        client.socket.recv(1)
        server.stop(0)

        assert outcomes.next() == "lost"
