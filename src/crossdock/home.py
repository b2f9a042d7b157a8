"""The home: where the embedded PostgreSQL and Spark keep files. It is closed to others, and its logs stay small."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO

from crossdock.durable import make_folder

LOG_BYTES = 20_000_000
NAMES = "names.json"
_OURS = frozenset(("postgres", "spark", "run.lock", NAMES))


def make_home(home: Path) -> bool:
    """Make it, or close it to others if it was made before; gives whether it is closed.

    A folder that is somebody else's, or holds other things too, is left as it is: others may need to enter it. What we
    keep there is closed by itself (`make_private`).
    """
    make_folder(home, 0o700)
    status = home.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid() and {each.name for each in home.iterdir()} <= _OURS:
        home.chmod(0o700)
    return not home.stat().st_mode & 0o077


def make_private(folder: Path) -> None:
    """A folder in the home that only we may enter."""
    make_home(folder.parent)
    make_folder(folder, 0o700)
    folder.chmod(0o700)


def open_log(path: Path) -> IO[bytes]:
    """To append to, by a process of which this is the log."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")


def keep_logs_small(home: Path, most: int = LOG_BYTES) -> None:
    """Move the end of each log that has grown large to `<name>.1`, under whoever appends to it.

    What is written in that moment may be missing. Any number of processes may do this at once.
    """
    for log in (home / "postgres" / "server.log", home / "spark" / "spark.log"):
        with suppress(OSError):  # there is none, or somebody else is at it
            if log.stat().st_size > most:
                _set_aside(log, most)


def _set_aside(log: Path, most: int) -> None:
    with log.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(file.fileno()).st_size
        if size <= most:  # somebody was faster
            return
        try:
            file.seek(size - most)
            kept = log.with_name(f"{log.name}.1")
            kept.unlink(missing_ok=True)
            with open_log(kept) as copy:
                shutil.copyfileobj(file, copy)
        finally:
            file.truncate(0)  # also if the disk is full: then all the more
