"""Files that a command reads whole are regular ones, and have a limit: nothing is read until memory ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from console_box import APPLICATION
from crossdock.api.credentials import read_passwords
from crossdock.cli.app import app
from crossdock.errors import UsageError
from crossdock.whole_file import DECLARED_LIMIT_BYTES, read_whole

DEVICE = "/dev/zero cannot be read: it is a device or a pipe. Name a regular file."


@pytest.fixture
def application(tmp_path: Path) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(APPLICATION)
    return file


def refused(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, UsageError), done.exception
    return str(done.exception)


def test_a_device_is_refused_wherever_a_file_is_given(application: Path, tmp_path: Path) -> None:
    home = ("--home", tmp_path / "home")

    assert refused("apply", application, "--plan", "/dev/zero", *home) == DEVICE
    assert refused("edit", "x", "--body", "/dev/zero", *home) == DEVICE
    assert refused("apply", "/dev/zero", *home).startswith("There is no application file /dev/zero")
    with pytest.raises(UsageError, match=DEVICE):
        read_passwords(Path("/dev/zero"))


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UsageError, match="it is a device or a pipe"):
        read_whole(tmp_path / "pipe", 10)


def test_a_file_has_a_limit(application: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(DECLARED_LIMIT_BYTES + 1)

    said = f"{large} cannot be read: it has more than {DECLARED_LIMIT_BYTES:,} bytes, which is the most."
    assert refused("apply", application, "--plan", large, "--home", tmp_path / "home") == said
    assert refused("lint", large) == said
    assert read_whole(application, application.stat().st_size) == application.read_bytes()


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for file, reason in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file or directory")):
        with pytest.raises(UsageError, match=f"{file} cannot be read: {reason}."):
            read_whole(file, 10)
