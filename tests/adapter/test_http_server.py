"""The http server on real sockets: answers, hanging up, slow and broken clients."""

from __future__ import annotations

import logging
import os
import queue
import resource
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from crossdock.adapter.http.app import Request
from crossdock.adapter.http.connection import Limits
from crossdock.adapter.http.guard import Answer
from crossdock.adapter.http.transport import HttpReceiveOptions
from crossdock.errors import ApplicationError, DocumentError, TransientError
from http_client import DEADLINE, Client, Gate, a_route, ask, head, post, serving


@pytest.fixture(autouse=True)
def nothing_else_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """uvicorn and asyncio say nothing in any of these tests, at least no warning."""
    yield
    foreign = [record for record in caplog.records if not record.name.startswith("crossdock.adapter.http.app")]
    assert [record.getMessage() for record in foreign if record.levelno >= logging.INFO] == []


def test_a_handler_gets_the_whole_request_and_its_answer_is_sent() -> None:
    seen: queue.Queue[Request] = queue.Queue()

    async def handler(request: Request) -> Answer:
        seen.put(request)
        return Answer(202, b"taken", {"X-Id": "7", "Content-Length": "1000"})

    with serving(a_route("/orders", handler)) as server:
        reply = ask(server, post(b"<a/>", "/orders?a=%201&b", "X-Twice: 1", "x-twice: 2"))

    request = seen.get(timeout=DEADLINE)
    assert (request.method, request.path, request.query) == ("POST", "/orders", "a=%201&b")
    assert (request.body, request.client, request.user) == (b"<a/>", "127.0.0.1", None)
    assert request.headers["x-twice"] == "1, 2"
    assert (reply.status, reply.body, reply.headers["x-id"]) == (202, b"taken", "7")
    assert "date" in reply.headers
    assert "server" not in reply.headers


def test_a_connection_is_used_again_and_requests_sent_together_are_answered_in_order() -> None:
    with serving() as server, Client(server, post(b"1") + post(b"2") + post(b"3")) as client:
        together = [client.reply().body for _ in range(3)]
        client.send(post(b"4"))
        later = client.reply().body

    assert (together, later) == ([b"1", b"2", b"3"], b"4")


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    with serving() as server, Client(server) as client:
        started = time.monotonic()
        for _ in range(100):
            client.send(post())
            client.reply()

        assert time.monotonic() - started < 3  # each would take 40 ms


def test_a_refused_request_without_a_body_keeps_its_connection() -> None:
    with serving() as server, Client(server, head("/other") + post(b"1")) as client:
        assert [client.reply().status for _ in range(2)] == [404, 200]


def test_answers_without_a_body_and_of_head_requests_are_well_formed() -> None:
    async def handler(request: Request) -> Answer:
        return Answer(204, b"lost") if request.method == "DELETE" else Answer(200, b"known by its length")

    options = HttpReceiveOptions(methods=("DELETE", "HEAD"))
    with serving(a_route("/orders", handler, options)) as server, httpx.Client(trust_env=False) as client:
        address = f"http://127.0.0.1:{server.port}/orders"
        deleted, known, again = client.delete(address), client.head(address), client.delete(address)

    assert (deleted.status_code, deleted.content, again.status_code) == (204, b"", 204)
    assert (known.status_code, known.content, known.headers["content-length"]) == (200, b"", "19")


@pytest.mark.parametrize(
    ("status", "headers"), [(100, {}), (600, {}), (200, {"A": "b\r\nC: d"}), (200, {"A b": ""}), (200, {"A": "ŋ"})]
)
def test_an_answer_that_http_cannot_carry_cannot_be_made(status: int, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="an answer cannot have the"):
        Answer(status, b"", headers)


@pytest.mark.parametrize(
    ("error", "status", "level", "has_traceback"),
    [
        (DocumentError("order 7 is no JSON"), 500, logging.ERROR, False),
        (TransientError("the store is away"), 503, logging.WARNING, False),
        (KeyError("secret detail"), 500, logging.ERROR, True),
    ],
)
def test_a_failing_handler_is_logged_once_and_its_client_is_told_little(
    error: Exception, status: int, level: int, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_: Request) -> Answer:
        raise error

    with serving(a_route("/orders", handler)) as server, Client(server, post() + post()) as client:
        reply = client.reply()
        again = client.reply()

    first, _ = caplog.records
    assert (reply.status, again.status, reply.headers.get("retry-after")) == (
        status,
        status,
        "1" if status == 503 else None,
    )
    assert str(error) not in reply.error
    assert (first.levelno, first.exc_info is not None) == (level, has_traceback)


def test_a_handler_is_cancelled_when_its_client_hangs_up() -> None:
    gate = Gate()
    with serving(a_route("/orders", gate.handler)) as server:
        with Client(server, post()):
            gate.arrived()

        assert gate.cancelled.wait(DEADLINE)


