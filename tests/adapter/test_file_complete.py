"""A file is read once it is complete: nobody has it open for writing, and it has not changed for a while."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from crossdock.adapter.file import adapter as file_adapter
from crossdock.adapter.file import complete as file_complete
from crossdock.adapter.file.adapter import FileReceiveAdapter, file_identity
from crossdock.errors import ApplicationError, TransientError

OLD = time.time() - 3600


def old_file(path: Path, content: bytes = b"{}") -> Path:
    path.write_bytes(content)
    os.utime(path, (OLD, OLD))
    return path


def receiving(folder: Path, **options: Any) -> FileReceiveAdapter:
    return FileReceiveAdapter(str(folder / "*.json"), **options)


def names(adapter: FileReceiveAdapter) -> list[str]:
    return sorted(Path(adapter.name(source.identity)).name for source in adapter.list().ready)


def test_file_that_its_writer_has_open_is_held_until_he_lets_go_of_it(folder: Path) -> None:
    adapter = receiving(folder)
    old_file(folder / "b.json")
    path = old_file(folder / "a.json", b"half")

    with path.open("ab"):
        listing = adapter.list()
        assert (names(adapter), listing.held, listing.incomplete) == (["b.json"], (str(path),), 0)

    assert names(adapter) == ["a.json", "b.json"]


def test_file_opened_for_writing_after_it_was_listed_is_not_read(folder: Path) -> None:
    adapter, path = receiving(folder), old_file(folder / "a.json", b"half")
    [source] = adapter.list().ready

    with path.open("ab"), pytest.raises(TransientError, match=r"a\.json cannot be read: somebody has it open for wri"):
        adapter.read(source.identity)

    assert adapter.read(source.identity) == b"half"


def test_file_that_grows_while_it_is_read_does_not_fill_the_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, path = receiving(folder), old_file(folder / "a.json", b"half")
    [source] = adapter.list().ready
    # Who waited for our lease goes on right after it, with a file of a gigabyte that takes no room on the disk.
    monkeypatch.setattr(file_adapter, "open_for_writing", lambda _: os.truncate(path, 2**30))
    tracemalloc.start()

    content = adapter.read(source.identity)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert content is None
    assert peak < 2**20


@pytest.mark.parametrize("archive", [False, True])
def test_file_opened_for_writing_after_it_was_read_is_not_removed_and_what_is_added_is_read(
    folder: Path, archive: bool
) -> None:
    (folder / "in").mkdir()
    path = old_file(folder / "in" / "a.json", b"half")
    adapter = receiving(folder / "in", archive=str(folder / "archive") if archive else None)
    [source] = adapter.list().ready
    adapter.read(source.identity)

    with path.open("ab") as writer:
        with pytest.raises(TransientError, match="somebody has it open for writing"):
            adapter.acknowledge(source.identity)
        assert adapter.list().held == (str(path),)
        writer.write(b" and half")
    adapter.acknowledge(source.identity)
    os.utime(path, (OLD, OLD + 1))

    [changed] = adapter.list().ready
    assert adapter.read(changed.identity) == b"half and half"


def test_writer_who_opens_a_file_just_before_it_is_moved_aside_keeps_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, path = receiving(folder), old_file(folder / "a.json", b"half")
    [source] = adapter.list().ready
    rename, writers = os.rename, []

    def overtaken(old: bytes, new: bytes) -> None:
        writers.append(path.open("ab"))
        rename(old, new)

    monkeypatch.setattr(os, "rename", overtaken)
    with pytest.raises(TransientError, match="somebody has it open for writing"):
        adapter.acknowledge(source.identity)
    for writer in writers:
        writer.write(b" and half")
        writer.close()

    assert [each.name for each in folder.iterdir()] == ["a.json"]
    assert path.read_bytes() == b"half and half"


def test_one_that_is_held_does_not_keep_the_others_of_a_batch(folder: Path) -> None:
    for name in "abc":
        old_file(folder / f"{name}.json")
    adapter = receiving(folder)
    identities = [source.identity for source in adapter.list().ready]

    with (folder / "b.json").open("ab"), pytest.raises(TransientError, match=r"b\.json cannot be removed"):
        adapter.acknowledge_batch(identities)

    assert [path.name for path in folder.iterdir()] == ["b.json"]


WRITERS = """
import os, sys, threading
from crossdock.adapter.file.complete import open_for_writing
path = sys.argv[1]
descriptor = os.open(path, os.O_RDONLY)
ended = threading.Event()
def write():
    for _ in range(20_000):
        os.close(os.open(path, os.O_WRONLY))
    ended.set()
threading.Thread(target=write).start()
seen = set()
while not ended.is_set():
    seen.add(open_for_writing(descriptor))
