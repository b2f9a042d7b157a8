"""Names on disk that survive a power loss: a name is safe once the folder that holds it has been synced.

Whoever makes, renames or removes a name that a promise rests on syncs its folder before he keeps the promise.
"""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EBADF, EINVAL, ENOTDIR, ENOTSUP
from pathlib import Path

# What a file system says that cannot sync a folder, such as some network file systems.
_NO_SYNC = (EINVAL, EBADF, ENOTSUP)
_REMEMBERED = 1_000


def sync(folder: Path | bytes | int) -> None:
    """Make the names in a folder safe on disk."""
    descriptor = folder if isinstance(folder, int) else os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        if descriptor is not folder:
            os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """With the folders above it, each as safe on disk as a file in it will be.

    A folder that is there may be new: whoever made it may have died before he synced it, or be about to.
    """
    if folder.is_dir():
        with suppress(PermissionError):  # a folder above it that we may not read is not one that we made
            sync(folder.parent)
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(mode, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR)) from error
    sync(folder.parent)


class Folders:
    """The folders that are known to be safe on disk, so that each is synced once. Threads may share it."""

    def __init__(self) -> None:
        self._safe: set[Path] = set()

    def __contains__(self, folder: Path) -> bool:
        return folder in self._safe

    def add(self, folder: Path) -> None:
        if len(self._safe) >= _REMEMBERED:  # the names may hold the date
            self._safe.clear()
        self._safe.add(folder)

    def make(self, folder: Path) -> None:
        """As `make_folder`."""
        if folder not in self or not folder.is_dir():
            make_folder(folder)
            self.add(folder)