def test_a_handler_that_cancels_itself_is_a_failure() -> None:
    gate = Gate()
    with serving(a_route("/orders", gate.handler)) as server, Client(server, post()) as client:
        waiting = gate.arrived()
        waiting.loop.call_soon_threadsafe(waiting.future.cancel)

        assert client.reply().status == 500


def test_a_client_that_hangs_up_in_its_body_disturbs_nobody() -> None:
    with serving() as server:
        with Client(server, head("/orders", "Content-Length: 1000") + b"12"):
            pass

        assert ask(server, post()).status == 200


def test_a_client_may_ask_before_it_sends_its_body() -> None:
    with serving() as server, Client(server, head("/orders", "Content-Length: 4", "Expect: 100-continue")) as client:
        asked = client.reply()
        client.send(b"<a/>")

        assert (asked.status, client.reply().body) == (100, b"<a/>")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_sends_two_megabytes(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(os.urandom(2_000_000))
    with serving() as server:
        address = f"http://127.0.0.1:{server.port}/orders"
        command = ["curl", "-sS", "--noproxy", "*", "-H", "Expect: 100-continue", "--data-binary", "@body", address]
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=DEADLINE)

    assert answer.stdout == (tmp_path / "body").read_bytes()


def test_five_hundred_requests_wait_at_once_and_all_are_answered() -> None:
    gate = Gate()
    with serving(a_route("/orders", gate.handler)) as server, ExitStack() as stack:
        clients = [stack.enter_context(Client(server, post(b"%d" % number))) for number in range(500)]
        for waiting in [gate.arrived() for _ in clients]:
            waiting.go_on()

        assert [client.reply().body for client in clients] == [b"%d" % number for number in range(500)]


@pytest.mark.parametrize("start", [b"", b"POST", b"POST /orders HTTP/1.1\r\nHost: te"])
def test_a_client_that_does_not_finish_its_first_head_is_disconnected(start: bytes) -> None:
    with serving(limits=Limits(head_seconds=0.1)) as server, Client(server, start) as client:
        assert client.is_closed()


def test_a_client_that_does_not_finish_its_next_head_is_disconnected() -> None:
    with serving(limits=Limits(head_seconds=0.5, idle_seconds=600)) as server, Client(server, post()) as client:
        client.reply()
        client.send(b"POST /orders")

        assert client.is_closed()


def test_a_connection_is_closed_after_some_silence() -> None:
    with serving(limits=Limits(idle_seconds=0.1)) as server, Client(server, post()) as client:
        client.reply()

        assert client.is_closed()


def test_a_client_that_does_not_read_its_answer_is_disconnected() -> None:
    answered = threading.Event()

    async def handler(_: Request) -> Answer:
        answered.set()
        return Answer(200, b"x" * 20_000_000)

    limits = Limits(head_seconds=0.5, idle_seconds=0.01, flush_seconds=0.01)
    with serving(a_route("/orders", handler), limits=limits) as server, Client(server, post()) as client:
        assert answered.wait(DEADLINE)
        with Client(server) as silent:
            assert silent.is_closed()  # long after the answer had to be read

        assert len(client.rest()) < 20_000_000


def test_a_request_may_take_longer_than_its_head_may() -> None:
    gate = Gate()
    limits = Limits(head_seconds=0.5)
    with serving(a_route("/orders", gate.handler), limits=limits) as server, Client(server, post()) as client:
        waiting = gate.arrived()
        with Client(server) as silent:
            assert silent.is_closed()  # it came later, and its time is over
        waiting.go_on()

        assert client.reply().status == 200


