"""How long the server takes for each page of the console, over a MessageBox that is full.

Very many messages are tracked; many are suspended at a stopped port, many instances wait, and there are many ports. All
of them were published and delivered by the functions that users call. The console is a process of its own; each page is
asked for again and again by one person over http on this machine.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from crossdock.administration.service import Administration
from crossdock.bench.messagebox import fresh_messagebox
from crossdock.bench.orchestration import Bench
from crossdock.bench.questions import HOST, deliver, deployment, fill, orders
from crossdock.bench.tabs import tabs_figures
from crossdock.errors import CrossdockError
from crossdock.maintenance.schedule import all_jobs
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent

_HELD = "Region = 'Nowhere'"
_BATCH = 2_500
_TIMES = 20

Progress = Callable[[str], None]


def bench_console(
    *,
    messages: int,
    suspended: int,
    ports: int,
    instances: int,
    tabs: int = 0,
    rounds: int = 4,
    work: int = 20_000,
    database: str,
    progress: Progress,
) -> dict[str, Any]:
    """Milliseconds of each page: the 95th percentile of its requests, and of all pages the slowest.

    With `tabs` also what so many open tabs cost: `work` messages are published and delivered in each turn.
    """
    with fresh_messagebox(database) as (agent, home), Bench.begun(agent, home, progress) as bench:
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
        with _console(agent.database, home) as browser:
            took = _asked(browser, _pages(asked[len(asked) // 2], instance.id), progress)
            open_tabs = {} if not tabs else _tabs(agent, browser, tabs, rounds, work, progress)
    figures: dict[str, Any] = {"messages": messages, "suspended": suspended, "ports": ports, "instances": instances}
    figures |= {f"{page}_p95_ms": round(_p95(each), 1) for page, each in took.items()}
    return (
        figures | {"slowest_p95_ms": max(value for name, value in figures.items() if name.endswith("_ms"))} | open_tabs
    )


def _pages(message: tuple[str, str], instance: str) -> dict[str, str]:
    id_, order = message
    where = quote(f"OrderId = '{order}'")
    return {
        "overview": "/",
        "messages": "/messages",
        "messages_by_value": f"/messages?q={where}",
        "messages_by_port": "/messages?port=Port0",
        "message": f"/messages/{id_}",
        "message_why": f"/messages/{id_}/why",
        "suspended": "/suspended",
        "suspended_by_code": "/suspended?code=port-stopped",
        "ports": "/ports",
        "instances": "/instances",
        "instance": f"/instances/{instance}",
        "plan": "/plan",
        "hosts": "/hosts",
        "audit": "/audit",
    }


def _asked(browser: httpx.Client, pages: dict[str, str], progress: Progress) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {}
    for page, path in pages.items():
        progress(f"asking for {path}")
        took[page] = [_milliseconds(browser, path) for _ in range(_TIMES)]
    return took


def _tabs(agent: Agent, browser: httpx.Client, tabs: int, rounds: int, work: int, progress: Progress) -> dict[str, Any]:
    host = agent.configuration.hosts()[HOST]

    def published_and_delivered() -> float:
        batches = orders(agent, host, range(work))
        began = time.perf_counter()
        for batch in batches:
            agent.publish([batch])
        deliver(agent, host)
        return work / (time.perf_counter() - began)

    published_and_delivered()  # what `fill` left in the queue
    cookie = "; ".join(f"{each.name}={each.value}" for each in browser.cookies.jar)
    return tabs_figures(
        agent,
        published_and_delivered,
        address=str(browser.base_url),
        cookie=cookie,
        tabs=tabs,
        rounds=rounds,
        progress=progress,
    )


@contextmanager
def _console(database: str, home: Path) -> Iterator[httpx.Client]:
    """A browser that is signed in at a console."""
    command = [sys.executable, "-m", "crossdock", "console", "--listen", "127.0.0.1:0", "--database", database]
    with subprocess.Popen([*command, "--home", str(home)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().partition(": ")[2].strip()
            if not address:
                raise CrossdockError("The console did not start: its pages cannot be measured.")
            with httpx.Client(base_url=address.partition("?")[0], follow_redirects=True, timeout=60) as browser:
                browser.get(address)
                yield browser
        finally:
            process.terminate()


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
