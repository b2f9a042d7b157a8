"""A compiled index as a folder of plain arrays, which every process of a machine maps into memory and shares.

A folder is written under a temporary name and renamed when it is complete, so nobody ever opens half of one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crossdock.errors import UsageError
from crossdock.subscription.index.build import CompiledFilters
from crossdock.subscription.index.layout import Layout
from crossdock.subscription.index.pool import Pool, constants_of

_FORMAT = 1
DESCRIPTION = "index.json"


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder beside it, then rename. A folder that is there already stays: it is equal."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        write(temporary)
        temporary.chmod(0o755)
        temporary.rename(folder)
    except OSError:
        if not (folder / DESCRIPTION).exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_filters(filters: CompiledFilters, folder: Path, linked: Path | None = None) -> None:
    """One file per array. Where `linked` already holds this index, its files are linked instead of written again."""
    folder.mkdir(exist_ok=True)
    if linked is None or not _link(linked, folder):
        for holder in (filters.pool, filters.layout):
            for field in fields(holder):
                write_array(folder / f"{field.name}.npy", getattr(holder, field.name))
    description = {"format": _FORMAT, "names": filters.names, "case_sensitive": filters.case_sensitive}
    (folder / DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")


def open_filters(folder: Path) -> CompiledFilters:
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"Folder '{folder}' holds no subscription index; save one there first") from error
    if description["format"] != _FORMAT:
        raise UsageError(f"The subscription index in '{folder}' has another format; build it again")
    pool = Pool(**{field.name: open_array(folder / f"{field.name}.npy") for field in fields(Pool)})
    layout = Layout(**{field.name: open_array(folder / f"{field.name}.npy") for field in fields(Layout)})
    names = tuple(description["names"])
    return CompiledFilters(names, constants_of(pool), pool, layout, description["case_sensitive"])


def write_array(path: Path, array: npt.NDArray[Any]) -> None:
    np.save(path, array, allow_pickle=False)


def open_array(path: Path) -> npt.NDArray[Any]:
    """Mapped into memory; an empty array cannot be mapped, and is read."""
    empty = path.stat().st_size <= 128
    array = np.asarray(np.load(path, mmap_mode=None if empty else "r", allow_pickle=False))
    array.flags.writeable = False
    return array


def _link(source: Path, folder: Path) -> bool:
    """Whether every array could be hard-linked: the same file system, and the source still there."""
    try:
        for path in source.glob("*.npy"):
            os.link(path, folder / path.name)
    except OSError:
        return False
    return (folder / "words.npy").exists()
