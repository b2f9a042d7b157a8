"""Calls of receive adapters, each in a thread of its own: a partner that hangs must not hold up the other locations.

A thread cannot be ended from outside. A call that hangs goes on until it ends by itself, and its location is left out
meanwhile. An adapter is never called twice at once, and no call keeps the process from ending.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, TypeVar

from crossdock.errors import UnansweredError
from crossdock.foreign import FOREIGN_CODE

_WAIT_SECONDS = 5.0
_LATE_SECONDS = 60.0

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Call:
    adapter: object  # kept, so that no other has the same id
    what: str
    began: float
    ended: float | None = None
    result: Future[Any] = field(default_factory=Future)


class AdapterCalls:
    """`wait` is how many seconds a caller waits for an adapter; for one that was too slow the last time, not at all."""

    def __init__(self, *, wait: float = _WAIT_SECONDS, late: float = _LATE_SECONDS) -> None:
        self._wait = wait
        self._late = late
        self._open: dict[int, _Call] = {}
        self._slow: set[int] = set()

    def list(self, adapter: object, work: Callable[[], _Result]) -> _Result:
        """What it returns or raises. UnansweredError: nothing yet; the next `list` gives it once it is there."""
        return self._call(adapter, "list", work)

    def acknowledge(self, adapter: object, work: Callable[[], _Result]) -> _Result:
        """The same; but while what was listed is not taken yet, nothing is acknowledged."""
        return self._call(adapter, "acknowledge", work)

    def _call(self, adapter: object, what: str, work: Callable[[], _Result]) -> _Result:
        self._drop_what_nobody_took()
        earlier = self._open.get(id(adapter))
        if earlier is None or (earlier.ended is not None and earlier.what == "acknowledge" != what):
            earlier = self._begin(adapter, what, work)
        if earlier.what != what or not earlier.result.done():
            seconds = time.monotonic() - earlier.began
            raise UnansweredError(seconds, late=seconds >= self._late)
        return self._taken(earlier)  # type: ignore[no-any-return]

    def _begin(self, adapter: object, what: str, work: Callable[[], Any]) -> _Call:
        call = self._open[id(adapter)] = _Call(adapter, what, time.monotonic())
        thread = Thread(target=_complete, args=(call, work), name=f"receive {what}", daemon=True)
        thread.start()
        thread.join(0 if id(adapter) in self._slow else self._wait)
        return call

    def _taken(self, call: _Call) -> Any:
        del self._open[id(call.adapter)]
        if call.ended is None or call.ended - call.began < self._wait:
            self._slow.discard(id(call.adapter))
        else:
            self._slow.add(id(call.adapter))
        return call.result.result()

    def _drop_what_nobody_took(self) -> None:
        """A location that was disabled or changed meanwhile."""
        before = time.monotonic() - self._late
        for number, call in list(self._open.items()):
            if call.ended is not None and call.ended < before:
                del self._open[number]
                self._slow.discard(number)


def _complete(call: _Call, work: Callable[[], Any]) -> None:
    try:
        with FOREIGN_CODE:
            done = work()
    except Exception as error:
        call.ended = time.monotonic()
        call.result.set_exception(error)
    else:
        call.ended = time.monotonic()
        call.result.set_result(done)
