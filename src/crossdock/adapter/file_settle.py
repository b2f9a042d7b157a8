"""What becomes of a file whose messages are safe: it is removed, or moved to the archive. Every step can be done again.

A file is known by path, inode, modification time and size. Paths are bytes here, since names need not be UTF-8.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from errno import EISDIR, EMLINK, ENAMETOOLONG, ENOTDIR, EOPNOTSUPP, EPERM, EXDEV
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

WRITING = ".crossdock-"
SETTLED = ".crossdock-settled-"
_SETTLED_NAME = re.compile(re.escape(os.fsencode(SETTLED)) + rb"\d+-(.+)", re.DOTALL)
_LONGEST_NAME_BYTES = 255
_NO_LINK = (EXDEV, EPERM, EMLINK, EOPNOTSUPP)


def identity_of(path: bytes, status: os.stat_result) -> bytes:
    return b"%d:%d:%d:%s" % (status.st_ino, status.st_mtime_ns, status.st_size, path)


def path_of(identity: bytes) -> bytes:
    return identity.split(b":", 3)[-1]  # also of an identity from elsewhere, which then fits no file


def settle(identity: bytes, target: bytes | None) -> None:
    """Move aside, look, then remove: a file of the same name put there meanwhile is put back, not lost.

    With a `target`, the file gets that name, or one like it if it is taken, before it is removed.
    """
    path, aside = path_of(identity), _aside(identity)
    try:
        if is_file_of(identity, path):
            aside = _step_aside(path, aside)
        # Also when it was moved aside before, by a process that then died.
        if is_file_of(identity, aside):
            if target is not None:
                _archive(identity, aside, target)
            os.unlink(aside)  # noqa: PTH108
        elif os.path.lexists(aside):
            put_back(aside, path)
    except FileNotFoundError:
        if is_file_of(identity, aside):
            raise  # it is the archive that vanished
        # Else another process was faster.


def is_file_of(identity: bytes, path: bytes) -> bool:
    """Whether the file at `path` is the one that was listed under this identity."""
    try:
        return identity_of(path_of(identity), os.lstat(path)) == identity
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            return False
        raise


def put_back(aside: bytes, path: bytes) -> None:
    """Never over a file that took its name meanwhile."""
    while True:
        try:
            os.link(aside, path)
            break
        except FileExistsError:
            root, extension = os.path.splitext(path)  # noqa: PTH122
            path = root + b"-" + uuid4().hex[:8].encode() + extension
    os.unlink(aside)  # noqa: PTH108


def sync(folder: Path | bytes) -> None:
    """Make the names in a folder safe on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """With the folders above it, each as safe on disk as a file in it will be."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR)) from error
    sync(folder.parent)


def _aside(identity: bytes) -> bytes:
    """Where a file goes while it is looked at: a name of its own, from which the old one can be told."""
    folder, name = os.path.split(path_of(identity))
    return os.path.join(folder, os.fsencode(SETTLED) + identity.split(b":", 1)[0] + b"-" + name)  # noqa: PTH118


def original_name(aside: bytes) -> bytes | None:
    """The name of a file before it was moved aside; None if this is no name that we give."""
    found = _SETTLED_NAME.fullmatch(aside)
    return None if found is None or found[1] in (b".", b"..") else found[1]


def _step_aside(path: bytes, aside: bytes) -> bytes:
    try:
        os.rename(path, aside)  # noqa: PTH104
    except OSError as error:
        if error.errno not in (ENAMETOOLONG, EISDIR):
            raise
        return path  # no room to step aside: the look just before has to do
    return aside


def _archive(identity: bytes, aside: bytes, target: bytes) -> None:
    """Give the file its name in the archive, never another file's, and make that safe on disk."""
    make_folder(Path(os.fsdecode(target)).parent)
    try:
        _link(aside, target)
    except FileExistsError:
        _link(aside, _other_name(identity, target))
    sync(os.path.dirname(target))  # noqa: PTH120


def _other_name(identity: bytes, target: bytes) -> bytes:
    """The same after every crash, so that a file is not archived twice."""
    folder, name = os.path.split(target)
    root, extension = os.path.splitext(name)  # noqa: PTH122
    ending = b"-" + sha256(identity).hexdigest()[:16].encode() + extension
    return os.path.join(folder, root[: max(0, _LONGEST_NAME_BYTES - len(ending))] + ending)  # noqa: PTH118


def _link(file: bytes, target: bytes) -> None:
    """Where there are no links from here to there, a copy. Nothing to do if a process that died did it."""
    name = os.fsencode(WRITING) + sha256(file + target).hexdigest()[:32].encode()
    temporary = os.path.join(os.path.dirname(target), name)  # noqa: PTH118, PTH120
    try:
        os.link(file, target)
    except FileExistsError:
        if not _is_it(file, target):
            raise
        Path(os.fsdecode(temporary)).unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(file, temporary, target)


def _copy(file: bytes, temporary: bytes, target: bytes) -> None:
    """Under a name that the next attempt finds again, then linked: never half a file in the archive."""
    with open(temporary, "ab") as written:  # noqa: PTH123
        flock(written, LOCK_EX | LOCK_NB)
        try:
            _write_copy(file, written)
            os.link(temporary, target)
        finally:
            os.unlink(temporary)  # noqa: PTH108


def _write_copy(file: bytes, copy: BinaryIO) -> None:
    copy.truncate(0)  # what a process that died had written
    with open(file, "rb") as original:  # noqa: PTH123
        shutil.copyfileobj(original, copy)
        status = os.fstat(original.fileno())
    copy.flush()
    os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    os.fsync(copy.fileno())


def _is_it(file: bytes, target: bytes) -> bool:
    """The same name, time and content, be it a link or a copy: what a process that died had archived."""
    mine, theirs = os.lstat(file), os.lstat(target)
    alike = (mine.st_mtime_ns, mine.st_size) == (theirs.st_mtime_ns, theirs.st_size)
    return alike and filecmp.cmp(file, target, shallow=False)
