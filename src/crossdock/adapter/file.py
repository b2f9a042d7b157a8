"""The file transport: reads files that match a mask and settles them once published; writes one file per message.

A file is known by path, inode, modification time and size, so that the same name with new content is a new source.
"""

from __future__ import annotations

import filecmp
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from errno import ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from fnmatch import translate
from pathlib import Path
from uuid import uuid4

from crossdock.adapter.contract import Listing, Source
from crossdock.adapter.file_settle import (
    SETTLED,
    WRITING,
    identity_of,
    make_folder,
    original_name,
    path_of,
    put_back,
    settle,
    sync,
)
from crossdock.errors import ApplicationError, TerminalError, TransientError
from crossdock.message.message import Message

MINIMUM_AGE_SECONDS = 1.0
_SETTLED_LEFT_OVER_SECONDS = 60.0
_GONE = (ENOENT, ENOTDIR, ELOOP)

logger = logging.getLogger(__name__)


class FileReceiveAdapter:
    """Reads the files of one folder whose name fits the mask at the end of `address`; dot files are left alone.

    With `subfolders`, those of every folder below too; links to folders are not followed. Files smaller or larger than
    the sizes, in bytes, are left alone. With an `archive`, files whose messages are safe go there, under the path
    they had in the folder.
    """

    def __init__(
        self,
        address: str,
        *,
        subfolders: bool = False,
        minimum_age: float = MINIMUM_AGE_SECONDS,
        minimum_size: int = 0,
        maximum_size: int | None = None,
        archive: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder, self.mask = Path(address).parent, Path(address).name
        self.archive = None if archive is None else Path(archive)
        if self.archive is not None and self.folder.resolve().is_relative_to(self.archive.resolve()):
            raise ApplicationError(
                f"archive {archive} holds the folder that is read, {self.folder}; name another folder"
            )
        if maximum_size is not None and maximum_size < minimum_size:
            raise ApplicationError(f"no file is at least {minimum_size:,} and at most {maximum_size:,} bytes")
        self._fits = re.compile(translate(self.mask)).match
        self._subfolders = subfolders
        self._minimum_age = minimum_age
        self._minimum_size = minimum_size
        self._maximum_size = sys.maxsize if maximum_size is None else maximum_size
        self._clock = clock
        self._first_seen: dict[bytes, float] = {}
        self._unreadable: set[str] = set()

    def list(self) -> Listing:
        ready: list[Source] = []
        young: dict[bytes, float] = {}
        incomplete = 0
        for entry in self._entries():
            if (status := self._status(entry)) is None:
                continue
            identity = identity_of(os.fsencode(entry.path), status)
            if self._complete(identity, status.st_mtime_ns / 1e9, young):
                ready.append(Source(identity, status.st_size))
            else:
                incomplete += 1
        self._first_seen = young
        return Listing(tuple(ready), incomplete)

    def read(self, identity: bytes) -> bytes | None:
        return self.read_range(identity, 0, -1)

    def read_range(self, identity: bytes, start: int, length: int) -> bytes | None:
        path = path_of(identity)
        try:
            descriptor = self._open(path)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise TransientError(f"file {self.name(identity)} cannot be read: {error.strerror}") from error
        try:
            if identity_of(path, os.fstat(descriptor)) != identity:
                return None
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                file.seek(start)
                content = file.read(length)
            # Still the same after reading: nobody wrote to it meanwhile.
            return content if identity_of(path, os.fstat(descriptor)) == identity else None
        except OSError as error:
            raise TransientError(f"file {self.name(identity)} cannot be read: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def acknowledge(self, identity: bytes) -> None:
        """Remove the file or move it to the archive; a file of the same name put there meanwhile stays."""
        try:
            settle(identity, self._target(identity))
        except OSError as error:
            done = "removed" if self.archive is None else f"moved to {printable_path(self.archive)}"
            raise TransientError(f"file {self.name(identity)} cannot be {done}: {error.strerror}") from error

    def name(self, identity: bytes) -> str:
        return printable_path(path_of(identity))

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """What is in the folder, and below it if asked for; one folder is open at a time."""
        folders = [str(self.folder)]
        archive = _place(self.archive)
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if not self._subfolders or not entry.is_dir(follow_symlinks=False):
                            yield entry
                        elif not entry.name.startswith(".") and (archive is None or _place(entry.path) != archive):
                            folders.append(entry.path)
                self._unreadable.discard(folder)
            except OSError as error:
                self._report(folder, error)

    def _report(self, folder: str, error: OSError) -> None:
        """The folder itself has to be there. One below it may have been removed; else it is reported, once."""
        if folder == str(self.folder):
            raise TransientError(f"folder {printable_path(self.folder)} cannot be read: {error.strerror}") from error
        if error.errno not in _GONE and folder not in self._unreadable:
            self._unreadable.add(folder)
            logger.warning("Folder %s cannot be read and is left out: %s", printable_path(Path(folder)), error.strerror)

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result | None:
        """None if it is not ours to read."""
        ours = entry.name.startswith(WRITING)
        hidden = entry.name.startswith(".") and not self.mask.startswith(".")
        try:
            if entry.name.startswith(SETTLED):
                self._restore_left_over(entry)
            if ours or hidden or not self._fits(entry.name) or not entry.is_file(follow_symlinks=False):
                return None
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TransientError(
                f"file {printable_path(Path(entry.path))} cannot be listed: {error.strerror}"
            ) from error
        return status if self._minimum_size <= status.st_size <= self._maximum_size else None

    def _complete(self, identity: bytes, modified: float, young: dict[bytes, float]) -> bool:
        """Unchanged for a while, by its own time or, where clocks differ, by ours; `young` is when we first saw it."""
        now = self._clock()
        if modified <= now - self._minimum_age:
            return True
        young[identity] = self._first_seen.get(identity, now)
        return now - young[identity] >= self._minimum_age

    def _restore_left_over(self, entry: os.DirEntry[str]) -> None:
        """A process died between moving a file aside and removing it: put it back, so that it is looked at again.

        Anybody can give a file such a name: what is not one of ours stays, and so does what cannot be put back.
        """
        original = original_name(os.fsencode(entry.name))
        if original is None or not entry.is_file(follow_symlinks=False):
            return
        if self._clock() - entry.stat(follow_symlinks=False).st_ctime <= _SETTLED_LEFT_OVER_SECONDS:
            return
        aside = os.fsencode(entry.path)
        try:
            put_back(aside, os.path.join(os.path.dirname(aside), original))  # noqa: PTH118, PTH120
        except OSError as error:
            if error.errno not in _GONE and entry.path not in self._unreadable:
                self._unreadable.add(entry.path)
                name = printable_path(aside)
                logger.warning("File %s cannot be given its name back and stays: %s", name, error.strerror)

    def _open(self, path: bytes) -> int:
        """Folder by folder, so that none of them can be a link by now that leads elsewhere."""
        *folders, name = self._below(path).split(b"/")
        at = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in folders:
                below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        finally:
            os.close(at)

    def _below(self, path: bytes) -> bytes:
        return os.path.relpath(path, os.fsencode(self.folder))

    def _target(self, identity: bytes) -> bytes | None:
        """Where the file goes in the archive."""
        if self.archive is None:
            return None
        below = self._below(path_of(identity))
        if below.startswith(b"../"):  # listed when the location had another folder
            below = os.path.basename(below)  # noqa: PTH119
        return os.path.join(os.fsencode(self.archive), below)  # noqa: PTH118


class FileSendAdapter:
    """Writes each message to `address`, a path with the macros %MessageID%, %SourceFileName% and %datetime%."""

    def __init__(self, address: str) -> None:
        self.address = address

    def send(self, message: Message, *, attempt: int) -> None:
        target = Path(_expand(self.address, message))
        try:
            make_folder(target.parent)
            if attempt > 0:
                _remove_left_over(target.parent, message)
            _write(target, message)
        except FileExistsError as error:
            raise TerminalError(f"file {target} exists with other content") from error
        except OSError as error:
            kind = TerminalError if error.errno == ENAMETOOLONG else TransientError
            raise kind(f"file {target} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """There is nothing to let go of."""


def _write(target: Path, message: Message) -> None:
    """Under a temporary name, then linked: never half a file under its name, never over another file."""
    temporary = target.with_name(f"{WRITING}{message.id}-{uuid4().hex[:8]}")
    try:
        with temporary.open("xb") as file:
            for chunk in message.parts[0].chunks():
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        except FileExistsError:
            if not filecmp.cmp(temporary, target, shallow=False):
                raise
        sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_left_over(folder: Path, message: Message) -> None:
    """An earlier attempt may have died while writing."""
    for left_over in folder.glob(f"{WRITING}{message.id}-*"):
        left_over.unlink(missing_ok=True)


def _expand(address: str, message: Message) -> str:
    source = Path(str(message.context.get("FILE.ReceivedFileName") or message.id)).name
    position = message.context.get("BTS.InterchangeSequenceNumber")
    split = position is not None and (position != 1 or message.context.get("BTS.LastInterchangeMessage") is False)
    if split:
        source = f"{Path(source).stem}-{position}{Path(source).suffix}"
    macros = {
        "%MessageID%": str(message.id),
        "%SourceFileName%": source,
        "%datetime%": datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%f"),
    }
    return re.sub("|".join(macros), lambda macro: macros[macro[0]], address)


def printable_path(path: Path | bytes) -> str:
    """A path as text; what is not UTF-8 in it is escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def file_identity(path: Path) -> bytes:
    """How the file at `path` is known."""
    return identity_of(os.fsencode(path.absolute()), path.stat())


def _place(path: Path | str | None) -> tuple[int, int] | None:
    """What is the same for every name of one folder; None if there is no such folder."""
    try:
        status = None if path is None else os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)
