"""Http locations as they are deployed: who is admitted, and that one location in trouble leaves the others alone."""

from __future__ import annotations

import fcntl
import gzip
import json
import logging
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from crossdock.receive.threads import MOST_THREADS
from express import rows
from http_client import head, make_certificate
from office import Office, free_port
from two_way import Opened, offices
from walk import until

ORDER = b'{"id": "1"}'
WAITS = """
import fcntl, os, uuid
from pathlib import Path

def wait(document, *more):
    folder = Path({folder!r})
    (folder / "entered" / str(uuid.uuid4())).touch()
    with (folder / "gate").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)
    return document
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has the module of the pipeline `slow`."""
    (tmp_path / "entered").mkdir()
    (tmp_path / "gate").touch()
    (tmp_path / "slowly.py").write_text(WAITS.format(folder=str(tmp_path)))
    return tmp_path


@pytest.fixture
def office(database: str, folder: Path) -> Iterator[Opened]:
    with offices(database, folder) as opened:
        yield opened


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The pipeline `slow` does not end before this does."""
    with (folder / "gate").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield


def entered(folder: Path) -> int:
    return len(list((folder / "entered").iterdir()))


def application(**locations: dict[str, Any]) -> dict[str, Any]:
    """A receive port for each location; `pipeline: slow` waits."""
    shared = {"adapter": "http", "pipeline": "json", "schema": "Order"}
    return {
        "properties": {"OrderId": "text"},
        "schemas": [{"type": "Order", "format": "json", "promote": {"OrderId": "$.id"}}],
        "pipelines": [
            {"name": "slow", "disassemble": "json", "components": ["slowly:wait"]},
            {"name": "packed", "disassemble": "json", "decode": ["gzip"]},
        ],
        "receive_ports": [{"name": name, "locations": [{**shared, **each}]} for name, each in locations.items()],
    }


def tell(address: str, seconds: float = 30) -> httpx.Response:
    return httpx.post(address, content=json.dumps({"id": "1"}), timeout=seconds, trust_env=False)


def test_slow_pipeline_of_one_location_does_not_hold_up_another(office: Opened, folder: Path) -> None:
    at = f"http://127.0.0.1:{free_port()}"
    office(application(Slow={"address": f"{at}/slow", "pipeline": "slow"}, Quick={"address": f"{at}/quick"}))

    with ThreadPoolExecutor(30) as clients:
        with held(folder):
            waiting = [clients.submit(tell, f"{at}/slow") for _ in range(30)]
            until(lambda: entered(folder) == MOST_THREADS)
            quick = tell(f"{at}/quick", seconds=5)
        slow = [each.result().status_code for each in waiting]

    assert (quick.status_code, slow) == (202, [202] * 30)


def test_body_with_more_messages_than_a_location_takes_is_refused_and_nothing_of_it_kept(office: Opened) -> None:
    at = f"http://127.0.0.1:{free_port()}"
    running = office(application(Few={"address": f"{at}/few", "options": {"maximum_messages": 3}}))

    answers = [
        httpx.post(f"{at}/few", content=json.dumps([{"id": "1"}] * count), timeout=30, trust_env=False)
        for count in (4, 3)
    ]

    assert [answer.status_code for answer in answers] == [413, 202]
    assert "there are more than 3 messages in it, which is the most" in answers[0].text
    assert running.agent.statistics().unrouted == 3


def test_what_a_request_gives_to_each_of_its_messages_is_bounded(office: Opened) -> None:
    at = f"http://127.0.0.1:{free_port()}/in"
    office(application(In={"address": at}))
    orders = json.dumps([{"id": "1"}] * 3_000)

    answers = [
        httpx.post(f"{at}?{'q' * length}", content=orders, timeout=60, trust_env=False) for length in (10, 12_000)
    ]

    assert [answer.status_code for answer in answers] == [202, 413]


def test_compressed_body_is_not_unpacked_beyond_what_a_location_takes(office: Opened) -> None:
    at = f"http://127.0.0.1:{free_port()}"
    location = {"address": f"{at}/packed", "pipeline": "packed", "options": {"maximum_size": 10_000}}
    running = office(application(Packed=location))
    bomb, fits = (gzip.compress(json.dumps({"id": "1", "pad": " " * size}).encode()) for size in (10_000, 9_000))

    answers = [httpx.post(f"{at}/packed", content=body, timeout=30, trust_env=False) for body in (bomb, fits)]

    assert [answer.status_code for answer in answers] == [400, 202]
    assert "more than 10,000 bytes when it is unpacked" in answers[0].text
    assert running.agent.statistics().unrouted == 1


def test_pipeline_that_does_not_end_costs_its_location_threads_and_nobody_else_anything(
    database: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = f"http://127.0.0.1:{free_port()}"
    declared = application(Slow={"address": f"{at}/slow", "pipeline": "slow"}, Quick={"address": f"{at}/quick"})
    made = Office(database, folder, declared)
    made.settings = made.settings.model_copy(update={"time_limit": 0.5})
    with made.open(), ThreadPoolExecutor(MOST_THREADS) as clients:
        with held(folder):
            endless = list(clients.map(tell, [f"{at}/slow"] * MOST_THREADS))
            until(lambda: tell(f"{at}/slow").status_code == 503)
            refused, quick = tell(f"{at}/slow"), tell(f"{at}/quick")
        until(lambda: tell(f"{at}/slow").status_code == 202)

    assert [answer.status_code for answer in endless] == [500] * MOST_THREADS
    assert (refused.headers["retry-after"], quick.status_code) == ("1", 202)
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == MOST_THREADS
    assert all("'Slow.http': the pipeline took more than 0.5 seconds" in message for message in logged)


def test_location_whose_request_is_in_progress_is_disabled_without_holding_up_others(
    office: Opened, folder: Path
) -> None:
    slow, quick = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    running = office(
        application(
            Slow={"address": f"{slow}/slow", "pipeline": "slow"},
            Quick={"address": f"{quick}/quick"},
            Other={"address": f"{quick}/other"},
        )
    )

    with ThreadPoolExecutor(1) as client, held(folder):
        waiting = client.submit(tell, f"{slow}/slow")
        until(lambda: entered(folder) == 1)
        running.agent.subscriptions.enable("Slow.http", enabled=False)
        until(lambda: not listens(slow))
        running.agent.subscriptions.enable("Other.http", enabled=False)
        until(lambda: tell(f"{quick}/other").status_code == 404, 5)
        running.agent.subscriptions.enable("Slow.http", enabled=True)
        until(lambda: listens(slow), 5)
        was_waiting = not waiting.done()
    assert (was_waiting, waiting.result().status_code) == (True, 202)


def flood_slow_pipeline(at: str, over: Event) -> None:
    while not over.is_set():
        tell(f"{at}/slow")


def flood_tiny_chunks(at: str, over: Event) -> None:
    url = httpx.URL(at)
    with socket.create_connection((url.host, url.port), timeout=30) as client, suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing is a reset
        client.sendall(head("/large", "Transfer-Encoding: chunked"))
        while not over.is_set():
            client.sendall(b"1\r\n[\r\n" * 4_000)


def flood_wrong_credentials(at: str, over: Event) -> None:
    with httpx.Client(trust_env=False) as client:
        while not over.is_set():
            client.post(f"{at}/guarded", content=b"{}", headers={"X-API-Key": "wrong"}, timeout=30)


def flood_large_bodies(at: str, over: Event) -> None:
    body = json.dumps({"id": "1", "much": "x" * 4_000_000}).encode()
    with httpx.Client(trust_env=False) as client:
        while not over.is_set():
            client.post(f"{at}/large", content=body, timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize("flood", [flood_slow_pipeline, flood_tiny_chunks, flood_wrong_credentials, flood_large_bodies])
def test_flood_at_one_location_leaves_another_its_answers_in_time(
    office: Opened, folder: Path, flood: Callable[[str, Event], None]
) -> None:
    at = f"http://127.0.0.1:{free_port()}"
    options = {"api_keys": ["right"], "rate_limit": 5}
    office(
        application(
            Slow={"address": f"{at}/slow", "pipeline": "slow"},
            Guarded={"address": f"{at}/guarded", "options": options},
            Large={"address": f"{at}/large"},
            Quick={"address": f"{at}/quick"},
        )
    )
    tell(f"{at}/quick")
    over, took = Event(), []

    with ThreadPoolExecutor(16) as clients:
        with held(folder):
            flooding = [clients.submit(flood, at, over) for _ in range(16)]
            for _ in range(10):
                began = time.monotonic()
                assert tell(f"{at}/quick", seconds=10).status_code == 202
                took.append(time.monotonic() - began)
            over.set()
        for each in flooding:
            each.result(60)

    assert max(took) < 3


def test_deployed_location_asks_for_credentials_over_tls_and_limits_the_rate(
    office: Opened, folder: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(folder)
    monkeypatch.setenv("TELL_KEY", "secret")
    at = f"https://127.0.0.1:{free_port()}"
    tls = {"certificate": "certificate.pem", "key": "key.pem"}
    limited = {"rate_limit": 0.01, **tls}
    credentials = {"api_keys": ["env:TELL_KEY"], "basic": {"ann": "hidden"}, **tls}
    office(
        application(
            Tell={"address": f"{at}/tell", "options": credentials},
            Limited={"address": f"{at}/limited", "options": limited},
        )
    )
    trusting = ssl.create_default_context(cafile=str(folder / "certificate.pem"))

    with httpx.Client(base_url=at, verify=trusting, trust_env=False, timeout=30) as client:
        by_key = client.post("/tell", content=ORDER, headers={"X-API-Key": "secret"})
        by_user = client.post("/tell", content=ORDER, auth=("ann", "hidden"))
        wrong = [client.post("/tell", content=ORDER, headers={"X-API-Key": "env:TELL_KEY"})]
        wrong += [client.post("/tell", content=ORDER, auth=("ann", "secret")), client.post("/tell", content=ORDER)]
        limited_to = [client.post("/limited", content=ORDER) for _ in range(2)]

    assert [answer.status_code for answer in (by_key, by_user, *wrong)] == [202, 202, 401, 401, 401]
    assert [answer.status_code for answer in limited_to] == [202, 429]
    assert 1 <= int(limited_to[1].headers["retry-after"]) <= 100
    users = rows(database, "SELECT context #>> '{written, HTTP.User}' FROM message")
    assert sorted(str(user) for (user,) in users) == ["None", "None", "ann"]


def listens(at: str) -> bool:
    try:
        return httpx.get(at, trust_env=False).status_code == 404
    except httpx.TransportError:
        return False


def test_location_that_changes_answers_every_request_meanwhile(office: Opened) -> None:
    at = f"http://127.0.0.1:{free_port()}/orders"
    running = office(application(Orders={"address": at}))
    over = Event()

    def statuses() -> list[int]:
        found = [tell(at).status_code]
        while not over.is_set():
            found.append(tell(at).status_code)
        return found

    with ThreadPoolExecutor(1) as client:
        asking = client.submit(statuses)
        running.deploy(application(Orders={"address": at, "options": {"maximum_size": 5}}))
        until(lambda: tell(at).status_code == 413)
        over.set()

    assert set(asking.result()) <= {202, 413}
