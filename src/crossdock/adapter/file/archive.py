"""The archive of the file transport: the file itself under another name, or a copy where there is no such link.

Whoever may write to the folder, or to the archive, may put links and pipes where we look: we neither follow nor wait.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EAGAIN, ELOOP, EMLINK, EOPNOTSUPP, EPERM, EXDEV
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from crossdock.adapter.file.settle import WRITING, is_file_of, is_identity_of, path_of_folder
from crossdock.adapter.file.write import holds_the_same, open_below, real
from crossdock.durable import Folders, sync

_LONGEST_NAME_BYTES = 255
_NO_LINK = (EXDEV, EPERM, EMLINK, EOPNOTSUPP)
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK


class Archive:
    """Takes files under the path that they had in the folder `read`.

    It may be a link itself, which its author chose, but not one that leads out of the folder `read` from inside it:
    partners write there. No folder below it may be a link.
    """

    def __init__(self, folder: Path, read: Path) -> None:
        self.folder = folder
        top = real(read)
        self._read = read if any(real(above).is_relative_to(top) for above in folder.absolute().parents) else None
        self._folders = Folders()

    def take(self, identity: bytes, file: bytes, below: Sequence[bytes], name: bytes) -> None:
        """Give the file its name in the archive, never another file's, and make that safe on disk."""
        with self._open(below) as folder:
            declared = os.path.join(os.fsencode(self.folder), *below)  # noqa: PTH118
            try:
                _link(identity, file, folder, declared, name)
            except FileExistsError:
                _link(identity, file, folder, declared, _other_name(identity, name))
            sync(folder)

    @contextmanager
    def _open(self, below: Sequence[bytes]) -> Iterator[bytes]:
        place = real(self.folder)
        top = place if self._read is None else real(self._read)
        if self._read is not None and top not in place.parents:
            raise OSError(ELOOP, "it is a link that leads out of the folder that is read")
        with open_below(top, place.joinpath(*map(os.fsdecode, below)), self._folders) as descriptor:
            yield path_of_folder(descriptor)


def _other_name(identity: bytes, name: bytes) -> bytes:
    """The same after every crash, so that a file is not archived twice."""
    root, extension = os.path.splitext(name)  # noqa: PTH122
    ending = b"-" + sha256(identity).hexdigest()[:16].encode() + extension
    return root[: max(0, _LONGEST_NAME_BYTES - len(ending))] + ending


def _link(identity: bytes, file: bytes, folder: bytes, declared: bytes, name: bytes) -> None:
    """Where there are no links from here to there, a copy. Nothing to do if a process that died did it."""
    target = os.path.join(folder, name)  # noqa: PTH118
    known = sha256(identity + os.path.join(declared, name)).hexdigest()[:32]  # noqa: PTH118
    temporary = os.path.join(folder, os.fsencode(WRITING) + known.encode())  # noqa: PTH118
    try:
        os.link(file, target)
    except FileExistsError:
        if not _is_it(identity, file, folder, name):
            raise
        Path(os.fsdecode(temporary)).unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(identity, file, temporary, target)
    else:
        if not is_file_of(identity, target):
            os.unlink(target)  # noqa: PTH108
            raise _exchanged()


def _copy(identity: bytes, file: bytes, temporary: bytes, target: bytes) -> None:
    """Under a name that the next attempt finds again, then linked: never half a file in the archive."""
    with _original(identity, file) as original, os.fdopen(_open_copy(temporary), "wb") as copy:
        try:
            _write_copy(original, copy)
            if not is_identity_of(identity, os.fstat(original)):
                raise _exchanged()
            os.link(temporary, target)
        finally:
            os.unlink(temporary)  # noqa: PTH108


@contextmanager
def _original(identity: bytes, file: bytes) -> Iterator[int]:
    """The file that was listed, whatever has its name by now."""
    descriptor = os.open(file, os.O_RDONLY | _PLAIN)
    try:
        if not is_identity_of(identity, os.fstat(descriptor)):
            raise _exchanged()
        yield descriptor
    finally:
        os.close(descriptor)


def _exchanged() -> OSError:
    return BlockingIOError(EAGAIN, "somebody exchanged it meanwhile")


def _open_copy(temporary: bytes) -> int:
    """What a process that died began, or a new file. Anybody can tell the name: what is not ours makes room."""
    try:
        found = os.open(temporary, os.O_RDWR | os.O_CREAT | _PLAIN, 0o666)
    except OSError as error:
        if error.errno != ELOOP:
            raise
    else:
        if _is_ours(found):
            return found
        os.close(found)
    os.unlink(temporary)  # noqa: PTH108
    made = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN, 0o666)
    _is_ours(made)
    return made


def _is_ours(copy: int) -> bool:
    """And nobody else's from now on. Raises BlockingIOError if another process is writing it."""
    try:
        flock(copy, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(copy)
        raise
    status = os.fstat(copy)
    return S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid()


def _write_copy(original: int, copy: BinaryIO) -> None:
    copy.truncate(0)  # what a process that died had written
    with os.fdopen(original, "rb", closefd=False) as source:
        shutil.copyfileobj(source, copy)
    copy.flush()
    status = os.fstat(original)
    os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    os.fsync(copy.fileno())


def _is_it(identity: bytes, file: bytes, folder: bytes, name: bytes) -> bool:
    """The same name, time and content, be it a link or a copy: what a process that died had archived."""
    with _original(identity, file) as original:
        theirs = os.lstat(os.path.join(folder, name))  # noqa: PTH118
        if not S_ISREG(theirs.st_mode) or os.fstat(original).st_mtime_ns != theirs.st_mtime_ns:
            return False
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return holds_the_same(at, os.fsdecode(name), original)
        finally:
            os.close(at)
