"""What becomes of a file whose messages are safe: it is removed, or moved to the archive. Every step can be done again.

A file is known by path, inode, modification time and size. Paths are bytes here, since names need not be UTF-8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN, EIO, EISDIR, ENAMETOOLONG
from uuid import uuid4

from crossdock.adapter.file.complete import path_open_for_writing
from crossdock.durable import sync

WRITING = ".crossdock-"
SETTLED = ".crossdock-settled-"
_SETTLED_NAME = re.compile(re.escape(os.fsencode(SETTLED)) + rb"\d+-(.+)", re.DOTALL)


def identity_of(path: bytes, status: os.stat_result) -> bytes:
    return b"%d:%d:%d:%s" % (status.st_ino, status.st_mtime_ns, status.st_size, path)


def is_identity_of(identity: bytes, status: os.stat_result) -> bool:
    """Whether a file of this status is the one that was listed under this identity."""
    return identity_of(path_of(identity), status) == identity


def path_of(identity: bytes) -> bytes:
    return identity.split(b":", 3)[-1]  # also of an identity from elsewhere, which then fits no file


def path_of_folder(descriptor: int) -> bytes:
    """A name of an opened folder that leads there and nowhere else, whatever is moved or linked meanwhile."""
    path = b"/proc/self/fd/%d" % descriptor
    if not os.path.samestat(os.stat(path), os.fstat(descriptor)):  # noqa: PTH116
        raise NotADirectoryError(EIO, "there is another /proc here")
    return path


def settle(identity: bytes, path: bytes, archive: Callable[[bytes], None] | None) -> None:
    """Move aside, look, then remove: a file of the same name put there meanwhile is put back, not lost.

    `path` is where it is, by a name of its folder that leads nowhere else. With an `archive`, that takes the file
    before it is removed. The folder is the caller's to sync. Raises BlockingIOError if somebody has the file open for
    writing.
    """
    aside = _aside(identity, path)
    try:
        if is_file_of(identity, path):
            if is_file_of(identity, aside):  # a process died while it was putting it back: it has both names
                os.unlink(aside)  # noqa: PTH108
            _refuse_if_written(path)
            aside = _step_aside(path, aside)
        # Also when it was moved aside before, by a process that then died.
        if is_file_of(identity, aside):
            _refuse_if_written(aside, path)  # by its name nobody can open it any more
            if archive is not None:
                archive(aside)
            os.unlink(aside)  # noqa: PTH108
        elif os.path.lexists(aside):
            put_back(aside, path)
    except FileNotFoundError:
        if is_file_of(identity, aside):
            raise  # it is the archive that vanished
        # Else another process was faster.


def _refuse_if_written(place: bytes, path: bytes | None = None) -> None:
    """It gets its name, `path`, back if it was moved aside."""
    if path_open_for_writing(place):
        if path not in (None, place):
            assert path is not None
            put_back(place, path)
        raise BlockingIOError(EAGAIN, "somebody has it open for writing")


def is_file_of(identity: bytes, path: bytes) -> bool:
    """Whether the file at `path` is the one that was listed under this identity."""
    try:
        return is_identity_of(identity, os.lstat(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            return False
        raise


def put_back(aside: bytes, path: bytes) -> None:
    """Never over a file that took its name meanwhile. The name that it has then is safe before the other one goes."""
    while True:
        try:
            os.link(aside, path)
            break
        except FileExistsError:
            if os.path.samestat(os.lstat(aside), os.lstat(path)):
                break  # whoever began to put it back has died
            root, extension = os.path.splitext(path)  # noqa: PTH122
            path = root + b"-" + uuid4().hex[:8].encode() + extension
    sync(os.path.dirname(path))  # noqa: PTH120
    with suppress(FileNotFoundError):
        os.unlink(aside)  # noqa: PTH108
    sync(os.path.dirname(path))  # noqa: PTH120


def _aside(identity: bytes, path: bytes) -> bytes:
    """Where a file goes while it is looked at: a name of its own, from which the old one can be told."""
    folder, name = os.path.split(path)
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
