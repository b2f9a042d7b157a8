"""What instances cost that wait: memory, the time to wake one, and a step of one with a long history."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

from crossdock.bench.memory import resident
from crossdock.bench.multiply import multiply_waiting
from crossdock.errors import CrossdockError
from crossdock.host.limits import DEFAULT_LIMITS
from crossdock.messagebox.queues import ORCHESTRATIONS
from crossdock.orchestration.engine import ORCHESTRATION
from crossdock.orchestration.work import Worker

if TYPE_CHECKING:
    from crossdock.bench.orchestration import Bench

_WOKEN = 20
_WATCHERS = 20
_TIMED_STEPS = 10
_RELOADS = 5
_MEGABYTE = 1024 * 1024
_SENT = """
SELECT convert_from(part.body, 'UTF8')::json ->> 'id'
  FROM crossdock.queue JOIN crossdock.part ON part.id = queue.message_id
 WHERE queue.host_id = %s AND queue.subqueue = 0
"""

Figures = dict[str, Any]


def waiting_figures(bench: Bench, instances: int, woken_of: int) -> Figures:
    """Memory of this process before and after so many instances wait, and the time until one of them has stepped.

    Then the same time among `woken_of`, of which those beyond `instances` are copies of one; 0 leaves that out.
    """
    bench.progress(f"{instances:,} instances that wait")
    bench.publish("Claim", range(instances))
    before = resident(os.getpid())
    with bench.running():
        began = time.perf_counter()
        bench.wait(lambda: not bench.busy(), pause=0.1)
        seconds = time.perf_counter() - began
        after = resident(os.getpid())
        # From among those that have waited longest.
        woken, wakes = _woken(bench, range(max(1, instances // 2)), instances, [])
    figures = {
        "waiting": instances,
        "waiting_per_s": round(instances / seconds),
        "memory_before_mb": round(before / _MEGABYTE, 1),
        "memory_after_mb": round(after / _MEGABYTE, 1),
        "waiting_memory_mb": round((after - before) / _MEGABYTE, 1),
        "wake_ms": round(median(wakes) * 1000, 1),
    }
    return figures if woken_of <= instances else figures | _copied_figures(bench, instances, woken_of, woken)


def _copied_figures(bench: Bench, instances: int, woken_of: int, woken_before: list[int]) -> Figures:
    """The time to wake a copy among very many instances, none of which the engine has ever had in memory."""
    copied = range(instances, woken_of + len(woken_before))
    bench.progress(f"{woken_of:,} instances that wait, most of them copied in the database")
    began = time.perf_counter()
    multiply_waiting(bench, copied)
    seconds = time.perf_counter() - began
    with bench.running():
        _, wakes = _woken(bench, copied, woken_of, woken_before)
    return {f"wake_ms_{woken_of}": round(median(wakes) * 1000, 1), "copying_seconds": round(seconds, 3)}


def _woken(bench: Bench, numbers: range, waiting: int, before: list[int]) -> tuple[list[int], list[float]]:
    """Which were woken, with those before, and the seconds of each. Every one has to end with what it has to send."""
    bench.progress(f"waking some of {waiting:,}")
    woken = random.Random(17).sample(numbers, min(_WOKEN, len(numbers)))  # noqa: S311 - the same ones in every run
    wakes = [_wake(bench, number, done) for done, number in enumerate(woken, len(before) + 1)]
    every = [*before, *woken]
    sent = sorted(int(number) for (number,) in bench.connection.execute(_SENT, [bench.host_id]))
    left = bench.connection.execute("SELECT count(*) FROM crossdock.instance").fetchone()
    if sent != sorted(every) or left != (waiting - len(woken),) or bench.agent.statistics().suspended:
        raise CrossdockError(f"The figures are void: of {len(every)} instances that were woken {len(sent)} have ended.")
    return every, wakes


def _wake(bench: Bench, number: int, woken: int) -> float:
    """Seconds from publishing what the instance waits for until what it sends is in the queue of the port."""
    query = "SELECT count(*) FROM crossdock.queue WHERE host_id = %s AND subqueue = 0"
    began = time.perf_counter()
    bench.publish("Decision", range(number, number + 1))
    bench.wait(lambda: bench.connection.execute(query, [bench.host_id]).fetchone() == (woken,), pause=0.0005)
    return time.perf_counter() - began


def step_figures(bench: Bench, history: int) -> Figures:
    """Microseconds of a step after 10, 100 and 1,000 others, up to `history`; and of loading an instance with all."""
    bench.progress(f"{_WATCHERS} instances with {history:,} steps of history")
    watchers = range(_WATCHERS)
    bench.publish("Meter", watchers)
    with _working(bench) as (work, forget):
        work()
        figures: Figures = {}
        seconds = []
        for step in range(1, history + 1):
            bench.publish("Reading", watchers)
            seconds.append(work())
            if step in (10, 100, 1_000):
                figures[f"step_us_{step}"] = round(median(seconds[-_TIMED_STEPS:]) / _WATCHERS * 1e6)
        reloads = []
        for number in range(_RELOADS):
            bench.publish("Reading", range(number, number + 1))
            forget()
            reloads.append(work())
        figures[f"reload_ms_{history}"] = round(median(reloads) * 1000, 1)
    bench.agent.instances.terminate([each.id for each in bench.agent.instances.list()])
    return figures


@contextmanager
def _working(bench: Bench) -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    """A worker without threads: does what there is and gives the seconds of that, or forgets what it has in memory."""
    agent, host_id = bench.agent, bench.host_id

    def persist(record: Callable[[], object]) -> bool:
        record()
        return True

    worker = Worker(agent, host_id, DEFAULT_LIMITS, persist)
    lifeline = agent.queues.lifeline(host_id, ORCHESTRATION)
    lifeline.hold()

    def work() -> float:
        began = time.perf_counter()
        references = agent.queues.dequeue(
            host_id, lifeline.instance, limit=_WATCHERS, hurry=False, subqueue=ORCHESTRATIONS
        )
        worker.work(lifeline.instance, references, [])
        return time.perf_counter() - began

    try:
        yield work, worker.forget
    finally:
        lifeline.stopping()
        worker.forget()
        lifeline.end()
