"""The threads of an http location: bounded, made when needed, and counted as lost when their work does not end."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from threading import Event

import pytest

from crossdock.errors import SlowPipelineError, TerminalError, TransientError
from crossdock.receive import threads as receive_threads
from crossdock.receive.threads import MOST_THREADS, PipelineThreads
from walk import until


def run(threads: PipelineThreads, *works: Callable[[], object]) -> list[object]:
    async def together() -> list[object]:
        return await asyncio.gather(*(threads.run(work) for work in works), return_exceptions=True)

    return asyncio.run(together())


def alive(name: str) -> int:
    return sum(thread.name == f"receive {name}" for thread in threading.enumerate())


def fails() -> None:
    raise KeyError("x")


def test_work_gives_what_it_returns_or_raises_and_never_ends_the_event_loop() -> None:
    value, error, ended = run(PipelineThreads("A", 30), lambda: 7, fails, sys.exit)

    assert (value, type(error)) == (7, KeyError)
    assert isinstance(ended, TerminalError)


def test_there_are_no_more_threads_than_allowed_and_none_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_threads, "_IDLE_SECONDS", 0.2)
    threads = PipelineThreads("Few", 30)

    seen = run(threads, *[lambda: alive("Few")] * 100)

    assert max(count for count in seen if isinstance(count, int)) <= MOST_THREADS
    until(lambda: alive("Few") == 0, 20)
    assert run(threads, lambda: 7) == [7]


def test_work_that_does_not_end_costs_a_thread_and_what_found_none_may_come_again() -> None:
    threads, go, begun = PipelineThreads("Stuck", 0.3), Event(), []

    def stuck() -> None:
        begun.append(1)
        assert go.wait(60)

    errors = run(threads, *[stuck] * (MOST_THREADS + 2))
    [refused] = run(threads, lambda: 7)
    go.set()

    assert [type(error) for error in errors] == [SlowPipelineError] * MOST_THREADS + [TransientError] * 2
    assert "'Stuck': no thread came free in 0.3 seconds" in str(errors[-1])
    assert isinstance(refused, TransientError)
    until(lambda: run(threads, lambda: 7) == [7], 20)
    assert len(begun) == MOST_THREADS


def test_thread_that_cannot_be_started_takes_nothing_from_those_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = PipelineThreads("Full", 30)

    class NoMore(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(receive_threads, "Thread", NoMore)
        refused = run(threads, *[lambda: 1] * MOST_THREADS)
    assert {type(error) for error in refused} == {RuntimeError}

    assert run(threads, *[lambda: 2] * MOST_THREADS) == [2] * MOST_THREADS
