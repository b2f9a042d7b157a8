"""Files that are old enough to be read, and file systems that cannot link."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

OLD = time.time() - 3600


def old_file(path: Path, content: bytes = b"{}") -> Path:
    path.write_bytes(content)
    os.utime(path, (OLD, OLD))
    return path


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """No links between folders, as between two file systems."""
    link = os.link

    def linked(source: Any, target: Any) -> None:
        if Path(os.fsdecode(source)).parent != Path(os.fsdecode(target)).parent:
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, "File exists")
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        link(source, target)

    monkeypatch.setattr(os, "link", linked)
