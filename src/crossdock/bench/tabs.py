"""What open tabs of the console cost: messages that are published and delivered in a second, with tabs and without.

The console is a process of its own, and so are the tabs, each of which reads the stream of live numbers. Tabs are
closed and open in turns within one run, so that what else changes on the machine hits both alike.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from threading import Event, Thread
from typing import Any

from crossdock.errors import CrossdockError
from crossdock.maintenance.samples import SAMPLE_SECONDS, TakeSample
from crossdock.messagebox.agent import Agent

_LIVE = "/api/v1/live"
_READ = 1 << 16
_DEADLINE_SECONDS = 60.0

Progress = Callable[[str], None]


def tabs_figures(
    agent: Agent,
    work: Callable[[], float],
    *,
    address: str,
    cookie: str,
    tabs: int,
    rounds: int,
    progress: Progress,
) -> dict[str, Any]:
    """Rates of `work`, which gives messages per second, by turns: closed, open, open, closed, and so on.

    `tabs_ratio` is the median of the ratios of neighbours, open to closed: 0.98 means that tabs cost 2 %.
    """
    turns: list[tuple[bool, float]] = []
    events = 0
    with _sampled(agent):
        work()
        for turn in range(2 * rounds):
            is_open = turn % 4 in (1, 2)
            progress(f"turn {turn + 1} of {2 * rounds}: {f'{tabs} tabs are open' if is_open else 'no tab is open'}")
            if is_open:
                with _open_tabs(address, cookie, tabs) as opened:
                    turns.append((is_open, work()))
                events += opened.events
            else:
                turns.append((is_open, work()))
    ratios = [
        (rate / before if is_open else before / rate)
        for (was_open, before), (is_open, rate) in pairwise(turns)
        if was_open != is_open
    ]
    return {
        "tabs": tabs,
        "tabs_closed_per_s": round(median(rate for is_open, rate in turns if not is_open)),
        "tabs_open_per_s": round(median(rate for is_open, rate in turns if is_open)),
        "tabs_ratio": round(median(ratios), 3),
        "tabs_ratio_each": [round(ratio, 3) for ratio in ratios],
        "tabs_events": events,
    }


@contextmanager
def _sampled(agent: Agent) -> Iterator[None]:
    """Samples are taken as often as anywhere, in every turn."""
    stop = Event()

    def take() -> None:
        while not stop.is_set():
            TakeSample(agent).run_once()
            stop.wait(SAMPLE_SECONDS)

    thread = Thread(target=take, name="samples")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class _Opened:
    events = 0


@contextmanager
def _open_tabs(address: str, cookie: str, tabs: int) -> Iterator[_Opened]:
    """Once every tab has got its first numbers. `events` is known after the block."""
    opened = _Opened()
    command = [sys.executable, "-m", "crossdock.bench.tabs", address, str(tabs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{cookie}\n")
        process.stdin.flush()
        if process.stdout.readline().strip() != "open":
            raise CrossdockError("The tabs could not be opened: their cost cannot be measured.")
        yield opened
        opened.events = int(process.communicate()[0])


async def _read_streams(host: str, port: int, cookie: str, tabs: int) -> int:
    """Open so many streams, say so, and read them until standard input ends; gives how many events came."""
    counts = [0] * tabs
    readers = [asyncio.create_task(_read_one(host, port, cookie, counts, place)) for place in range(tabs)]
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not all(counts):
        if time.monotonic() > deadline or any(each.done() for each in readers):
            return 0
        await asyncio.sleep(0.02)
    print("open", flush=True)  # noqa: T201 - whoever started this process waits for the word
    await asyncio.to_thread(sys.stdin.read)
    for each in readers:
        each.cancel()
    return sum(counts)


async def _read_one(host: str, port: int, cookie: str, counts: list[int], place: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {_LIVE} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
    end = b""
    while chunk := await reader.read(_READ):
        counts[place] += (end + chunk).count(b"event: sample")
        end = chunk[-12:]  # one byte less than the word: none is counted twice


if __name__ == "__main__":
    _, where, count = sys.argv
    name, _, number = where.partition("//")[2].partition("/")[0].rpartition(":")
    print(asyncio.run(_read_streams(name, int(number), sys.stdin.readline().strip(), int(count))))  # noqa: T201
