"""A row of the ledger may name any file: what is not below the folder of its location is neither read nor removed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crossdock.adapter.file.adapter import FileReceiveAdapter, file_identity
from crossdock.adapter.file.settle import identity_of
from crossdock.errors import TransientError

OLD = time.time() - 3600


def old_file(path: Path, content: bytes = b"secret") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (OLD, OLD))
    return path


def known_as(name: str, file: Path) -> bytes:
    """The identity that a forged row has: of a file that is there, by another name."""
    return identity_of(os.fsencode(name), file.stat())


ELSEWHERE: list[Callable[[Path], tuple[Path, str]]] = [
    lambda folder: (folder / "other" / "a.json", f"{folder}/other/a.json"),
    lambda folder: (folder / "other" / "a.json", f"{folder}/in/../other/a.json"),
    lambda folder: (folder / "other" / "a.json", f"{folder}/in/deep/../../other/a.json"),
    lambda folder: (folder / "a.json", f"{folder}/in/../a.json"),
    lambda folder: (folder / "inside.json", f"{folder}/inside.json"),
    lambda folder: (folder / "other" / "a.json", f"{folder}/in/linked/a.json"),
    lambda folder: (folder / "other" / "a.json", f"{folder}/in/link.json"),
]


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_file_elsewhere_is_neither_read_nor_removed_whatever_the_ledger_says(
    folder: Path, elsewhere: Callable[[Path], tuple[Path, str]], archive: bool
) -> None:
    file, name = elsewhere(folder)
    old_file(file)
    (folder / "in" / "deep").mkdir(parents=True)
    if (folder / "other").exists():
        (folder / "in" / "linked").symlink_to(folder / "other")
        (folder / "in" / "link.json").symlink_to(folder / "other" / "a.json")
    adapter = FileReceiveAdapter(
        str(folder / "in" / "*.json"), subfolders=True, archive=str(folder / "archive") if archive else None
    )
    forged = known_as(name, file)

    assert adapter.read(forged) is None
    assert adapter.read_range(forged, 0, 3) is None
    adapter.acknowledge(forged)
    adapter.acknowledge_batch([forged, forged])
    assert file.read_bytes() == b"secret"
    assert list(folder.rglob(".crossdock*")) == []
    assert not (folder / "archive").exists()


@pytest.mark.parametrize("name", [b"", b".", b"..", b"/", b"a\0b", b"./.", b"../../../etc/passwd"])
def test_odd_names_in_the_ledger_lead_nowhere(folder: Path, name: bytes) -> None:
    adapter = FileReceiveAdapter(str(folder / "*.json"))

    for identity in (b"1:2:3:" + name, b"1:2:3:" + os.fsencode(folder) + b"/" + name):
        assert adapter.read(identity) is None
        adapter.acknowledge(identity)

    assert list(folder.iterdir()) == []


def test_file_that_stays_since_it_is_elsewhere_is_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "in").mkdir()
    file = old_file(folder / "before" / "a.json")

    FileReceiveAdapter(str(folder / "in" / "*.json")).acknowledge(file_identity(file))

    assert [record.message for record in caplog.records] == [f"File {file} is not below {folder}/in and stays"]


def test_folder_that_becomes_a_link_while_a_file_in_it_is_removed_does_not_lead_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_file(folder / "in" / "deep" / "a.json", b"published")
    adapter = FileReceiveAdapter(str(folder / "in" / "*.json"), subfolders=True)
    [source] = adapter.list().ready
    rename = os.rename

    def moved(path: bytes, aside: bytes) -> None:
        rename(folder / "in" / "deep", folder / "moved")
        other = old_file(folder / "other" / "a.json", b"other")
        (folder / "in" / "deep").symlink_to(other.parent)
        rename(path, aside)

    monkeypatch.setattr(os, "rename", moved)
    adapter.acknowledge(source.identity)

    assert [path.read_bytes() for path in (folder / "other").iterdir()] == [b"other"]
    assert list((folder / "moved").iterdir()) == []


def test_nothing_counts_as_gone_while_the_folder_itself_is_away(folder: Path) -> None:
    old_file(folder / "in" / "a.json")
    adapter = FileReceiveAdapter(str(folder / "in" / "*.json"))
    [source] = adapter.list().ready
    (folder / "in").rename(folder / "unmounted")

    with pytest.raises(TransientError, match=r"folder .*/in cannot be read: No such file"):
        adapter.acknowledge(source.identity)
    with pytest.raises(TransientError, match=r"folder .*/in cannot be read: No such file"):
        adapter.read(source.identity)
    (folder / "unmounted").rename(folder / "in")

    assert adapter.read(source.identity) == b"secret"
