"""Whether somebody has a file open for writing, and how long ago it changed: is it complete?

The kernel gives a read lease only on a file that nobody has open for writing. The lease is given back at once, since
whoever opens the file for writing meanwhile has to wait for that.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from errno import EAGAIN
from fcntl import F_RDLCK, F_SETLEASE, F_SETSIG, F_UNLCK, fcntl
from signal import SIGURG

# ext2 to ext4, xfs, btrfs, f2fs, zfs, bcachefs, tmpfs, ramfs, overlayfs. Others may not know of writers elsewhere,
# and some refuse every lease as if there were one.
_KNOWS_ITS_WRITERS = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x01021994, 0x858458F6, 0x794C7630)
)
_STATUS_BYTES = 512  # more than struct statfs has anywhere
_fstatfs = ctypes.CDLL(None).fstatfs


def open_for_writing(descriptor: int) -> bool | None:
    """Whether somebody has the file open for writing; None if that cannot be told. Ours is open for reading only."""
    if _file_system(descriptor) not in _KNOWS_ITS_WRITERS:
        return None
    try:
        # Else whoever wants to write while we have the lease sends us SIGIO, which ends a process. This one is ignored.
        fcntl(descriptor, F_SETSIG, SIGURG)
        fcntl(descriptor, F_SETLEASE, F_RDLCK)
    except OSError as error:
        return True if error.errno == EAGAIN else None  # another owner's file, and we may not lease those
    fcntl(descriptor, F_SETLEASE, F_UNLCK)
    return False


def path_open_for_writing(path: str | bytes) -> bool | None:
    """The same by name. Raises FileNotFoundError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        return True if error.errno == EAGAIN else None  # somebody has a lease on it, for writing
    try:
        return open_for_writing(descriptor)
    finally:
        os.close(descriptor)


def _file_system(descriptor: int) -> int:
    """The number of its kind, which comes first in struct statfs; -1 if it cannot be told."""
    status = (ctypes.c_long * (_STATUS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    return status[0] & 0xFFFFFFFF if _fstatfs(descriptor, status) == 0 else -1


class Ages:
    """How long ago things changed. Nobody who sets the clock makes anything look old, or keeps it young for long.

    By the time that a file has, if neither our clock nor what it was when we began, and the time since, say otherwise;
    else by the time since we first saw the file like this.
    """

    def __init__(self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._began = clock() - monotonic()
        self._first_seen: dict[bytes, float] = {}
        self._seen_now: dict[bytes, float] = {}

    def begin(self) -> None:
        """What is not asked for again until the next time is forgotten."""
        self._first_seen, self._seen_now = self._seen_now, {}

    def reached(self, seconds: float, identity: bytes, changed: float) -> bool:
        """Whether what is known by this identity, and says that it changed then, is so old."""
        monotonic = self._monotonic()
        if changed <= min(self._clock(), self._began + monotonic) - seconds:
            return True
        seen = self._seen_now.setdefault(identity, self._first_seen.get(identity, monotonic))
        return monotonic - seen >= seconds
