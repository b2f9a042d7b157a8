"""The threads in which the pipelines of one http location run, so that a slow one holds up nobody else's.

A thread cannot be ended from outside. One whose work takes too long is lost until that ends by itself; a location that
has lost all of its threads takes nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Condition, Thread, get_ident
from typing import TypeVar

from crossdock.errors import ForeignError, PipelineError, SlowPipelineError, TransientError
from crossdock.foreign import FOREIGN_CODE

MOST_THREADS = 8
_IDLE_SECONDS = 10.0

_Result = TypeVar("_Result")


class PipelineThreads:
    """Made when they are needed, and ended when they are not; they do not keep the process from ending."""

    def __init__(self, location: str, seconds: float) -> None:
        self._location = location
        self._seconds = seconds
        self._changed = Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._began: dict[int, float] = {}

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """What it returns or raises. TerminalError once the time is over, TransientError if no thread came free."""
        if self._lost() >= MOST_THREADS:
            raise TransientError(
                f"receive location {self._location!r}: its pipeline has not ended in {MOST_THREADS} threads, "
                "which is all that there are"
            )
        future: Future[_Result] = Future()
        todo = partial(_complete, future, work)
        self._add(todo)
        result = asyncio.wrap_future(future)
        try:
            await asyncio.wait([result], timeout=self._seconds)
            if result.done():
                return result.result()
        finally:
            has_begun = not future.cancel()
            result.cancel()
            if not has_begun:
                self._forget(todo)
        if has_begun:
            raise SlowPipelineError(
                f"receive location {self._location!r}: the pipeline took more than {self._seconds:g} seconds; "
                "its thread is lost until it ends"
            )
        raise TransientError(f"receive location {self._location!r}: no thread came free in {self._seconds:g} seconds")

    def _lost(self) -> int:
        now = time.monotonic()
        with self._changed:
            return sum(now - began > self._seconds for began in self._began.values())

    def _add(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._waiting.append(work)
            if len(self._waiting) <= self._idle:
                self._changed.notify()
            elif self._idle + len(self._began) < MOST_THREADS:
                try:
                    Thread(target=self._work, name=f"receive {self._location}", daemon=True).start()
                except RuntimeError:  # there can be no more threads
                    self._waiting.remove(work)
                    raise
                self._idle += 1  # it looks for work once we let go of the lock

    def _forget(self, work: Callable[[], None]) -> None:
        with self._changed, suppress(ValueError):  # a thread has it already, and sees that it is cancelled
            self._waiting.remove(work)

    def _work(self) -> None:
        while (work := self._next()) is not None:
            work()
            with self._changed:
                del self._began[get_ident()]
                self._idle += 1

    def _next(self) -> Callable[[], None] | None:
        """None after a while in which there was nothing to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS)
            self._idle -= 1
            if not self._waiting:
                return None
            self._began[get_ident()] = time.monotonic()
            return self._waiting.popleft()


def _complete(future: Future[_Result], work: Callable[[], _Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        with FOREIGN_CODE:  # SystemExit, say, would end the event loop
            result = work()
    except ForeignError as error:
        future.set_exception(PipelineError(f"the pipeline ended with {error}"))
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)
