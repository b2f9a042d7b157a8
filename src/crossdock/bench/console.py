"""How long the server takes for each page of the console, over a MessageBox that is full.

Very many messages are tracked; many are suspended at a stopped port, many instances wait, and there are many ports.
Each page is asked for again and again by one person over http on this machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

import httpx

from crossdock.administration.service import Administration
from crossdock.api.options import AccessOptions
from crossdock.api.serve import serve
from crossdock.bench.messagebox import fresh_messagebox
from crossdock.bench.orchestration import Bench
from crossdock.bench.questions import HOST, deployment, fill
from crossdock.console.pages import install
from crossdock.errors import CrossdockError
from crossdock.maintenance.schedule import all_jobs
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.settings import Settings

_HELD = "Region = 'Nowhere'"
_BATCH = 2_500
_TIMES = 20
_START_SECONDS = 60.0

Progress = Callable[[str], None]


def bench_console(
    *, messages: int, suspended: int, ports: int, instances: int, database: str, progress: Progress
) -> dict[str, Any]:
    """Milliseconds of each page: the 95th of a hundred requests, and of all pages the slowest."""
    with (
        tempfile.TemporaryDirectory(prefix="crossdock-bench-") as home,
        fresh_messagebox(database, Path(home)) as agent,
        Bench.begun(agent, Path(home), progress) as bench,
    ):
        agent.subscriptions.deploy(deployment(ports, more=(_HELD,)))
        asked = fill(agent, messages, progress)
        progress(f"suspending {suspended:,} messages")
        agent.subscriptions.stop(f"Port{ports}")
        _hold(agent, suspended)
        progress(f"publishing to {instances:,} instances")
        bench.publish("Claim", range(instances))
        for job in all_jobs(agent):
            job.run_once()
        service = Administration(agent, text_limit=256)
        [instance, *_] = service.instance_page().instances
        took = _asked(agent.database, _pages(asked[len(asked) // 2], instance.id), progress)
    figures: dict[str, Any] = {"messages": messages, "suspended": suspended, "ports": ports, "instances": instances}
    figures |= {f"{page}_p95_ms": round(_p95(each), 1) for page, each in took.items()}
    return figures | {"slowest_p95_ms": max(value for name, value in figures.items() if name.endswith("_ms"))}


def _pages(message: tuple[str, str], instance: str) -> dict[str, str]:
    id_, order = message
    where = quote(f"OrderId = '{order}'")
    return {
        "overview": "/",
        "messages": "/messages",
        "messages_by_value": f"/messages?where={where}",
        "messages_by_port": "/messages?port=Port0",
        "message": f"/messages/{id_}",
        "suspended": "/suspended",
        "suspended_by_code": "/suspended?code=port-stopped",
        "ports": "/ports",
        "instances": "/instances",
        "instance": f"/instances/{instance}",
        "plan": "/plan",
        "hosts": "/hosts",
        "audit": "/audit",
    }


def _asked(database: str, pages: dict[str, str], progress: Progress) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {}
    with _console(database) as browser:
        for page, path in pages.items():
            progress(f"asking for {path}")
            took[page] = [_milliseconds(browser, path) for _ in range(_TIMES)]
    return took


@contextmanager
def _console(database: str) -> Iterator[httpx.Client]:
    """A browser that is signed in at a console of this process."""
    stop, addresses = Event(), SimpleQueue[str]()
    settings, options = Settings(database=database), AccessOptions(port=0)
    serving = partial(serve, settings, options, install=install, announce=addresses.put, stop=stop)
    thread = Thread(target=serving, name="console")
    thread.start()
    try:
        address = addresses.get(timeout=_START_SECONDS)
        with httpx.Client(base_url=address.partition("?")[0], follow_redirects=True, timeout=60) as browser:
            browser.get(address)
            yield browser
    finally:
        stop.set()
        thread.join()


def _milliseconds(browser: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    answer = browser.get(path)
    took = (time.perf_counter() - began) * 1000
    if answer.status_code != 200 or answer.url.path == "/sign-in":
        raise CrossdockError(f"The page {path} was answered with {answer.status_code}: it cannot be measured.")
    return took


def _p95(milliseconds: list[float]) -> float:
    return sorted(milliseconds)[-1 - len(milliseconds) // 20]


def _hold(agent: Agent, count: int) -> None:
    host = agent.configuration.hosts()[HOST]
    for begin in range(0, count, _BATCH):
        some = [agent.message_id() for _ in range(begin, min(count, begin + _BATCH))]
        made = tuple(
            Message(id_, Context({"BTS.MessageType": "Held", "Region": "Nowhere"}), (Part("body", b"x" * 100),))
            for id_ in some
        )
        agent.publish([Publication(host, made)])
