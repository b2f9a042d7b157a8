"""The home of the embedded PostgreSQL and of Spark: closed to others, and its logs do not grow without bound."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from crossdock.application.processes import working_in
from crossdock.application.runtime import Runtime
from crossdock.application.store import Store
from crossdock.home import LOG_BYTES, keep_logs_small, make_home
from crossdock.messagebox.embedded import EmbeddedServer
from office import Office


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_home_and_what_is_in_it_are_closed_to_others(folder: Path) -> None:
    home = folder / "home"
    server = EmbeddedServer(home)
    server.acquire()
    try:
        with working_in(home):
            assert [mode(path) for path in (home, home / "postgres")] == [0o700, 0o700]
            assert mode(home / "postgres" / "server.log") == 0o600
    finally:
        server.release()


def test_home_that_was_made_open_is_closed_and_nothing_outside_it_is_touched(folder: Path) -> None:
    above, home = folder / "above", folder / "above" / "home"
    (home / "postgres").mkdir(parents=True)
    (home / "run.lock").touch()
    for path in (above, home, home / "postgres"):
        path.chmod(0o755)

    server = EmbeddedServer(home)
    server.acquire()  # it still can enter, also where it runs as somebody else
    server.release()

    assert [mode(path) for path in (above, home, home / "postgres")] == [0o755, 0o700, 0o700]


def test_home_that_holds_other_things_stays_open_for_them_and_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "in").mkdir()
    folder.chmod(0o755)

    with caplog.at_level(logging.WARNING), working_in(folder):
        pass

    assert (mode(folder), make_home(folder)) == (0o755, False)
    assert [record.message for record in caplog.records] == [
        f"The home {folder} holds other things too and stays open to others; ours in it is closed"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_home_of_somebody_else_is_left_as_it_is(folder: Path) -> None:
    home = folder / "home"
    home.mkdir(mode=0o755)
    os.chown(home, 65534, -1)

    assert make_home(home) is False
    assert mode(home) == 0o755


WRITER = """
import sys
number = 0
while sys.stdin.readline():
    for _ in range(1000):
        number += 1
        print(number, flush=True)
    print("written", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("name", ["spark/spark.log", "postgres/server.log"])
def test_log_that_somebody_writes_is_kept_small_and_its_end_is_kept(folder: Path, name: str) -> None:
    log = folder / name
    log.parent.mkdir()
    with log.open("ab") as output:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE, text=True
        )
    assert writer.stdin is not None
    assert writer.stderr is not None

    for _ in range(20):
        writer.stdin.write("\n")
        writer.stdin.flush()
        writer.stderr.readline()
        keep_logs_small(folder, 10_000)
    writer.communicate()

    kept = log.with_name(f"{log.name}.1")
    assert log.stat().st_size + kept.stat().st_size < 25_000
    lines = (kept.read_text() + log.read_text()).split()
    assert lines[-1] == "20000"
    assert [int(line) for line in lines[1:]] == list(range(int(lines[1]), 20_001))


def test_process_keeps_the_logs_of_its_home_small_while_it_works(database: str, tmp_path: Path) -> None:
    office = Office(database, tmp_path, {"send_ports": []})
    log = office.settings.home / "spark" / "spark.log"
    log.parent.mkdir(parents=True)
    with log.open("wb") as file:
        file.truncate(LOG_BYTES + 1)

    with ExitStack() as stack:
        store = Store(office.settings)
        store.open()
        stack.callback(store.close)
        runtime = Runtime(office.settings, store, lambda *_: None, receives=False)
        runtime.start(stack)
        runtime.work(Event(), until_idle=True)

    assert (log.stat().st_size, log.with_name("spark.log.1").stat().st_size) == (0, LOG_BYTES)
