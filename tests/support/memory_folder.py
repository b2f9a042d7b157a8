"""A folder in memory, for a server that nobody reads after the run.

Every test makes and drops a database of 400 files. On ext4 that takes ten times as long: ext4 searches for an inode that
was not freed in the last five seconds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_MEMORY = Path("/dev/shm")
_NAME = "crossdock-tests-"
_ROOM_BYTES = 8 * 1024**3  # the tests of a usual run take less than one, those of `make soak` a few


@contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """A folder until the end of the block: in memory, or `otherwise` where there is little memory."""
    if not _has_room():
        yield otherwise
        return
    _remove_left_behind()
    folder = _MEMORY / f"{_NAME}{os.getpid()}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_room() -> bool:
    if not os.access(_MEMORY, os.W_OK):
        return False
    return min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) > _ROOM_BYTES


def _remove_left_behind() -> None:
    """Of runs that were killed."""
    for folder in _MEMORY.glob(f"{_NAME}*"):
        process = folder.name.removeprefix(_NAME)
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            shutil.rmtree(folder, ignore_errors=True)
