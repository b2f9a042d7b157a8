"""The file transport: what is listed, what is removed, what is written, and what happens when somebody interferes."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from crossdock.adapter.file.adapter import FileReceiveAdapter, FileSendAdapter, file_identity
from crossdock.errors import TerminalError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.message.property import Value

OLD = time.time() - 3600


def old_file(path: Path, content: bytes = b"{}") -> Path:
    path.write_bytes(content)
    os.utime(path, (OLD, OLD))
    return path


def receiving(folder: Path, mask: str = "*.json", **options: Any) -> FileReceiveAdapter:
    return FileReceiveAdapter(str(folder / mask), **options)


def names(adapter: FileReceiveAdapter) -> list[str]:
    """What is listed, below the folder."""
    return sorted(adapter.name(s.identity).removeprefix(f"{adapter.folder}/") for s in adapter.list().ready)


def a_message(body: bytes = b"hello", written: dict[str, Value] | None = None) -> Message:
    return Message(MessageId(UUID(int=7)), Context({}, written or {}), (Part("body", body),))


def test_only_complete_regular_files_that_fit_the_mask_are_listed(folder: Path) -> None:
    old_file(folder / "a.json")
    old_file(folder / "b.txt")
    old_file(folder / ".hidden.json")
    (folder / "folder.json").mkdir()
    (folder / "link.json").symlink_to(folder / "b.txt")
    os.mkfifo(folder / "pipe.json")
    (folder / "young.json").write_bytes(b"{")

    listing = receiving(folder).list()

    assert [receiving(folder).name(source.identity) for source in listing.ready] == [str(folder / "a.json")]
    assert listing.incomplete == 1


def test_file_from_the_future_is_ready_once_it_has_not_changed_for_a_while(folder: Path) -> None:
    now = [1000.0]
    os.utime(old_file(folder / "a.json"), (5000, 5000))
    adapter = receiving(folder, minimum_age=1, clock=lambda: 1000.0, monotonic=lambda: now[0])

    assert adapter.list().incomplete == 1
    now[0] += 1
    assert len(adapter.list().ready) == 1


def test_names_need_not_be_utf8(folder: Path) -> None:
    path = os.fsencode(folder) + b"/new\nline\xff.json"
    Path(os.fsdecode(path)).write_bytes(b"{}")
    os.utime(path, (OLD, OLD))

    adapter = receiving(folder)
    [source] = adapter.list().ready

    assert adapter.name(source.identity) == str(folder) + "/new\\nline\\xff.json"
    assert adapter.read(source.identity) == b"{}"
    adapter.acknowledge(source.identity)
    assert not os.path.exists(path)


def test_missing_folder_is_worth_another_try(folder: Path) -> None:
    with pytest.raises(TransientError, match="cannot be read: No such file"):
        receiving(folder / "missing").list()


def test_file_that_changed_or_vanished_since_it_was_listed_reads_as_nothing(folder: Path) -> None:
    adapter = receiving(folder)
    path = old_file(folder / "a.json")
    [source] = adapter.list().ready

    path.write_bytes(b"new content")
    assert adapter.read(source.identity) is None
    path.unlink()
    assert adapter.read(source.identity) is None
    adapter.acknowledge(source.identity)
    path.mkdir()
    assert adapter.read(source.identity) is None
    adapter.acknowledge(source.identity)
    assert path.is_dir()


@pytest.mark.parametrize("write", [b"and more", b"other"])
def test_file_that_somebody_writes_to_while_it_is_read_reads_as_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, write: bytes
) -> None:
    path = old_file(folder / "a.json", b"first")
    adapter = receiving(folder)
    [source] = adapter.list().ready
    fstat = os.fstat
    looked: list[os.stat_result] = []

    def overtaken(descriptor: int) -> os.stat_result:
        """Who looks at the file finds it as it was listed, and then it changes at once."""
        status = fstat(descriptor)
        if status.st_ino == path.stat().st_ino and not looked:
            looked.append(status)
            path.write_bytes(write)
        return status

    monkeypatch.setattr(os, "fstat", overtaken)

    assert adapter.read(source.identity) is None
    assert looked


def test_file_that_is_there_and_cannot_be_opened_is_worth_another_try_and_has_not_vanished(folder: Path) -> None:
    adapter = receiving(folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "a.json"))  # as root, too, nobody opens it

        with pytest.raises(TransientError, match=r"a\.json cannot be read"):
            adapter.read(file_identity(folder / "a.json"))


def test_acknowledging_leaves_a_file_of_the_same_name_with_new_content(folder: Path) -> None:
    adapter = receiving(folder)
    old_file(folder / "a.json", b"first")
    [source] = adapter.list().ready
    old_file(folder / "second", b"second").rename(folder / "a.json")

    adapter.acknowledge(source.identity)

    assert (folder / "a.json").read_bytes() == b"second"


def test_file_put_there_in_the_middle_of_acknowledging_is_put_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = receiving(folder)
    old_file(folder / "a.json", b"first")
    [source] = adapter.list().ready
    rename = os.rename

    def overtaken(path: bytes, aside: bytes) -> None:
        old_file(folder / "second", b"second").replace(folder / "a.json")
        rename(path, aside)

    monkeypatch.setattr(os, "rename", overtaken)
    adapter.acknowledge(source.identity)

    assert (folder / "a.json").read_bytes() == b"second"
    assert len(list(folder.iterdir())) == 1


def test_file_left_aside_by_a_process_that_died_comes_back(folder: Path) -> None:
    old_file(folder / ".crossdock-settled-123-a.json", b"first")
    adapter = FileReceiveAdapter(str(folder / "*.json"), clock=lambda: time.time() + 120)

    adapter.list()

    assert [adapter.name(source.identity) for source in adapter.list().ready] == [str(folder / "a.json")]


def test_file_left_aside_whose_name_is_taken_comes_back_under_another_and_both_are_kept(folder: Path) -> None:
    old_file(folder / ".crossdock-settled-123-a.json", b"first")
    old_file(folder / "a.json", b"second")
    adapter = FileReceiveAdapter(str(folder / "*.json"), clock=lambda: time.time() + 120)

    adapter.list()

    contents = {Path(adapter.name(each.identity)).name: adapter.read(each.identity) for each in adapter.list().ready}
    assert sorted(contents.values(), key=str) == [b"first", b"second"]
    assert contents["a.json"] == b"second"


def test_file_left_aside_that_cannot_come_back_is_reported_once_tried_again_and_does_not_stop_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old_file(folder / ".crossdock-settled-123-a.json", b"first")
    old_file(folder / "b.json")
    adapter = FileReceiveAdapter(str(folder / "*.json"), clock=lambda: time.time() + 120)

    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refuse)
        assert [names(adapter), names(adapter)] == [["b.json"], ["b.json"]]
    adapter.list()

    assert names(adapter) == ["a.json", "b.json"]
    assert [record.message.rpartition("/")[2] for record in caplog.records] == [
        ".crossdock-settled-123-a.json cannot be given its name back and stays: Operation not permitted"
    ]


@pytest.mark.parametrize("name", ["1-.", "1-..", "1-", "1", "", "-", "-a.json", "x-a.json", "1-" + "a" * 230])
@pytest.mark.parametrize("subfolders", [False, True])
def test_name_that_looks_as_if_it_were_one_of_ours_affects_nothing(folder: Path, name: str, subfolders: bool) -> None:
    hostile = old_file(folder / f".crossdock-settled-{name}")
    old_file(folder / "a.json")
    adapter = FileReceiveAdapter(str(folder / "*.json"), subfolders=subfolders, clock=lambda: time.time() + 120)

    assert [names(adapter), names(adapter)] == [["a.json"], ["a.json"]]
    assert hostile.exists() or name == "1-" + "a" * 230  # which could be ours, and gets its name back


@pytest.mark.parametrize("subfolders", [False, True])
def test_folder_link_or_pipe_with_a_name_of_ours_stays_and_affects_nothing(folder: Path, subfolders: bool) -> None:
    (folder / ".crossdock-settled-1-x.json").mkdir()
    (folder / ".crossdock-settled-2-x.json").symlink_to(folder / "nowhere")
    os.mkfifo(folder / ".crossdock-settled-3-x.json")
    old_file(folder / "a.json")
    adapter = FileReceiveAdapter(str(folder / "*.json"), subfolders=subfolders, clock=lambda: time.time() + 120)

    assert [names(adapter), names(adapter)] == [["a.json"], ["a.json"]]
    assert len(list(folder.iterdir())) == 4


def test_folder_where_a_file_would_be_moved_aside_does_not_keep_it(folder: Path) -> None:
    path = old_file(folder / "a.json")
    (folder / f".crossdock-settled-{path.stat().st_ino}-a.json").mkdir()
    adapter = receiving(folder)
    [source] = adapter.list().ready

    adapter.acknowledge(source.identity)

    assert not path.exists()


def test_acknowledging_finishes_what_a_process_that_died_began(folder: Path) -> None:
    adapter = receiving(folder)
    path = old_file(folder / "a.json", b"first")
    [source] = adapter.list().ready
    path.rename(folder / f".crossdock-settled-{path.stat().st_ino}-a.json")

    adapter.acknowledge(source.identity)

    assert list(folder.iterdir()) == []


def test_name_too_long_to_be_moved_aside_is_removed_and_acknowledged_twice(folder: Path) -> None:
    old_file(folder / ("a" * 245 + ".json"))
    adapter = receiving(folder)
    [source] = adapter.list().ready

    adapter.acknowledge(source.identity)
    adapter.acknowledge(source.identity)

    assert list(folder.iterdir()) == []


def test_files_in_folders_below_are_found_on_request_but_not_through_links(folder: Path) -> None:
    inbound, elsewhere = folder / "in", folder / "elsewhere"
    (inbound / "deep" / "er").mkdir(parents=True)
    (inbound / ".hidden").mkdir()
    elsewhere.mkdir()
    for path in (inbound, inbound / "deep", inbound / "deep" / "er", inbound / ".hidden", elsewhere):
        old_file(path / "a.json")
    (inbound / "linked").symlink_to(elsewhere)
    (inbound / "deep" / "link.json").symlink_to(elsewhere / "a.json")

    assert names(receiving(inbound)) == ["a.json"]
    assert names(receiving(inbound, subfolders=True)) == ["a.json", "deep/a.json", "deep/er/a.json"]


@pytest.mark.parametrize("replaced", ["in/deep", "in/deep/a.json"])
def test_link_that_took_the_place_of_what_was_listed_is_not_followed(folder: Path, replaced: str) -> None:
    (folder / "in" / "deep").mkdir(parents=True)
    old_file(folder / "in" / "deep" / "a.json")
    adapter = receiving(folder / "in", subfolders=True)
    [source] = adapter.list().ready

    (folder / replaced).rename(folder / "moved")
    (folder / replaced).symlink_to(folder / "moved")

    assert adapter.read(source.identity) is None
    assert names(adapter) == []


def test_folder_below_that_cannot_be_read_is_reported_once_and_the_others_are_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("open", "closed"):
        (folder / name).mkdir()
        old_file(folder / name / "a.json")
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    adapter = receiving(folder, subfolders=True)

    assert names(adapter) == names(adapter) == ["open/a.json"]
    assert [record.getMessage() for record in caplog.records] == [
        f"Folder {folder}/closed cannot be read and is left out: Permission denied"
    ]


def test_file_below_whose_path_is_too_long_is_reported_once_and_the_others_are_listed(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_file(folder / "a.json")
    _put_deep_below(folder, f"{'x' * 200}.json")
    adapter = receiving(folder, subfolders=True)

    assert names(adapter) == names(adapter) == ["a.json"]
    [report] = [record.getMessage() for record in caplog.records]
    assert report.endswith("x.json cannot be listed and is left out: File name too long")


def _put_deep_below(folder: Path, name: str) -> None:
    """A file whose folder has a path that the system takes, and which itself has one that it does not take."""
    at, length = os.open(folder, os.O_RDONLY), len(str(folder))
    while length < 3_950:
        step = "d" * min(200, 3_950 - length)
        os.mkdir(step, dir_fd=at)
        below = os.open(step, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at, length = below, length + 1 + len(step)
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


def test_files_outside_the_sizes_are_left_alone(folder: Path) -> None:
    for size in range(5):
        old_file(folder / f"{size}.json", b"x" * size)

    listing = receiving(folder, minimum_size=1, maximum_size=3).list()

    assert [source.size for source in sorted(listing.ready, key=lambda source: source.size)] == [1, 2, 3]
    assert listing.incomplete == 0
    assert len(names(receiving(folder))) == 5


def test_message_is_written_whole_into_folders_that_are_made(folder: Path) -> None:
    FileSendAdapter(str(folder / "deep/er/%MessageID%.json")).send(a_message(), attempt=0)

    [written] = (folder / "deep/er").iterdir()
    assert written.name == f"{UUID(int=7)}.json"
    assert written.read_bytes() == b"hello"


def test_same_bytes_at_the_target_count_as_delivered_and_other_bytes_suspend(folder: Path) -> None:
    adapter = FileSendAdapter(str(folder / "fixed.json"))

    adapter.send(a_message(), attempt=0)
    adapter.send(a_message(), attempt=1)
    with pytest.raises(TerminalError, match="exists with other content"):
        adapter.send(a_message(b"other"), attempt=0)

    assert [path.name for path in folder.iterdir()] == ["fixed.json"]
    assert (folder / "fixed.json").read_bytes() == b"hello"


def test_next_attempt_removes_what_a_dead_one_left(folder: Path) -> None:
    (folder / f".crossdock-{UUID(int=7)}-dead").write_bytes(b"hel")

    FileSendAdapter(str(folder / "a.json")).send(a_message(), attempt=1)

    assert [path.name for path in folder.iterdir()] == ["a.json"]


def test_target_that_cannot_be_written_is_worth_another_try(folder: Path) -> None:
    (folder / "file").write_bytes(b"")

    with pytest.raises(TransientError, match="cannot be written"):
        FileSendAdapter(str(folder / "file" / "a.json")).send(a_message(), attempt=0)


def test_source_file_name_carries_the_position_in_a_split_file(folder: Path) -> None:
    adapter = FileSendAdapter(str(folder / "%SourceFileName%"))
    for number, last in ((1, True), (1, False), (2, True)):
        place: dict[str, Value] = {
            "FILE.ReceivedFileName": "/in/orders.json",
            "BTS.InterchangeSequenceNumber": number,
            "BTS.LastInterchangeMessage": last,
        }
        adapter.send(a_message(written=place), attempt=0)

    assert sorted(path.name for path in folder.iterdir()) == ["orders-1.json", "orders-2.json", "orders.json"]