@pytest.mark.parametrize("in_one_piece", [True, False])
def test_an_oversized_head_is_refused(in_one_piece: bool) -> None:
    line = "X-Large: " + "x" * 20_000
    request = head("/orders", line) if in_one_piece else head("/orders", line)[:-2]
    with serving() as server:
        reply = ask(server, request)

    assert (reply.status, "head of the request" in reply.error) == (431, True)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"POST /orders HTTP/1.1\r\n\r\n",
        b"POST /\xf8 HTTP/1.1\r\nHost: test\r\n\r\n",
        head("/orders", "Content-Length: one"),
        head("/orders", "Content-Length: 1", "Content-Length: 2"),
        head("/orders", "Transfer-Encoding: chunked") + b"no length\r\n",
        head("/orders", "A b: c"),
    ],
)
def test_what_is_not_http_is_refused_and_makes_no_noise(
    request_bytes: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving() as server, Client(server, request_bytes) as client:
        reply = client.reply()
        closed = client.is_closed()
        others = ask(server, post()).status

    assert (reply.status, reply.error, closed) == (400, "this is not a valid HTTP request", True)
    assert others == 200
    assert capfd.readouterr() == ("", "")


CHUNKED = b"5\r\nhello\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("version", "lines", "body"),
    [
        ("1.1", ["Content-Length: 5", "Transfer-Encoding: chunked"], CHUNKED),
        ("1.1", ["Transfer-Encoding: chunked", "content-length: 0"], CHUNKED),
        ("1.1", ["Content-Length: 5", "Content-Length: 5"], b"hello"),
        ("1.1", ["Content-Length: 5, 5"], b"hello"),
        ("1.1", ["Content-Length: 5", "Content-Length: 6"], b"hello!"),
        ("1.1", ["Content-Length: 5,6"], b"hello!"),
        ("1.1", ["Content-Length: +5"], b"hello"),
        ("1.1", ["Content-Length : 5"], b"hello"),
        ("1.1", ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], CHUNKED),
        ("1.1", ["Transfer-Encoding: identity"], CHUNKED),
        ("1.1", ["Transfer-Encoding: xchunked"], CHUNKED),
        ("1.1", ["Transfer-Encoding:\r\n chunked"], CHUNKED),
        ("1.1", ["X-Other: a\r\n\tb", "Content-Length: 5"], b"hello"),
        ("1.1", ["X-Other: a\nTransfer-Encoding: chunked"], CHUNKED),
        ("1.1", ["X-Other: a\rTransfer-Encoding: chunked", "Content-Length: 5"], b"hello"),
        ("1.0", ["Transfer-Encoding: chunked"], CHUNKED),
        ("1.1", ["Transfer-Encoding: chunked"], b"5\r\nhello\r\n0\r\n\n"),
        ("1.1", ["Transfer-Encoding: chunked"], b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("1.1", ["Transfer-Encoding: chunked"], b"5\r\nh\rllo\r\n0;a\rb\r\n\r\n"),
        ("1.1", ["Transfer-Encoding: chunked"], b"0\r\nX-Other: a\n\n"),
        ("1.1", ["Transfer-Encoding: chunked"], b"0\r\nX-Other: a\n\r\n"),
        ("1.1", ["Transfer-Encoding: chunked"], b"0\r\nX-Other: a\r\n\r\n"),
    ],
)
def test_request_whose_end_is_ambiguous_is_refused_and_nothing_after_it_is_read(
    version: str, lines: list[str], body: bytes
) -> None:
    seen: list[bytes] = []

    async def handler(request: Request) -> Answer:
        seen.append(request.body)
        return Answer(200, request.body)

    start = "\r\n".join([f"POST /orders HTTP/{version}", "Host: test", *lines, "", ""]).encode()
    with serving(a_route(handler=handler)) as server, Client(server, start + body + post(b"smuggled")) as client:
        reply = client.reply()

        assert reply.status in (400, 501)
        assert (reply.headers["connection"], client.is_closed()) == ("close", True)
    assert seen == []


@pytest.mark.parametrize("split", [1, 30, 1000])
def test_request_with_one_length_or_with_chunks_is_taken_however_it_arrives(split: int) -> None:
    chunked = head("/orders", "Transfer-Encoding: chunked")
    sent = post(b"one") + chunked + CHUNKED + chunked + b"4\r\na\rb\r\r\n0\r\n\r\n" + post(b"four")
    with serving() as server, Client(server) as client:
        for start in range(0, len(sent), split):
            client.send(sent[start : start + split])

        assert [client.reply().body for _ in range(4)] == [b"one", b"hello", b"a\rb\r", b"four"]