print(sorted(seen))
"""


def test_writer_who_comes_while_it_is_asked_ends_nobody(folder: Path) -> None:
    old_file(folder / "a.json")
    command = [sys.executable, "-c", WRITERS, str(folder / "a.json")]

    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (run.returncode, run.stderr) == (0, "")
    assert "False" in run.stdout


def test_lease_that_is_broken_sends_a_signal_that_ends_nobody(folder: Path) -> None:
    """Held on purpose, as if the process were stopped in between."""
    path = old_file(folder / "a.json")
    code = (
        "import os, sys, fcntl, threading, time\n"
        "from crossdock.adapter.file import complete as file_complete\n"
        "release = fcntl.fcntl\n"
        "opened = threading.Event()\n"
        "def held(descriptor, command, argument):\n"
        "    if (command, argument) == (fcntl.F_SETLEASE, fcntl.F_UNLCK):\n"
        "        writer = threading.Thread(target=lambda: (os.close(os.open(sys.argv[1], os.O_WRONLY)), opened.set()))\n"
        "        writer.start()\n"
        "        assert not opened.wait(0.3)\n"
        "    return release(descriptor, command, argument)\n"
        "file_complete.fcntl = held\n"
        "print(file_complete.path_open_for_writing(sys.argv[1]))\n"
        "assert opened.wait(30)\n"
    )

    run = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (run.returncode, run.stdout, run.stderr) == (0, "False\n", "")


def test_it_can_be_asked_in_any_thread(folder: Path) -> None:
    path = old_file(folder / "a.json")
    answers: list[bool | None] = []

    with path.open("ab"):
        thread = Thread(target=lambda: answers.append(file_complete.path_open_for_writing(str(path))))
        thread.start()
        thread.join()

    assert answers == [True]


UNPRIVILEGED = """
import os, sys
from crossdock.adapter.file.adapter import FileReceiveAdapter
from crossdock.adapter.file.complete import path_open_for_writing
os.chdir(sys.argv[1])
os.setgroups([])
os.setresuid(65534, 65534, 65534)
now = [0.0]
adapter = FileReceiveAdapter("./*.json", minimum_age=1, clock=lambda: 5000 + now[0], monotonic=lambda: now[0])
print(path_open_for_writing("a.json"))
for _ in range(3):
    listing = adapter.list()
    print(len(listing.ready), listing.incomplete, len(listing.held))
    now[0] += 5
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_file_of_another_owner_has_to_be_ten_times_as_old(folder: Path) -> None:
    path = old_file(folder / "a.json")
    os.utime(path, (4999, 4999))
    folder.chmod(0o755)

    run = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (run.stdout.split("\n"), run.stderr) == (["None", "0 1 0", "0 1 0", "1 0 0", ""], "")


def test_on_a_file_system_that_does_not_know_of_every_writer_a_refused_lease_says_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_complete, "_KNOWS_ITS_WRITERS", frozenset())
    now = [0.0]
    adapter = receiving(folder, minimum_age=1, clock=lambda: OLD + 2 + now[0], monotonic=lambda: now[0])
    path = old_file(folder / "a.json")

    with path.open("ab"):
        first, now[0] = adapter.list(), 9.0
        second = adapter.list()

    assert (first.incomplete, first.held, second.incomplete) == (1, (), 0)
    assert len(second.ready) == 1


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_clock_that_is_set_makes_no_young_file_old_and_keeps_none_waiting(folder: Path, step: float) -> None:
    now, set_by = [0.0], [0.0]
    adapter = receiving(folder, minimum_age=1, clock=lambda: 5000 + now[0] + set_by[0], monotonic=lambda: now[0])
    before = old_file(folder / "before.json")
    os.utime(before, (5000, 5000))
    adapter.list()

    set_by[0] = step
    now[0] = 0.5
    after = old_file(folder / "after.json")
    os.utime(after, (5000.5 + step, 5000.5 + step))
    at_once = adapter.list()
    now[0] = 1.6

    assert (at_once.ready, at_once.incomplete) == ((), 2)
    assert names(adapter) == ["after.json", "before.json"]


def test_file_with_a_marker_is_read_once_the_marker_is_there_and_both_are_removed(folder: Path) -> None:
    adapter = receiving(folder, marker=".done", minimum_age=3600)
    (folder / "a.json").write_bytes(b"complete")
    (folder / "b.json").write_bytes(b"half")
    (folder / "c.json.done").touch()
    assert adapter.list().ready == ()
    (folder / "a.json.done").touch()

    listing = adapter.list()
    [source] = listing.ready
    adapter.acknowledge(source.identity)

    assert adapter.read(source.identity) is None
    assert listing.incomplete == 0
    assert sorted(path.name for path in folder.iterdir()) == ["b.json", "c.json.done"]


def test_marker_is_not_read_itself_and_goes_before_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = FileReceiveAdapter(str(folder / "*"), marker=".done")
    old_file(folder / "a.json")
    (folder / "a.json.done").touch()
    [source] = adapter.list().ready

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            adapter.acknowledge(source.identity)
    assert [path.name for path in folder.iterdir()] == ["a.json"]
    adapter.acknowledge(source.identity)

    assert list(folder.iterdir()) == []


def test_marker_of_a_file_that_took_the_name_meanwhile_stays(folder: Path) -> None:
    adapter = receiving(folder, marker=".done")
    path = old_file(folder / "a.json")
    (folder / "a.json.done").touch()
    [source] = adapter.list().ready
    old_file(folder / "new", b"new").rename(path)

    adapter.acknowledge(source.identity)

    assert sorted(each.name for each in folder.iterdir()) == ["a.json", "a.json.done"]


def test_marker_is_an_ending_of_a_name(folder: Path) -> None:
    with pytest.raises(ApplicationError, match=r"is the ending of a name, such as \.done, and has no /"):
        receiving(folder, marker="done/")


def test_file_that_got_its_name_back_by_halves_is_removed_once_and_does_not_come_back(folder: Path) -> None:
    path = old_file(folder / "a.json")
    adapter, identity = receiving(folder), file_identity(path)
    aside = folder / f".crossdock-settled-{path.stat().st_ino}-a.json"
    os.link(path, aside)

    adapter.acknowledge(identity)
    assert list(folder.iterdir()) == []
    old_file(path)
    os.link(path, aside.with_name(".crossdock-settled-1-a.json"))
    adapter.list()

    assert [each.name for each in folder.iterdir()] == ["a.json"]
