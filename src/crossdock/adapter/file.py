"""The file transport: reads files that match a mask and removes them once published; writes one file per message.

A file is known by path, inode, modification time and size, so that the same name with new content is a new source.
"""

from __future__ import annotations

import filecmp
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from errno import ENAMETOOLONG, ENOTDIR
from fnmatch import fnmatchcase
from pathlib import Path
from uuid import uuid4

from crossdock.adapter.contract import Listing, Source
from crossdock.errors import TerminalError, TransientError
from crossdock.message.message import Message

MINIMUM_AGE_SECONDS = 1.0
_SETTLED = ".crossdock-settled-"
_SETTLED_LEFT_OVER_SECONDS = 60.0
_WRITING = ".crossdock-"


class FileReceiveAdapter:
    """Reads the files of one folder whose name fits the mask at the end of `address`; dot files are left alone."""

    def __init__(
        self, address: str, *, minimum_age: float = MINIMUM_AGE_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder, self.mask = Path(address).parent, Path(address).name
        self._minimum_age = minimum_age
        self._clock = clock
        self._first_seen: dict[bytes, float] = {}

    def list(self) -> Listing:
        try:
            with os.scandir(self.folder) as entries:
                sources = [source for entry in entries if (source := self._source(entry)) is not None]
        except OSError as error:
            raise TransientError(f"folder {self.folder} cannot be read: {error.strerror}") from error
        ready = [source for source in sources if self._complete(source)]
        self._first_seen = {s.identity: seen for s in sources if (seen := self._first_seen.get(s.identity))}
        return Listing(tuple(ready), incomplete=len(sources) - len(ready))

    def read(self, identity: bytes) -> bytes | None:
        return self.read_range(identity, 0, -1)

    def read_range(self, identity: bytes, start: int, length: int) -> bytes | None:
        path = _path(identity)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TransientError(f"file {self.name(identity)} cannot be read: {error.strerror}") from error
        try:
            with os.fdopen(descriptor, "rb") as file:
                file.seek(start)
                content = file.read(length) if _identity(path, os.fstat(descriptor)) == identity else None
                # Still the same after reading: nobody wrote to it meanwhile.
                return content if _identity(path, os.fstat(descriptor)) == identity else None
        except OSError as error:
            raise TransientError(f"file {self.name(identity)} cannot be read: {error.strerror}") from error

    def acknowledge(self, identity: bytes) -> None:
        """Move aside, look, then remove: a file of the same name put there meanwhile is put back, not lost."""
        path, aside = _path(identity), _aside(identity)
        try:
            if _is(identity, path):
                _rename(path, aside)
            # Also when it was moved aside before, by a process that then died.
            if _is(identity, aside):
                os.unlink(aside)  # noqa: PTH108 - paths are bytes, since names need not be UTF-8
            elif os.path.lexists(aside):
                _put_back(aside, path)
        except FileNotFoundError:
            return  # another process was faster
        except OSError as error:
            raise TransientError(f"file {self.name(identity)} cannot be removed: {error.strerror}") from error

    def name(self, identity: bytes) -> str:
        return printable_path(_path(identity))

    def _source(self, entry: os.DirEntry[str]) -> Source | None:
        ours = entry.name.startswith(_WRITING)
        hidden = entry.name.startswith(".") and not self.mask.startswith(".")
        try:
            if entry.name.startswith(_SETTLED):
                self._restore_left_over(entry)
            if ours or hidden or not fnmatchcase(entry.name, self.mask):
                return None
            if not entry.is_file(follow_symlinks=False):
                return None
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        return Source(_identity(os.fsencode(entry.path), status), status.st_size)

    def _complete(self, source: Source) -> bool:
        """Unchanged for a while, by its own time or, where clocks differ, by ours."""
        now = self._clock()
        modified = int(source.identity.split(b":", 3)[1]) / 1e9
        if 0 <= now - modified < self._minimum_age or modified > now:
            return now - self._first_seen.setdefault(source.identity, now) >= self._minimum_age
        return True

    def _restore_left_over(self, entry: os.DirEntry[str]) -> None:
        """A process died between moving a file aside and removing it: put it back, so that it is looked at again."""
        _, _, original = entry.name.removeprefix(_SETTLED).partition("-")
        age = self._clock() - entry.stat(follow_symlinks=False).st_ctime
        if original and age > _SETTLED_LEFT_OVER_SECONDS:
            _put_back(os.fsencode(entry.path), os.fsencode(Path(entry.path).with_name(original)))


class FileSendAdapter:
    """Writes each message to `address`, a path with the macros %MessageID%, %SourceFileName% and %datetime%."""

    def __init__(self, address: str) -> None:
        self.address = address

    def send(self, message: Message, *, attempt: int) -> None:
        target = Path(_expand(self.address, message))
        try:
            _make_folder(target.parent)
            if attempt > 0:
                _remove_left_over(target.parent, message)
            _write(target, message)
        except FileExistsError as error:
            raise TerminalError(f"file {target} exists with other content") from error
        except OSError as error:
            kind = TerminalError if error.errno == ENAMETOOLONG else TransientError
            raise kind(f"file {target} cannot be written: {error.strerror}") from error


def _make_folder(folder: Path) -> None:
    """With the folders above it, each as safe on disk as the file will be."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR)) from error
    _sync(folder.parent)


def _write(target: Path, message: Message) -> None:
    """Under a temporary name, then linked: never half a file under its name, never over another file."""
    temporary = target.with_name(f"{_WRITING}{message.id}-{uuid4().hex[:8]}")
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
        _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_left_over(folder: Path, message: Message) -> None:
    """An earlier attempt may have died while writing."""
    for left_over in folder.glob(f"{_WRITING}{message.id}-*"):
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
    return _identity(os.fsencode(path.absolute()), path.stat())


def _identity(path: bytes, status: os.stat_result) -> bytes:
    return b"%d:%d:%d:%s" % (status.st_ino, status.st_mtime_ns, status.st_size, path)


def _path(identity: bytes) -> bytes:
    return identity.split(b":", 3)[3]


def _aside(identity: bytes) -> bytes:
    """Where a file goes while it is looked at: a name of its own, from which the old one can be told."""
    path = _path(identity)
    name = os.fsencode(_SETTLED) + identity.split(b":", 1)[0] + b"-" + os.path.basename(path)  # noqa: PTH119
    return os.path.join(os.path.dirname(path), name)  # noqa: PTH118, PTH120


def _is(identity: bytes, path: bytes) -> bool:
    """Whether the file at `path` is the one that was listed under this identity."""
    try:
        return _identity(_path(identity), os.lstat(path)) == identity
    except FileNotFoundError:
        return False


def _rename(path: bytes, aside: bytes) -> None:
    try:
        os.rename(path, aside)  # noqa: PTH104
    except OSError as error:
        if error.errno != ENAMETOOLONG:
            raise
        os.unlink(path)  # noqa: PTH108 - no room to step aside: the look just before has to do


def _put_back(aside: bytes, path: bytes) -> None:
    """Never over a file that took its name meanwhile."""
    while True:
        try:
            os.link(aside, path)
            break
        except FileExistsError:
            root, extension = os.path.splitext(path)  # noqa: PTH122
            path = root + b"-" + uuid4().hex[:8].encode() + extension
    os.unlink(aside)  # noqa: PTH108