@pytest.mark.parametrize("split", [1, 3, 1000])
@pytest.mark.parametrize("end", [b"0\r\n\n", b"0\r\nA: b\n\n", b"0\r\nA: b\r\n\r\n"])
def test_chunks_that_do_not_end_with_an_empty_line_are_refused_however_they_arrive(end: bytes, split: int) -> None:
    sent = head("/orders", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n" * 100 + end + post(b"smuggled")
    with serving() as server, Client(server) as client:
        with suppress(ConnectionError):  # it may be refused before all is sent
            for start in range(0, len(sent), split):
                client.send(sent[start : start + split])

        assert (client.reply().status, client.is_closed()) == (400, True)


def test_a_broken_body_after_a_refusal_ends_the_connection_quietly() -> None:
    with serving() as server, Client(server, head("/other", "Transfer-Encoding: chunked") + b"1\r\n") as client:
        reply = client.reply()
        client.send(b"xno chunk\r\n")

        assert (reply.status, client.is_closed()) == (404, True)


def test_an_offer_of_another_protocol_is_passed_over() -> None:
    with serving() as server:
        for offer in ("h2c", "websocket"):
            assert ask(server, post(b"1", "/orders", "Connection: Upgrade", f"Upgrade: {offer}")).status == 200


def test_routes_are_replaced_while_a_request_keeps_its_handler() -> None:
    gate = Gate()
    with serving(a_route("/orders", gate.handler)) as server, Client(server, post(b"old")) as client:
        waiting = gate.arrived()
        server.routes([a_route("/new")])
        gone, new = ask(server, post()).status, ask(server, post(path="/new")).status
        waiting.go_on()

        assert (gone, new, client.reply().body) == (404, 200, b"old")


def test_two_locations_cannot_share_a_path_nor_have_certificates_of_their_own() -> None:
    with serving(a_route("/kept")) as server:
        with pytest.raises(ApplicationError, match="the same path '/orders'"):
            server.routes([a_route(), a_route()])
        with pytest.raises(ApplicationError, match="another certificate or key than its address"):
            server.routes([a_route(options=HttpReceiveOptions(certificate="other.pem"))])

        assert ask(server, post(path="/kept")).status == 200


def test_slow_clients_of_one_location_do_not_keep_another_from_answering() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 3000 if most == resource.RLIM_INFINITY else min(3000, most // 2 - 600)
    slow = [b"", b"POST /slow HTTP/1.1\r\nHost:", head("/slow", "Content-Length: 9") + b"1"]
    with serving(a_route("/slow"), a_route("/quick"), limits=Limits(head_seconds=600)) as server, ExitStack() as stack:
        for number in range(many):
            here = (f"127.0.0.{2 + number % 8}", 0)
            client = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE, source_address=here)
            stack.enter_context(client)
            client.sendall(slow[number % 3 if number < 1000 else number % 2])
        quick = httpx.post(f"http://127.0.0.1:{server.port}/quick", content=b"1", timeout=5, trust_env=False)

    assert quick.status_code == 200


def test_bodies_of_tiny_chunks_do_not_keep_others_from_answering() -> None:
    over = threading.Event()

    def flood(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client, suppress(OSError):
            client.sendall(head("/slow", "Transfer-Encoding: chunked"))
            while not over.is_set():
                client.sendall(b"1\r\nx\r\n" * 4_000)

    with serving(a_route("/slow"), a_route("/quick")) as server, ExitStack() as stack:
        clients = [threading.Thread(target=flood, args=[server.port]) for _ in range(8)]
        for client in clients:
            client.start()
            stack.callback(client.join)
        stack.callback(over.set)
        started = time.monotonic()
        answers = [ask(server, post(path="/quick")).status for _ in range(10)]
        took = time.monotonic() - started

    assert (answers, took < 5) == ([200] * 10, True)  # 43 s where each read is handled whole


def test_a_body_of_tiny_chunks_arrives_whole_and_what_follows_is_answered() -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % (number % 256) for number in range(100_000)) + b"0\r\n\r\n"
    with serving() as server, Client(server, head("/orders", "Transfer-Encoding: chunked")) as client:
        client.send(chunks + post(b"next"))

        assert client.reply().body == bytes(number % 256 for number in range(100_000))
        assert client.reply().body == b"next"


def test_a_connection_too_many_is_refused_until_another_ends() -> None:
    limits = Limits(connections=2, idle_seconds=600)
    with serving(limits=limits) as server, Client(server, post(), source="127.0.0.2") as first:
        first.reply()
        with Client(server, post()) as second:
            second.reply()
            with Client(server) as third:
                refused = third.is_closed()
            second.send(post(b"last", "/orders", "Connection: close"))
            ended = second.reply().body == b"last" and second.is_closed()

        assert (refused, ended, ask(server, post()).status) == (True, True, 200)


def test_one_address_has_no_more_than_half_of_the_connections() -> None:
    limits = Limits(connections=4, idle_seconds=600)
    with serving(limits=limits) as server, Client(server, post()) as first, Client(server, post()) as second:
        answered = [first.reply().status, second.reply().status]
        with Client(server, post()) as third:
            refused = third.is_closed()
        with Client(server, post(), source="127.0.0.2") as other:
            answered.append(other.reply().status)
        second.send(post(b"last", "/orders", "Connection: close"))
        ended = second.reply().body == b"last" and second.is_closed()

        assert (answered, refused, ended, ask(server, post()).status) == ([200, 200, 200], True, True, 200)


def test_a_client_that_asks_before_it_sends_what_is_no_body_is_refused_once(caplog: pytest.LogCaptureFixture) -> None:
    broken = head("/orders", "Transfer-Encoding: chunked", "Expect: 100-continue") + b"no chunk\r\n"

    with serving() as server:
        assert [ask(server, broken).status for _ in range(3)] == [400] * 3
        assert ask(server, post()).status == 200

    assert caplog.records == []
