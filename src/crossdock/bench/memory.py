"""How much memory processes take at most, looked at twice a second in /proc; where there is none, nothing is known."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

_INTERVAL_SECONDS = 0.5
_PROC = Path("/proc")


class PeakMemory:
    """Watches this process, a Java process and its Python workers, between `start` and `stop`.

    `peak` is in bytes of resident memory, of all workers together. Pages that workers share count for each of them.
    """

    def __init__(self, java: int) -> None:
        self._java = java
        self._stopping = Event()
        self._thread = Thread(target=self._watch, name="memory", daemon=True)
        self.peak: dict[str, int] = {"driver": 0, "jvm": 0, "python_workers": 0}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(_INTERVAL_SECONDS):
            self.look()

    def look(self) -> None:
        """Once; kept if it is more than before."""
        seen = {
            "driver": resident(os.getpid()),
            "jvm": resident(self._java),
            "python_workers": sum(map(resident, _descendants(self._java))),
        }
        self.peak = {name: max(size, self.peak[name]) for name, size in seen.items()}


def resident(process: int) -> int:
    with suppress(OSError):  # it may have ended meanwhile
        pages = (_PROC / str(process) / "statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _descendants(process: int) -> list[int]:
    children = _children()
    found, following = [], list(children.get(process, ()))
    while following:
        found.append(following.pop())
        following += children.get(found[-1], ())
    return found


def _children() -> Mapping[int, list[int]]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for status in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may hold blanks; the parent is the second field after it.
            parent = status.read_text().rpartition(")")[2].split()[1]
            children[int(parent)].append(int(status.parent.name))
    return children
