"""A send adapter that writes files and notes every attempt: the second delivery of a message leaves no other trace.

Tests of real processes put this module beside their application and name it `counted:CountedFiles`.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from crossdock.adapter.file.adapter import FileSendAdapter
from crossdock.message.message import Message

NAME = "counted:CountedFiles"
_LOG = ".attempts"


class CountedFiles(FileSendAdapter):
    """The file adapter; beside the folder it writes to, a file has a line for each attempt."""

    def send(self, message: Message, *, attempt: int) -> None:
        folder = Path(self.address).parent
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{_LOG}-{folder.name}").open("ab", buffering=0) as log:
            log.write(b"%d %s\n" % (os.getpid(), str(message.id).encode()))  # at once and at the end, whoever else does
        super().send(message, attempt=attempt)


def put_beside(application: Path) -> None:
    """Where processes that run the application find the adapter."""
    (application / "counted.py").write_text(Path(__file__).read_text())


def attempts(folder: Path) -> Counter[tuple[int, str]]:
    """How often each process tried to deliver each message to a folder."""
    log = folder.parent / f"{_LOG}-{folder.name}"
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter((int(process), message) for process, message in (line.split() for line in lines))


def assert_once_each(folder: Path) -> None:
    """Every message that is in a folder was delivered by one attempt, and nothing else was tried."""
    tried = Counter(message for _, message in attempts(folder).elements())
    assert tried == Counter(path.stem for path in folder.glob("[!.]*"))


def assert_explained(folder: Path, *, kills: int, lives: int = 1) -> None:
    """Every message in a folder was tried, again only after a kill, and by one process once in each of its `lives`."""
    tried = attempts(folder)
    by_message = Counter(message for _, message in tried.elements())
    assert by_message.keys() == {path.stem for path in folder.glob("[!.]*")}
    assert max(by_message.values(), default=0) <= 1 + kills
    assert max(tried.values(), default=0) <= lives
