"""A client that waits for an answer learns at once that there will be none."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from express import rows
from office import Office, eventually, free_port
from partner import Partner, Request
from two_way import Opened, a_shop, application, ask, office, receipt, shop_port
from walk import CROSSDOCK, until

__all__ = ["office"]

TIMEOUT = 50.0


@pytest.fixture
def shop() -> Iterator[Partner]:
    with a_shop() as made:
        made.respond = None
        yield made


def asked_in_time(at: int) -> httpx.Response:
    began = time.monotonic()
    response = ask(at)
    assert time.monotonic() - began < TIMEOUT / 2
    return response


@pytest.mark.parametrize(
    ("status", "port", "attempts"),
    [
        (400, {}, 1),
        (500, {"retry": {"count": 1, "interval": 0.1}}, 2),
        (400, {"ordered": True}, 1),
        (400, {"ordered": True, "stop_on_failure": True}, 1),
    ],
)
def test_port_that_has_given_up_is_told_to_the_client_at_once(
    office: Opened, shop: Partner, status: int, port: dict[str, Any], attempts: int
) -> None:
    shop.status = status
    at = free_port()
    running = office(application(at, shop_port(shop, **port), timeout=TIMEOUT))

    response = asked_in_time(at)

    assert (response.status_code, response.json()) == (
        502, {"error": "The send port that was to answer has given up; the request is kept there."},
    )  # fmt: skip
    assert (len(shop.requests), running.suspended()) == (attempts, [("send", "Shop")])


def test_nobody_who_sees_who_waits_answers_or_gives_up_in_their_place(
    office: Opened, shop: Partner, database: str
) -> None:
    at, seen = free_port(), list[tuple[str, str]]()

    def respond(request: Request) -> tuple[int, bytes]:
        [(waiting, context)] = rows(
            database, "SELECT instance_id::text, context::text FROM instance_subscription, message"
        )
        seen.append((waiting, context))
        rows(database, "SELECT pg_notify('crossdock_given_up', %s)", waiting)
        return receipt(request)

    shop.respond = respond
    office(application(at, shop_port(shop), timeout=TIMEOUT))

    assert asked_in_time(at).status_code == 200

    [(waiting, context)] = seen
    assert waiting not in context  # nor can the token that is written there be worked out


def test_failure_of_a_port_that_does_not_answer_is_not_the_failure_of_the_request(
    office: Opened, shop: Partner
) -> None:
    at, failed = free_port(), Event()

    def respond(request: Request) -> tuple[int, bytes]:
        if request.path == "/log":
            return 400, b""
        assert failed.wait(30)
        return receipt(request)

    shop.respond = respond
    log = {"name": "Log", "adapter": "http", "address": f"{shop.address}/log", "filter": "MessageType = 'Order'"}
    running = office(application(at, shop_port(shop), log, timeout=TIMEOUT))
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, at, "7")
        eventually(running.suspended, [("send", "Log")])
        failed.set()
        response = asking.result()

    assert (response.status_code, response.json()) == (200, {"receipt": "7"})


@pytest.mark.parametrize("answers", [True, False])
def test_failure_that_is_routed_may_still_be_answered_by_whoever_takes_the_report(
    office: Opened, shop: Partner, answers: bool
) -> None:
    def respond(request: Request) -> tuple[int, bytes]:
        return receipt(request) if request.path == "/help" else (400, b"")

    shop.respond = respond
    report = {"address": f"{shop.address}/help", "filter": "ErrorReport.SendPortName = 'Shop'"}
    helper = {**shop_port(shop, "Help"), **report}
    if not answers:
        del helper["response"]
    at = free_port()
    office(application(at, shop_port(shop, failed_messages="route"), helper, timeout=TIMEOUT))

    response = asked_in_time(at)

    assert response.status_code == (200 if answers else 502)
    eventually(lambda: [each.path for each in shop.requests], ["/orders", "/help"])


@pytest.mark.process
def test_port_in_another_process_gives_up_and_the_client_learns_at_once(
    database: str, tmp_path: Path, shop: Partner
) -> None:
    shop.status = 400
    at = free_port()
    Office(database, tmp_path, application(at, shop_port(shop, host="Sending"), timeout=TIMEOUT, host="Web"))

    hosts = [subprocess.Popen([CROSSDOCK, "host", name, "--database", database]) for name in ("Web", "Sending")]
    try:
        until(lambda: rows(database, "SELECT count(DISTINCT host_id) FROM host_instance") == [(2,)] and _listens(at))
        response = asked_in_time(at)
    finally:
        for host in hosts:
            host.terminate()
        ended = [host.wait(60) for host in hosts]

    assert (response.status_code, ended) == (502, [0, 0])


def _listens(at: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{at}/nothing").status_code == 404
    except httpx.TransportError:
        return False
