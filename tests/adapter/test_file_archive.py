"""The archive of the file transport: where files go, and what is left after a crash at any point."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from crossdock.adapter.file.adapter import FileReceiveAdapter
from crossdock.errors import ApplicationError, TransientError
from files import OLD, old_file, without_links


def receiving(folder: Path, **options: Any) -> FileReceiveAdapter:
    return FileReceiveAdapter(str(folder / "*.json"), **options)


def archiving(folder: Path, **options: Any) -> tuple[FileReceiveAdapter, Path, bytes]:
    """An adapter with an archive, that archive, and the one file it lists."""
    inbound, archive = folder / "in", folder / "archive"
    inbound.mkdir()
    old_file(inbound / "a.json", b"first")
    adapter = receiving(inbound, archive=str(archive), **options)
    return adapter, archive, adapter.list().ready[0].identity


class Crash(BaseException):
    """Nothing catches it, as nothing catches a kill."""


@pytest.mark.parametrize("name", [b"new\nline\xff.json", b"a" * 245 + b".json"])
def test_archive_takes_files_under_the_path_they_had(folder: Path, name: bytes) -> None:
    (folder / "in" / "deep").mkdir(parents=True)
    old_file(Path(os.fsdecode(os.fsencode(folder) + b"/in/deep/" + name)), b"first")
    adapter = receiving(folder / "in", subfolders=True, archive=str(folder / "archive"))

    adapter.acknowledge(adapter.list().ready[0].identity)

    assert [os.fsencode(path.name) for path in (folder / "archive/deep").iterdir()] == [name]
    assert list((folder / "in/deep").iterdir()) == []


def test_archive_never_writes_over_another_file(folder: Path) -> None:
    adapter, archive, identity = archiving(folder)
    archive.mkdir()
    old_file(archive / "a.json", b"other")

    adapter.acknowledge(identity)

    assert sorted(path.read_bytes() for path in archive.iterdir()) == [b"first", b"other"]
    assert (archive / "a.json").read_bytes() == b"other"
    assert all(path.name.startswith("a") and path.suffix == ".json" for path in archive.iterdir())


def test_archive_inside_the_folder_is_not_read(folder: Path) -> None:
    (folder / "done").mkdir()
    (folder / "alias").symlink_to(folder / "done")
    old_file(folder / "a.json")
    adapter = receiving(folder, subfolders=True, archive=str(folder / "alias"))

    adapter.acknowledge(adapter.list().ready[0].identity)

    assert adapter.list().ready == ()
    assert (folder / "done" / "a.json").exists()


@pytest.mark.parametrize("archive", ["in", "in/../in", "."])
def test_archive_that_holds_the_folder_is_refused(folder: Path, archive: str) -> None:
    (folder / "in").mkdir()

    with pytest.raises(ApplicationError, match="holds the folder that is read"):
        receiving(folder / "in", archive=str(folder / archive))


def test_archive_that_cannot_be_written_leaves_the_file_for_another_try(folder: Path) -> None:
    adapter, archive, identity = archiving(folder)
    archive.write_bytes(b"in the way")

    with pytest.raises(TransientError, match=r"cannot be moved to .*archive: Not a directory"):
        adapter.acknowledge(identity)
    archive.unlink()
    adapter.acknowledge(identity)

    assert (archive / "a.json").read_bytes() == b"first"


def test_archive_that_vanishes_in_the_middle_leaves_the_file_for_another_try(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, archive, identity = archiving(folder)
    link = os.link

    def vanish(source: Any, target: Any) -> None:
        archive.rmdir()
        link(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", vanish)
        with pytest.raises(TransientError, match="No such file or directory"):
            adapter.acknowledge(identity)
    adapter.acknowledge(identity)

    assert (archive / "a.json").read_bytes() == b"first"


# Calls of the operating system that archiving makes, in order; a crash is tried before and after each of them.
CALLS = ["rename", "mkdir", "link", "fsync", "utime", "unlink"]


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize("call", CALLS)
def test_crash_at_any_point_of_archiving_is_made_good(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int, after: bool, links: bool, taken: bool
) -> None:
    adapter, archive, identity = archiving(folder)
    if taken:
        archive.mkdir()
        old_file(archive / "a.json", b"other")
    with monkeypatch.context() as patched:
        if not links:
            without_links(patched)
        original, calls = getattr(os, call), iter(range(100))

        def crash(*arguments: Any, **options: Any) -> Any:
            if next(calls) != nth:
                return original(*arguments, **options)
            if after:
                original(*arguments, **options)
            raise Crash

        patched.setattr(os, call, crash)
        try:
            adapter.acknowledge(identity)
        except Crash:
            kept = [path for place in (folder / "in", archive) if place.exists() for path in place.iterdir()]
            assert b"first" in [path.read_bytes() for path in kept]
        patched.setattr(os, call, original)
        receiving(folder / "in", archive=str(archive)).acknowledge(identity)
        adapter.acknowledge(identity)

    assert list((folder / "in").iterdir()) == []
    expected = [b"first", b"other"] if taken else [b"first"]
    assert sorted(path.read_bytes() for path in archive.iterdir()) == expected
    assert not [path for path in archive.iterdir() if path.name.startswith(".")]


def test_crash_before_the_archive_is_made_good_by_the_next_listing_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, archive, identity = archiving(folder)

    def crash(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", crash)
        with pytest.raises(Crash):
            adapter.acknowledge(identity)
    later = receiving(folder / "in", archive=str(archive), clock=lambda: time.time() + 120)
    later.list()

    assert [source.identity for source in later.list().ready] == [identity]
    later.acknowledge(identity)
    assert [path.name for path in archive.iterdir()] == ["a.json"]
    assert list((folder / "in").iterdir()) == []


def test_half_a_copy_that_a_dead_process_left_is_written_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, archive, identity = archiving(folder)
    without_links(monkeypatch)
    fsync, unlink = os.fsync, os.unlink

    def crash(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(
            os, "fsync", lambda descriptor: crash() if os.fstat(descriptor).st_size == 5 else fsync(descriptor)
        )
        patched.setattr(os, "unlink", crash)
        with pytest.raises(Crash):
            adapter.acknowledge(identity)
    [half] = archive.iterdir()
    half.write_bytes(b"firfirfirfir")
    assert os.unlink is unlink

    adapter.acknowledge(identity)

    assert [(path.name, path.read_bytes()) for path in archive.iterdir()] == [("a.json", b"first")]
    assert (archive / "a.json").stat().st_mtime == pytest.approx(OLD)
