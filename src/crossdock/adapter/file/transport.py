"""The file transport: files that match a mask, and one file per message. Read `adapter.py` next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from crossdock.adapter.file.write import MACROS, is_below, path_for
from crossdock.adapter.macro import has_macro
from crossdock.adapter.transport import Allowing, Listing, Mark, Options, Receiving, Sending, Transport, imported
from crossdock.errors import ApplicationError, TerminalError
from crossdock.message.message import Message

MINIMUM_AGE_SECONDS = 1.0
_URL = "file://"


class FileReceiveOptions(Options):
    """Sizes are in bytes, the age in seconds."""

    subfolders: bool = False
    minimum_age: Annotated[float, Field(ge=0, allow_inf_nan=False)] = MINIMUM_AGE_SECONDS
    minimum_size: Annotated[int, Field(ge=0)] = 0
    maximum_size: Annotated[int | None, Field(ge=0)] = None
    archive: Annotated[str | None, Field(min_length=1), Mark.FOLDER] = None
    marker: Annotated[str | None, Field(min_length=1)] = None


class FileSendOptions(Options):
    """There are none."""


def _mask(folder: Path, address: str) -> str:
    """The folder by its one real name, however it was written, then the mask: the same file is the same source."""
    path = folder / address
    if address.endswith("/") or any(character in str(path.parent) for character in "*?["):
        raise ApplicationError(
            f"the address {address!r} is a folder without wildcards, "
            'then a mask for the names of files, such as "in/*.json"'
            + ("; for the folders below there is the option `subfolders`" if "**" in address else "")
        )
    return str(path.parent.resolve() / path.name)


def _listing(folder: Path, address: str, options: Mapping[str, Any]) -> Listing:
    path = folder / address
    return Listing(path.parent.resolve(), path.name, options.get("subfolders") is True)


def _written(folder: Path, address: str) -> Path:
    return folder / address


def _absolute(folder: Path, address: str) -> str:
    return str(folder / address)


def _path(address: str) -> str:
    return address[len(_URL) :] if address[: len(_URL)].lower() == _URL else address


def _check_place(place: str, folder: Path) -> None:
    if has_macro(place):
        raise ApplicationError(f"{place} has a macro; what is allowed is a folder")
    if folder.resolve().is_relative_to(Path(place).resolve()):
        raise ApplicationError(f"{place} holds the application; a message could write its code")


def _holds(place: str, address: str, message: Message) -> bool:
    path = path_for(address, message)
    if not path.is_absolute() or ".." in path.parts:
        raise TerminalError("the path that the message brings is not absolute, or has a step '..'")
    return is_below(Path(place), path)


FILE = Transport(
    name="file",
    type="FILE",
    receive=Receiving(
        imported("crossdock.adapter.file.adapter:FileReceiveAdapter"), FileReceiveOptions, _mask, _listing
    ),
    send=Sending(
        imported("crossdock.adapter.file.adapter:FileSendAdapter"),
        FileSendOptions,
        _absolute,
        macros=MACROS,
        writes=_written,
    ),
    allowing=Allowing(_holds, Path, schemes=("", "file"), plain=_path, check=_check_place),
    printable=str,
)
