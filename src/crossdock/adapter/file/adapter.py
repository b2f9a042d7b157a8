"""The file transport: reads files that match a mask and settles them once published; writes one file per message.

A file is known by path, inode, modification time and size, so that the same name with new content is a new source.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from errno import EAGAIN, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from fnmatch import translate
from pathlib import Path
from typing import Any, assert_never

from crossdock.adapter.contract import Listing, Source
from crossdock.adapter.file.archive import Archive
from crossdock.adapter.file.complete import Ages, open_for_writing, path_open_for_writing
from crossdock.adapter.file.settle import (
    SETTLED,
    WRITING,
    identity_of,
    is_file_of,
    is_identity_of,
    original_name,
    path_of,
    path_of_folder,
    put_back,
    settle,
)
from crossdock.adapter.file.transport import FileReceiveOptions
from crossdock.adapter.file.write import declared_folder, open_folder, path_for, remove_left_over, write
from crossdock.durable import Folders, sync
from crossdock.errors import ApplicationError, TerminalError, TransientError
from crossdock.message.message import Message
from crossdock.printable import printable

_UNTOLD = 10  # times the age, where it cannot be told whether somebody has a file open
_SETTLED_LEFT_OVER_SECONDS = 60.0
_GONE = (ENOENT, ENOTDIR, ELOOP)

logger = logging.getLogger(__name__)


class FileReceiveAdapter:
    """Reads the files of one folder whose name fits the mask at the end of `address`; dot files are left alone.

    With `subfolders`, those of every folder below too; links to folders are not followed. Files smaller or larger than
    the sizes, in bytes, are left alone. With an `archive`, files whose messages are safe go there, under the path
    they had in the folder. With a `marker`, a file is read once there is one of its name and that ending.
    """

    def __init__(
        self,
        address: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        self._options = given = FileReceiveOptions(**options)
        self.folder, self.mask = Path(address).parent, Path(address).name
        self.archive = None if given.archive is None else Path(given.archive)
        if self.archive is not None and self.folder.resolve().is_relative_to(self.archive.resolve()):
            raise ApplicationError(
                f"archive {given.archive} holds the folder that is read, {self.folder}; name another folder"
            )
        self._sizes = range(given.minimum_size, sys.maxsize if given.maximum_size is None else given.maximum_size + 1)
        if given.maximum_size is not None and not self._sizes:
            raise ApplicationError(
                f"no file is at least {given.minimum_size:,} and at most {given.maximum_size:,} bytes"
            )
        self.marker = given.marker
        if self.marker is not None and "/" in self.marker:
            raise ApplicationError(f"marker {self.marker!r} is the ending of a name, such as .done, and has no /")
        self._fits = re.compile(translate(self.mask)).match
        self._ages = Ages(clock, monotonic)
        self._archive = None if self.archive is None else Archive(self.archive, self.folder)
        self._ready: set[bytes] = set()
        self._unreadable: set[str] = set()

    def list(self) -> Listing:
        ready: list[Source] = []
        held: list[str] = []
        incomplete = 0
        self._ages.begin()
        for entry in self._entries():
            if (status := self._status(entry)) is None:
                continue
            identity = identity_of(os.fsencode(entry.path), status)
            match self._completeness(entry, identity, status):
                case Completeness.COMPLETE:
                    ready.append(Source(identity, status.st_size))
                case Completeness.INCOMPLETE:
                    incomplete += 1
                case Completeness.HELD:
                    held.append(printable_path(os.fsencode(entry.path)))
                case Completeness.GONE:
                    pass
                case other:
                    assert_never(other)
        self._ready = {source.identity for source in ready}
        return Listing(tuple(ready), incomplete, tuple(held))

    def read(self, identity: bytes) -> bytes | None:
        return self.read_range(identity, 0, -1)

    def read_range(self, identity: bytes, start: int, length: int) -> bytes | None:
        try:
            with self._opened(identity) as descriptor:
                status = os.fstat(descriptor)
                if not is_identity_of(identity, status):
                    return None
                if open_for_writing(descriptor):
                    raise BlockingIOError(EAGAIN, "somebody has it open for writing")
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    file.seek(start)
                    # No more than was listed, though it grows while we read: somebody waits until our lease is gone.
                    content = file.read(status.st_size if length < 0 else length)
                # Still the same after reading: nobody wrote to it meanwhile.
                return content if is_identity_of(identity, os.fstat(descriptor)) else None
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise TransientError(f"file {self.name(identity)} cannot be read: {error.strerror}") from error

    def acknowledge(self, identity: bytes) -> None:
        """Remove the file or move it to the archive; a file of the same name put there meanwhile stays."""
        self.acknowledge_batch([identity])

    def acknowledge_batch(self, identities: Sequence[bytes]) -> None:
        """What is gone is so on disk, too, when this returns: each folder is synced once."""
        places: defaultdict[tuple[bytes, ...], list[tuple[bytes, bytes]]] = defaultdict(list)
        for identity in identities:
            below = self._below(path_of(identity))
            if below is None:
                logger.warning("File %s is not below %s and stays", self.name(identity), printable_path(self.folder))
            else:
                places[below[:-1]].append((below[-1], identity))
        failures = [failure for folders, files in places.items() for failure in self._settle(folders, files)]
        for identity, error in failures:
            done = "removed" if self.archive is None else f"moved to {printable_path(self.archive)}"
            raise TransientError(f"file {self.name(identity)} cannot be {done}: {error.strerror}") from error

    def name(self, identity: bytes) -> str:
        return printable_path(path_of(identity))

    def _settle(
        self, folders: tuple[bytes, ...], files: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[tuple[bytes, OSError]]:
        """Files of one folder; those that cannot be removed now, and why."""
        try:
            with self._folder(folders) as folder:
                if self.marker is not None:
                    self._remove_markers(folder, files)
                for name, identity in files:
                    try:
                        self._settle_one(identity, folder, folders, name)
                    except OSError as error:
                        self._ready.discard(identity)
                        yield identity, error
                sync(folder)
        except OSError as error:
            if error.errno not in _GONE:
                yield files[0][1], error

    def _settle_one(self, identity: bytes, folder: bytes, folders: tuple[bytes, ...], name: bytes) -> None:
        archive = self._archive
        take = None if archive is None else lambda file: archive.take(identity, file, folders, name)
        settle(identity, os.path.join(folder, name), take)  # noqa: PTH118

    def _remove_markers(self, folder: bytes, files: Sequence[tuple[bytes, bytes]]) -> None:
        """First, and for good: one that is left would say of the next file of that name that it is complete."""
        for name, identity in files:
            path = os.path.join(folder, name)  # noqa: PTH118
            if is_file_of(identity, path):
                Path(os.fsdecode(path + os.fsencode(self.marker or ""))).unlink(missing_ok=True)
        sync(folder)

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """What is in the folder, and below it if asked for; one folder is open at a time."""
        folders = [str(self.folder)]
        archive = _place(self.archive)
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if not self._options.subfolders or not entry.is_dir(follow_symlinks=False):
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

    def _report_entry(self, entry: os.DirEntry[str], error: OSError) -> None:
        """If it is in the folder itself, we may not look there at all. Below it, one entry must not stop the others."""
        name = printable_path(os.fsencode(entry.path))
        if os.path.dirname(entry.path) == str(self.folder):  # noqa: PTH120
            raise TransientError(f"file {name} cannot be listed: {error.strerror}") from error
        if error.errno not in _GONE and entry.path not in self._unreadable:
            self._unreadable.add(entry.path)
            logger.warning("File %s cannot be listed and is left out: %s", name, error.strerror)

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result | None:
        """None if it is not ours to read."""
        ours = entry.name.startswith(WRITING) or (self.marker is not None and entry.name.endswith(self.marker))
        hidden = entry.name.startswith(".") and not self.mask.startswith(".")
        try:
            if entry.name.startswith(SETTLED):
                self._restore_left_over(entry)
            if ours or hidden or not self._fits(entry.name) or not entry.is_file(follow_symlinks=False):
                return None
            if self.marker is not None and not os.path.lexists(entry.path + self.marker):
                return None
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report_entry(entry, error)
            return None
        if self._unreadable:
            self._unreadable.discard(entry.path)
        return status if status.st_size in self._sizes else None

    def _completeness(self, entry: os.DirEntry[str], identity: bytes, status: os.stat_result) -> Completeness:
        """Unchanged for a while, and nobody has it open for writing; for a longer while where that cannot be told."""
        if identity in self._ready:  # looked at before; whoever reads or removes it looks again
            return Completeness.COMPLETE
        marked, changed = self.marker is not None, status.st_mtime_ns / 1e9
        if not marked and not self._ages.reached(self._options.minimum_age, identity, changed):
            return Completeness.INCOMPLETE
        try:
            written = path_open_for_writing(entry.path)
        except FileNotFoundError:
            return Completeness.GONE
        if written:
            return Completeness.HELD
        longer = _UNTOLD * self._options.minimum_age
        if written is None and not marked and not self._ages.reached(longer, identity, changed):
            return Completeness.INCOMPLETE
        return Completeness.COMPLETE

    def _restore_left_over(self, entry: os.DirEntry[str]) -> None:
        """A process died between moving a file aside and removing it: put it back, so that it is looked at again.

        Anybody can give a file such a name: what is not one of ours stays, and so does what cannot be put back.
        """
        original, below = original_name(os.fsencode(entry.name)), self._below(os.fsencode(entry.path))
        if original is None or below is None or not entry.is_file(follow_symlinks=False):
            return
        try:
            status = entry.stat(follow_symlinks=False)
            with self._folder(below[:-1]) as folder:
                aside, path = os.path.join(folder, below[-1]), os.path.join(folder, original)  # noqa: PTH118
                key = identity_of(os.fsencode(entry.path), status)
                halfway = os.path.lexists(path) and os.path.samestat(os.lstat(path), status)
                if halfway or self._ages.reached(_SETTLED_LEFT_OVER_SECONDS, key, status.st_ctime):
                    put_back(aside, path)
        except OSError as error:
            if error.errno not in _GONE and entry.path not in self._unreadable:
                self._unreadable.add(entry.path)
                name = printable_path(os.fsencode(entry.path))
                logger.warning("File %s cannot be given its name back and stays: %s", name, error.strerror)

    @contextmanager
    def _opened(self, identity: bytes) -> Iterator[int]:
        """The file, for reading. Raises FileNotFoundError, also if it is not below the folder."""
        below = self._below(path_of(identity))
        if below is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
        with self._descriptor(below[:-1]) as folder:
            descriptor = os.open(below[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _folder(self, below: Sequence[bytes]) -> Iterator[bytes]:
        """A folder by a name that leads there and nowhere else, whatever is moved or linked meanwhile."""
        with self._descriptor(below) as descriptor:
            yield path_of_folder(descriptor)

    @contextmanager
    def _descriptor(self, below: Sequence[bytes]) -> Iterator[int]:
        """Folder by folder, so that none of them can be a link by now that leads elsewhere."""
        try:
            at = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:  # no word about what is in it
            raise TransientError(f"folder {printable_path(self.folder)} cannot be read: {error.strerror}") from error
        try:
            for name in below:
                found = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = found
            yield at
        finally:
            os.close(at)

    def _below(self, path: bytes) -> tuple[bytes, ...] | None:
        """The names that lead from the folder to the file. None if it is elsewhere: a row of the ledger may say so."""
        if not path or b"\0" in path:
            return None
        names = os.path.relpath(path, os.fsencode(self.folder)).split(b"/")
        return None if b".." in names or names == [b"."] else tuple(names)


class Completeness(Enum):
    """Whether a file can be read."""

    COMPLETE = auto()
    INCOMPLETE = auto()
    HELD = auto()
    GONE = auto()


class FileSendAdapter:
    """Writes each message to `address`, a path with macros: %MessageID%, %SourceFileName%, %datetime%, properties.

    The file lies `within` a folder, once all links are resolved: for an address that a message brings, the one that is
    given; else the one that the address names before its first macro.
    """

    def __init__(self, address: str, *, within: Path | None = None) -> None:
        self.address = address
        self._within = declared_folder(address) if within is None else within
        self._folders = Folders()

    def send(self, message: Message, *, attempt: int) -> None:
        target = path_for(self.address, message)
        try:
            with open_folder(target.parent, self._within, self._folders) as folder:
                if attempt > 0:
                    remove_left_over(folder, message)
                write(folder, target.name, message)
        except FileExistsError as error:
            raise TerminalError(f"file {target} exists with other content") from error
        except OSError as error:
            kind = TerminalError if error.errno == ENAMETOOLONG else TransientError
            raise kind(f"file {target} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """There is nothing to let go of."""


def printable_path(path: Path | bytes) -> str:
    """A path as text; what is not UTF-8 in it, or not printable, is escaped."""
    return printable(os.fsencode(path).decode("utf-8", "backslashreplace"))


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
