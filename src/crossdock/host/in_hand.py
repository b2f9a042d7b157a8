"""The references that a host instance has in hand, and how the threads that claim hear that there may be more."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock


class InHand:
    """Threads share it. `count` is how many references are claimed and not settled yet."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = Lock()
        self._moved = 0
        self._waiting_for_room = 0
        self._calls: SimpleQueue[None] = SimpleQueue()

    def hold(self, count: int) -> None:
        """So many are claimed."""
        with self._lock:
            self.count += count

    def release(self, count: int) -> None:
        """So many are settled."""
        with self._lock:
            self.count -= count
            self._moved += count
            waiting, self._waiting_for_room = self._waiting_for_room, 0
        for _ in range(waiting):
            self._calls.put(None)

    def moved(self) -> int:
        """How many were settled since the last call."""
        with self._lock:
            moved, self._moved = self._moved, 0
        return moved

    def wake(self) -> None:
        """Wake one of the threads that claim: what arrives is mostly enough for one."""
        if self._calls.empty():
            self._calls.put(None)

    def wake_all(self, threads: int) -> None:
        for _ in range(threads):
            self._calls.put(None)

    def wait(self, seconds: float) -> None:
        with suppress(Empty):
            self._calls.get(timeout=seconds)

    def wait_for_room(self, seconds: float) -> None:
        """Until something is settled."""
        with self._lock:
            self._waiting_for_room += 1
        self.wait(seconds)
