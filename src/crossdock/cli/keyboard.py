"""Single keys of a terminal, as they are pressed."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
}


class Keyboard:
    """Reads a file descriptor that is a terminal, without echo and without waiting for the end of a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pressed(self, seconds: float) -> list[str]:
        """What is pressed within so many seconds: letters, and names such as `up`. It returns with the first."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._descriptor], [], [], left)[0]:
                return []
            if not (read := self._read()):
                return ["q"]  # the terminal is gone
            if keys := _keys(read):
                return keys
        return []

    def _read(self) -> bytes:
        with suppress(OSError):
            return os.read(self._descriptor, 64)
        return b""


@contextmanager
def keyboard(descriptor: int) -> Iterator[Keyboard]:
    """The terminal is as it was afterwards, whatever happens."""
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield Keyboard(descriptor)
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _keys(read: bytes) -> list[str]:
    """A sequence that means nothing to us is passed over."""
    found = []
    while read:
        name = next((sequence for sequence in _NAMES if read.startswith(sequence)), None)
        if name is not None:
            found.append(_NAMES[name])
            read = read[len(name) :]
        elif read.startswith(b"\x1b"):
            break
        else:
            found.append(read[:1].decode("ascii", "ignore"))
            read = read[1:]
    return [key for key in found if key]
