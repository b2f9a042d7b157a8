"""Links and pipes that somebody puts in the way of the file transport: nothing else is read, written or waited for."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from crossdock.adapter.file.adapter import FileReceiveAdapter, FileSendAdapter
from crossdock.errors import TerminalError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part

OLD = time.time() - 3600
DEADLINE_SECONDS = 10


def archiving(folder: Path, archive: str = "archive", name: str = "in/a.json") -> tuple[FileReceiveAdapter, bytes]:
    """An adapter with an archive, and the one file it lists."""
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"first")
    os.utime(file, (OLD, OLD))
    adapter = FileReceiveAdapter(str(folder / "in" / "*.json"), subfolders=True, archive=str(folder / archive))
    return adapter, adapter.list().ready[0].identity


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def linking(monkeypatch: pytest.MonkeyPatch, archive: Path, first: Callable[[], Any], *, links: bool) -> None:
    """What somebody does just before a file gets its name in the archive, to which there may be no links."""
    link = os.link

    def linked(source: Any, target: Any) -> None:
        if Path(os.fsdecode(source)).parent.resolve() != archive:
            first()
            if not links:
                raise PermissionError(errno.EPERM, "Operation not permitted")
        link(source, target)

    monkeypatch.setattr(os, "link", linked)


@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
def test_link_exchanged_for_a_file_that_is_archived_brings_nothing_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    adapter, identity = archiving(folder)
    (folder / "secret").write_bytes(b"secret")

    def exchange() -> None:
        [aside] = (folder / "in").iterdir()
        aside.unlink()
        aside.symlink_to(folder / "secret")

    linking(monkeypatch, folder / "archive", exchange, links=links)
    with pytest.raises(TransientError, match="cannot be moved"):
        adapter.acknowledge(identity)

    assert list((folder / "archive").iterdir()) == []


def test_pipe_exchanged_for_a_file_that_is_archived_holds_nobody_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, identity = archiving(folder)

    def exchange() -> None:
        [aside] = (folder / "in").iterdir()
        aside.unlink()
        os.mkfifo(aside)

    linking(monkeypatch, folder / "archive", exchange, links=False)
    raised: list[Exception] = []

    def acknowledge() -> None:
        try:
            adapter.acknowledge(identity)
        except TransientError as error:
            raised.append(error)

    thread = threading.Thread(target=acknowledge, daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)

    assert not thread.is_alive()
    assert len(raised) == 1
    assert list((folder / "archive").iterdir()) == []


@pytest.mark.parametrize(
    "put",
    [
        lambda temporary, victim: temporary.symlink_to(victim),
        lambda temporary, victim: temporary.hardlink_to(victim),
        lambda temporary, _: os.mkfifo(temporary),
    ],
    ids=["link", "hard link", "pipe"],
)
def test_name_under_which_a_copy_will_be_written_leads_to_no_other_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path, Path], Any]
) -> None:
    adapter, identity = archiving(folder)
    archive, victim = folder / "archive", folder / "victim"
    archive.mkdir()
    victim.write_bytes(b"precious")
    known = sha256(identity + os.fsencode(archive / "a.json")).hexdigest()[:32]
    put(archive / f".crossdock-{known}", victim)
    linking(monkeypatch, archive, lambda: None, links=False)

    adapter.acknowledge(identity)

    assert victim.read_bytes() == b"precious"
    assert [(path.name, path.read_bytes()) for path in archive.iterdir()] == [("a.json", b"first")]
    assert not (archive / "a.json").is_symlink()


def test_folder_below_the_archive_that_is_a_link_is_not_followed(folder: Path) -> None:
    adapter, identity = archiving(folder, name="in/deep/a.json")
    (folder / "victim").mkdir()
    (folder / "archive").mkdir()
    (folder / "archive" / "deep").symlink_to(folder / "victim")

    with pytest.raises(TransientError, match="cannot be moved"):
        adapter.acknowledge(identity)
    assert contents(folder / "victim") == []

    (folder / "archive" / "deep").unlink()
    adapter.acknowledge(identity)
    assert contents(folder / "archive") == [b"first"]


@pytest.mark.parametrize("restarted", [False, True])
def test_archive_in_the_folder_that_was_exchanged_for_a_link_is_not_followed_out_of_it(
    folder: Path, restarted: bool
) -> None:
    adapter, identity = archiving(folder, archive="in/done")
    (folder / "victim").mkdir()
    (folder / "in" / "done").symlink_to(folder / "victim")
    if restarted:
        adapter = FileReceiveAdapter(str(folder / "in" / "*.json"), archive=str(folder / "in" / "done"))

    with pytest.raises(TransientError, match="leads out of the folder"):
        adapter.acknowledge(identity)

    assert contents(folder / "victim") == []


def test_archive_elsewhere_may_be_a_link(folder: Path) -> None:
    adapter, identity = archiving(folder, name="in/deep/a.json")
    (folder / "archive").symlink_to(folder / "disk")
    (folder / "disk").mkdir()

    adapter.acknowledge(identity)

    assert (folder / "disk" / "deep" / "a.json").read_bytes() == b"first"


def send(address: Path, **properties: str) -> None:
    message = Message(MessageId(UUID(int=7)), Context({}, properties), (Part("body", b"hello"),))
    FileSendAdapter(str(address)).send(message, attempt=0)


def test_value_of_a_message_does_not_lead_through_a_link_out_of_the_folder_of_the_address(folder: Path) -> None:
    (folder / "out" / "Europe").mkdir(parents=True)
    (folder / "victim").mkdir()
    (folder / "out" / "EU").symlink_to(folder / "victim")
    (folder / "out" / "E").symlink_to("Europe")
    (folder / "alias").symlink_to("out")

    with pytest.raises(TerminalError, match="is not below"):
        send(folder / "out/%Region%/%OrderId%", Region="EU", OrderId="maps.py")
    for region in ("E", "US"):
        send(folder / "alias/%Region%/%OrderId%", Region=region, OrderId="a")

    assert contents(folder / "victim") == []
    assert [(folder / "out" / name / "a").read_bytes() for name in ("Europe", "US")] == [b"hello"] * 2


def test_folder_that_the_address_names_may_be_a_link(folder: Path) -> None:
    (folder / "disk").mkdir()
    (folder / "out").symlink_to("disk")

    send(folder / "out/a-%MessageID%")

    assert contents(folder / "disk") == [b"hello"]
