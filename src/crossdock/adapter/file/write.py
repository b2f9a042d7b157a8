"""How a message becomes a file: never half a file under its name, never over another one, never outside its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from errno import ELOOP
from itertools import takewhile
from pathlib import Path
from stat import S_ISREG
from uuid import uuid4

from crossdock.adapter.file.settle import WRITING
from crossdock.adapter.macro import expand, has_macro
from crossdock.durable import Folders, sync
from crossdock.errors import TerminalError
from crossdock.message.message import Message

MACROS = ("SourceFileName", "datetime")
_COMPARED_BYTES = 1024 * 1024


def path_for(address: str, message: Message) -> Path:
    """The address with the values of its macros. TerminalError: a value would lead to another folder."""
    values = {"SourceFileName": _source_name(message), "datetime": datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%f")}
    steps = []
    for step in address.split("/"):
        made = expand(step, message, _in_a_name, more=values)
        if made != step and made in ("", ".", ".."):
            raise TerminalError(f"the step {step} of the address would be {made!r} for this message, which is no name")
        steps.append(made)
    return Path("/".join(steps))


def real(path: Path) -> Path:
    """Once all links are resolved."""
    return Path(os.path.realpath(path))


def declared_folder(address: str) -> Path:
    """The folder that the address names before its first macro: whoever wrote the address chose that one."""
    steps = address.split("/")[:-1]
    plain = list(takewhile(lambda step: not has_macro(step), steps))
    return Path("/" if plain == [""] else "/".join(plain))


def is_below(folder: Path, target: Path) -> bool:
    """Whether the file would be in the folder or below it, once all links are resolved."""
    return real(target.parent).is_relative_to(real(folder))


@contextmanager
def open_folder(folder: Path, within: Path, folders: Folders) -> Iterator[int]:
    """The folder, made if it is missing, as a descriptor: whatever becomes of its name, the file goes where it was.

    TerminalError: it is not `within` another folder. A link that somebody puts in its way meanwhile is not followed.
    """
    top, place = (within, folder) if folder == within else (real(within), real(folder))
    if not place.is_relative_to(top):
        raise TerminalError(f"{place} is not below {top}")
    with open_below(top, place, folders) as descriptor:
        yield descriptor


@contextmanager
def open_below(top: Path, folder: Path, folders: Folders) -> Iterator[int]:
    """Step by step from the top, which may be a link; none of the others is followed if it is one."""
    folders.make(top)
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for step in folder.relative_to(top).parts:
            with suppress(FileExistsError):
                os.mkdir(step, dir_fd=at)
            if folder not in folders:  # also one that is there: whoever made it may not have synced it yet
                sync(at)
            below = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        folders.add(folder)
        yield at
    finally:
        os.close(at)


def write(folder: int, name: str, message: Message) -> None:
    """Under a temporary name, then linked. FileExistsError: there is a file of that name with other content."""
    temporary = f"{_temporary(message)}{uuid4().hex[:8]}"
    try:
        created = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
        with os.fdopen(created, "w+b") as file:
            for chunk in message.parts[0].chunks():
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                if not holds_the_same(folder, name, file.fileno()):
                    raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    sync(folder)


def remove_left_over(folder: int, message: Message) -> None:
    """An earlier attempt may have died while writing."""
    for name in os.listdir(folder):
        if name.startswith(_temporary(message)):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)


def _temporary(message: Message) -> str:
    return f"{WRITING}{message.id}-"


def _source_name(message: Message) -> str:
    source = Path(str(message.context.get("FILE.ReceivedFileName") or message.id)).name
    position = message.context.get("BTS.InterchangeSequenceNumber")
    split = position is not None and (position != 1 or message.context.get("BTS.LastInterchangeMessage") is False)
    return f"{Path(source).stem}-{position}{Path(source).suffix}" if split else source


def _in_a_name(value: str) -> str:
    if "/" in value or "\0" in value:
        raise TerminalError("a property of the message has a slash or a NUL, and cannot be a part of a file name")
    return value


def holds_the_same(folder: int, name: str, written: int) -> bool:
    try:
        there = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno == ELOOP:
            return False
        raise
    try:
        status = os.fstat(there)
        if not S_ISREG(status.st_mode) or status.st_size != os.fstat(written).st_size:
            return False
        os.lseek(written, 0, os.SEEK_SET)
        while chunk := os.read(written, _COMPARED_BYTES):
            if os.read(there, len(chunk)) != chunk:
                return False
        os.fsync(there)  # whoever wrote it
        return True
    finally:
        os.close(there)
