"""The threads of an instance. What ends one of them unexpectedly is kept, and `check` raises it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from crossdock.errors import UnavailableError


class Threads:
    """`name` begins the name of every thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._problem: BaseException | None = None

    def thread(self, name: str, work: Callable[[], None]) -> Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._problem = error

        return Thread(target=run, name=f"{self._name}-{name}", daemon=True)

    def check(self, what: str) -> None:
        if self._problem is not None:
            raise UnavailableError(f"{what} ended unexpectedly: {self._problem!r}") from self._problem
