"""Files that a command reads whole: regular ones, and of a size that fits into memory.

A device such as `/dev/zero` never ends, and a pipe that nobody writes to never begins.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from crossdock.errors import UsageError
from crossdock.printable import printable

BODY_LIMIT_BYTES = 256 * 1024 * 1024  # a message
DECLARED_LIMIT_BYTES = 64 * 1024 * 1024  # an application, what it names, a plan, users with their passwords


def check_whole(file: Path, limit_bytes: int) -> None:
    """Raises UsageError if a file is not a regular one, has more bytes than the limit, or cannot be opened."""
    with _opened(file, limit_bytes):
        pass


def read_whole(file: Path, limit_bytes: int) -> bytes:
    """The bytes of a file. Raises UsageError as `check_whole` does, and if it cannot be read."""
    with _opened(file, limit_bytes) as opened:
        content = opened.read(limit_bytes + 1)
    if len(content) > limit_bytes:  # it has grown meanwhile
        raise _too_large(file, limit_bytes)
    return content


@contextmanager
def _opened(file: Path, limit_bytes: int) -> Iterator[BufferedReader]:
    try:
        # Without O_NONBLOCK this would wait for whoever writes to a pipe.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            found = os.fstat(opened.fileno())
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(f"{_shown(file)} cannot be read: it is a device or a pipe. Name a regular file.")
            if found.st_size > limit_bytes:
                raise _too_large(file, limit_bytes)
            yield opened
    except OSError as error:
        raise UsageError(f"{_shown(file)} cannot be read: {error.strerror}.") from error


def _too_large(file: Path, limit_bytes: int) -> UsageError:
    return UsageError(f"{_shown(file)} cannot be read: it has more than {limit_bytes:,} bytes, which is the most.")


def _shown(file: Path) -> str:
    return printable(os.fsencode(file).decode("utf-8", "backslashreplace"))
