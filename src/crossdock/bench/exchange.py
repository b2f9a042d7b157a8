"""How long an http request takes to its answer: in at a two-way location, by way of the MessageBox to a partner, back.

The partner is a server in the same process that answers at once with what it got.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx

from crossdock.adapter.http.app import Request, Route
from crossdock.adapter.http.guard import Answer
from crossdock.adapter.http.server import HttpServer
from crossdock.adapter.http.transport import HttpReceiveOptions
from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.application.runtime import Runtime
from crossdock.application.store import Store
from crossdock.errors import CrossdockError
from crossdock.messagebox.agent import Agent
from crossdock.settings import Settings

_CONCURRENT = 1_000
_WARM_UP = 20
_TIMEOUT_SECONDS = 120.0


@contextmanager
def exchanging(agent: Agent, home: Path) -> Iterator[str]:
    """The address of a two-way location whose requests a partner answers."""
    partner = HttpServer("127.0.0.1", 0)
    partner.routes([Route("/", HttpReceiveOptions(), _echo)])
    partner.start()
    stop = Event()
    with ExitStack() as stack:
        stack.callback(partner.stop)
        port = _free_port()
        model = ApplicationModel.model_validate(_application(port, partner.port))
        agent.subscriptions.deploy(deployment_of(model, home / "exchange.yaml", text_limit=256))
        settings = Settings(database=agent.database, home=home)
        store = Store(settings)
        store.open()
        stack.callback(store.close)
        runtime = Runtime(settings, store, lambda *_: None, receives=False, hosts=["Web"])
        runtime.start(stack)
        rounds = Thread(target=runtime.work, args=[stop], kwargs={"until_idle": False})
        rounds.start()
        stack.callback(rounds.join)
        stack.callback(stop.set)
        yield f"http://127.0.0.1:{port}/"


def paced_requests(address: str, rate: int, seconds: float) -> list[float]:
    """Seconds of so many requests a second, one after the other on one connection."""
    latencies = []
    with httpx.Client(timeout=_TIMEOUT_SECONDS) as client:
        for number in range(_WARM_UP):
            _ask(client, address, -number - 1)
        began = time.perf_counter()
        for number in range(max(1, round(rate * seconds))):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            at = time.perf_counter()
            _ask(client, address, number)
            latencies.append(time.perf_counter() - at)
    return latencies


def concurrent_requests(address: str) -> tuple[int, list[float]]:
    """(answered per second, seconds of each) of a thousand requests that are asked at the same time."""
    began = time.perf_counter()
    latencies = asyncio.run(_all_at_once(address))
    return round(_CONCURRENT / (time.perf_counter() - began)), latencies


async def _all_at_once(address: str) -> list[float]:
    """On connections of their own, by plain sockets: a client library would take longer than what is measured."""
    host, port = httpx.URL(address).host, httpx.URL(address).port

    async def ask(number: int) -> float:
        at = time.perf_counter()
        reader, writer = await asyncio.open_connection(host, port)
        body = _body(number)
        writer.write(f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = [
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        _check(int(head.split()[1]), await reader.readexactly(length), number)
        writer.close()
        return time.perf_counter() - at

    return await asyncio.gather(*map(ask, range(_CONCURRENT)))


def _ask(client: httpx.Client, address: str, number: int) -> None:
    answer = client.post(address, content=_body(number))
    _check(answer.status_code, answer.content, number)


def _body(number: int) -> bytes:
    return json.dumps({"number": number}).encode()


def _check(status: int, content: bytes, number: int) -> None:
    if status != 200 or json.loads(content) != {"number": number}:
        raise CrossdockError(f"The figures are void: a request got {status} {content[:200]!r}")


async def _echo(request: Request) -> Answer:
    return Answer(200, request.body)


def _application(port: int, partner: int) -> dict[str, Any]:
    location = {"adapter": "http", "address": f"http://127.0.0.1:{port}/", "pipeline": "json", "host": "Web"}
    sending = {
        "name": "BenchPartner",
        "adapter": "http",
        "address": f"http://127.0.0.1:{partner}/",
        "filter": "ReceivePortName = 'BenchAsk'",
        "response": {"pipeline": "json"},
        "host": "Web",
        "in_flight": 32,
    }
    return {
        "application": "exchange",
        "hosts": [{"name": "Web"}],
        "schemas": [{"type": "BenchNumber", "format": "json"}],
        "receive_ports": [
            {"name": "BenchAsk", "two_way": True, "locations": [{**location, "options": {"timeout": _TIMEOUT_SECONDS}}]}
        ],
        "send_ports": [sending],
    }


def _free_port() -> int:
    server = HttpServer("127.0.0.1", 0)
    server.start()
    server.stop()
    return server.port


Percentiles = Callable[[list[float]], dict[str, Any]]


def http_exchange(agent: Agent, home: Path, seconds: float, percentiles: Percentiles) -> dict[str, Any]:
    """The figures: at 10 a second, and a thousand at the same time."""
    with exchanging(agent, home) as address:
        paced = percentiles(paced_requests(address, 10, seconds))
        rate, latencies = concurrent_requests(address)
    return {**paced, "concurrent": {"per_s": rate, **percentiles(latencies)}}
