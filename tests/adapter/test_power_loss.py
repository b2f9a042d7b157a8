"""What a power loss may take: every name that a promise rests on is on disk before the promise is kept.

The real calls are recorded. A name that was made, moved or removed is at risk until its folder is synced, and so is the
content of a file until the file is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from crossdock.adapter.file.adapter import FileReceiveAdapter, FileSendAdapter
from crossdock.durable import make_folder
from crossdock.errors import TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.messagebox.embedded import EmbeddedServer
from files import old_file, without_links

NAMING = ("rename", "link", "unlink", "mkdir")


class Disk:
    """What was called, in order: (call, path), and which folders have names at risk."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.calls: list[tuple[str, str]] = []
        self.at_risk: set[str] = set()

    def note(self, call: str, path: str) -> None:
        self.calls.append((call, self.short(path)))
        if call == "fsync":
            self.at_risk.discard(self.short(path))
        else:
            self.at_risk.add(self.short(str(Path(path).parent)))

    def short(self, path: str) -> str:
        return os.path.relpath(path, self.top)


@contextmanager
def recorded(top: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(top)

    def real(path: Any, folder: int | None) -> str:
        name = Path(f"/proc/self/fd/{folder}" if folder is not None else "") / os.fsdecode(path)
        return str(Path(os.path.realpath(name.parent)) / name.name)

    def noting(call: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            places = [real(arguments[0], options.get("dir_fd", options.get("src_dir_fd")))]
            if call in ("rename", "link"):
                places.append(real(arguments[1], options.get("dst_dir_fd")))
            result = original(*arguments, **options)
            for place in places[1:] if call == "link" else places:
                disk.note(call, place)
            return result

        return noted

    def fsync(descriptor: int, original: Callable[[int], None] = os.fsync) -> None:
        original(descriptor)
        disk.note("fsync", os.path.realpath(f"/proc/self/fd/{descriptor}"))

    with monkeypatch.context() as patched:
        for call in NAMING:
            patched.setattr(os, call, noting(call, getattr(os, call)))
        patched.setattr(os, "fsync", fsync)
        yield disk


def a_message(body: bytes = b"hello") -> Message:
    return Message(MessageId(UUID(int=7)), Context({}, {}), (Part("body", body),))


def receiving(folder: Path, **options: Any) -> FileReceiveAdapter:
    (folder / "in" / "deep").mkdir(parents=True)
    for name in ("a.json", "b.json", "deep/c.json"):
        old_file(folder / "in" / name, b"first")
    return FileReceiveAdapter(str(folder / "in" / "*.json"), subfolders=True, **options)


def test_removal_is_on_disk_before_the_ledger_hears_of_it_with_one_sync_for_each_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = receiving(folder)
    identities = [source.identity for source in adapter.list().ready]

    with recorded(folder, monkeypatch) as disk:
        adapter.acknowledge_batch(identities)

    assert [call for call, _ in disk.calls].count("unlink") == 3
    assert sorted(path for call, path in disk.calls if call == "fsync") == ["in", "in/deep"]
    assert disk.at_risk == set()


def test_removal_that_a_dead_process_did_not_sync_is_synced_by_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = receiving(folder)
    [*_, identity] = [source.identity for source in adapter.list().ready if b"deep" not in source.identity]
    Path(adapter.name(identity)).unlink()

    with recorded(folder, monkeypatch) as disk:
        adapter.acknowledge(identity)

    assert disk.calls == [("fsync", "in")]


@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
def test_name_in_the_archive_is_on_disk_before_the_other_one_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    adapter = receiving(folder, archive=str(folder / "old" / "archive"))
    [source] = [source for source in adapter.list().ready if b"deep" in source.identity]
    inode = int(source.identity.split(b":")[0])
    if not links:
        without_links(monkeypatch)

    with recorded(folder, monkeypatch) as disk:
        adapter.acknowledge(source.identity)

    gone = ("unlink", f"in/deep/.crossdock-settled-{inode}-c.json")
    calls = disk.calls
    for made, holds in (("old", "."), ("old/archive", "old"), ("old/archive/deep", "old/archive")):
        assert calls[calls.index(("mkdir", made)) + 1] == ("fsync", holds)
    archived = calls.index(("link", "old/archive/deep/c.json"))
    assert ("fsync", "old/archive/deep") in calls[archived : calls.index(gone)]
    if not links:
        [temporary] = {path for call, path in calls[:archived] if call == "fsync" and ".crossdock-" in path}
        assert temporary.startswith("old/archive/deep/")
    assert disk.at_risk == set()


def test_marker_is_gone_on_disk_before_its_file_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = receiving(folder, marker=".done")
    (folder / "in" / "a.json.done").touch()
    [source] = adapter.list().ready

    with recorded(folder, monkeypatch) as disk:
        adapter.acknowledge(source.identity)

    assert [call for call, _ in disk.calls] == ["unlink", "fsync", "rename", "rename", "unlink", "fsync"]
    assert disk.at_risk == set()


def test_file_that_is_put_back_has_its_name_on_disk_before_the_other_one_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = receiving(folder)
    [source] = [source for source in adapter.list().ready if source.identity.endswith(b"/a.json")]
    rename, writers = os.rename, []

    def overtaken(old: bytes, new: bytes) -> None:
        writers.append((folder / "in" / "a.json").open("ab"))
        rename(old, new)

    monkeypatch.setattr(os, "rename", overtaken)
    with recorded(folder, monkeypatch) as disk, pytest.raises(TransientError):
        adapter.acknowledge(source.identity)
    for writer in writers:
        writer.close()

    assert [call for call, _ in disk.calls][:6] == ["rename", "rename", "link", "fsync", "unlink", "fsync"]
    assert disk.at_risk == set()


def test_file_that_a_dead_process_left_aside_has_its_name_back_on_disk_and_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_file(folder / ".crossdock-settled-1-a.json")
    adapter = FileReceiveAdapter(str(folder / "*.json"), clock=lambda: time.time() + 120)

    with recorded(folder, monkeypatch) as disk:
        adapter.list()

    assert [call for call, _ in disk.calls] == ["link", "fsync", "unlink", "fsync"]
    assert disk.at_risk == set()


@pytest.mark.parametrize("within", [False, True])
def test_delivered_file_is_on_disk_with_its_content_its_name_and_its_folders(
    folder: Path, monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    (folder / "out").mkdir()
    adapter = FileSendAdapter(str(folder / "out/new/er/a.json"), within=folder / "out" if within else None)

    with recorded(folder, monkeypatch) as disk:
        adapter.send(a_message(), attempt=0)

    calls = disk.calls
    [temporary] = {path for call, path in calls if ".crossdock-" in path}
    for made, holds in (("out/new", "out"), ("out/new/er", "out/new")):
        assert calls[calls.index(("mkdir", made)) + 1] == ("fsync", holds)
    assert calls[-4:] == [
        ("fsync", temporary),
        ("link", "out/new/er/a.json"),
        ("unlink", temporary),
        ("fsync", "out/new/er"),
    ]
    assert disk.at_risk == set()


@pytest.mark.parametrize("within", [False, True])
def test_what_another_process_left_unsynced_is_synced_before_it_counts_as_delivered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    (folder / "out" / "new").mkdir(parents=True)
    (folder / "out" / "new" / "a.json").write_bytes(b"hello")
    adapter = FileSendAdapter(str(folder / "out/new/a.json"), within=folder / "out" if within else None)

    with recorded(folder, monkeypatch) as disk:
        adapter.send(a_message(), attempt=1)
    with recorded(folder, monkeypatch) as again:
        adapter.send(a_message(), attempt=1)

    synced = [path for call, path in disk.calls if call == "fsync"]
    assert {"out", "out/new/a.json", "out/new"} <= set(synced)
    assert (disk.at_risk, again.at_risk) == (set(), set())
    assert ("fsync", "out") not in again.calls


def test_folder_that_is_made_is_on_disk_with_those_above_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(folder, monkeypatch) as disk:
        make_folder(folder / "a" / "b")

    made = [("mkdir", "a"), ("fsync", "."), ("mkdir", "a/b"), ("fsync", "a")]
    assert disk.calls[1:] == made
    assert disk.at_risk == set()


def test_data_folder_of_the_embedded_server_is_on_disk_before_anything_is_stored_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedServer(folder / "new" / "home")

    with recorded(folder, monkeypatch) as disk:
        server.acquire()
    server.release()

    calls = disk.calls
    moved = calls.index(("rename", "new/home/postgres/data"))
    assert ("fsync", "new/home/postgres") in calls[moved:]
    for made, holds in (("new", "."), ("new/home", "new"), ("new/home/postgres", "new/home")):
        assert ("fsync", holds) in calls[calls.index(("mkdir", made)) : moved]
