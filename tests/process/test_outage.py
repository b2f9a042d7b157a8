"""A database that refuses to write: everything waits, says why in one sentence, and goes on by itself."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from crossdock.dataflow.receive import ReceiveFlow
from crossdock.errors import OutageError, UnavailableError
from crossdock.messagebox.embedded import EmbeddedServer
from crossdock.messagebox.outage import Outage
from walk import Walk, expected, until

FULL = "The MessageBox refuses to write, the disk of its database is full"
READ_ONLY = "The MessageBox refuses to write, its database is read-only"
SPARK: Any = SimpleNamespace(folder=Path("spark"), log=Path("spark.log"), remote=False, time_limit=300.0)
AGAIN = "The MessageBox works again"
# PostgreSQL itself says that it has no room for a message.
FULL_DISK = (
    "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE SQLSTATE '53100' USING MESSAGE = 'could not extend file'; END $$",
    "CREATE TRIGGER full_disk BEFORE INSERT ON crossdock.message EXECUTE FUNCTION full_disk()",
)


def test_outage_is_said_once_then_now_and_then_and_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outage = Outage(lambda: now)
    full, gone = OutageError("full", "no room in x"), OutageError("gone", "nobody answers")
    said = []
    for now, error in [(0, full), (1, full), (2, gone), (3, full), (61, full), (62, None), (70, None), (90, None)]:
        before = len(caplog.records)
        outage.worked() if error is None else outage.waits(error)
        said += [(now, record.getMessage()) for record in caplog.records[before:]]

    waits = "Everything waits, and goes on by itself."
    assert said == [
        (0, f"full: no room in x. {waits}"),
        (2, f"gone: nobody answers. {waits}"),
        (61, f"full: no room in x. {waits}"),
        (90, "The MessageBox works again, after 61 s."),
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_query_that_fails_for_an_outage_is_started_again_however_often() -> None:
    said: list[OutageError] = []
    flow = ReceiveFlow(SPARK, "", 1, waits=said.append)
    told = f"[STREAM_FAILED] Query terminated\nTraceback ...\ncrossdock.errors.OutageError: {FULL}: x\n\tat java"

    for problem in [told, "java.io.IOException: No space left on device"] * 10:
        flow._failed(problem)

    assert {str(error).partition(":")[0] for error in said} == {FULL, "Receiving cannot go on, a disk is full"}
    for _ in range(4):
        flow._failed("SomethingElse")
    with pytest.raises(UnavailableError, match=r"Receiving keeps failing.*: SomethingElse$"):
        flow._failed("SomethingElse\n\tat org.apache.spark")


@contextmanager
def running(walk: Walk) -> Iterator[subprocess.Popen[bytes]]:
    """`crossdock run` that has delivered its first order."""
    walk.put_orders(1)
    run = walk.start("run", walk.application)
    try:
        until(lambda: len(walk.delivered("all")) == 1, 300)
        yield run
    finally:
        run.terminate()
        run.wait(90)
        assert run.stdout is not None
        run.stdout.close()


def said(walk: Walk, sentence: str) -> int:
    return " ".join(walk.errors().split()).count(sentence)


def answers(walk: Walk) -> bool:
    """`get` has the answer, or the reason why not, within seconds."""
    began = time.monotonic()
    result = walk.command("get", "ports")
    assert time.monotonic() - began < 40  # on a busy machine, most of it is Python's start
    assert "Traceback" not in result.stderr
    return result.returncode == 0


@pytest.mark.process
def test_run_waits_while_the_database_takes_no_writes_and_goes_on_by_itself(folder: Path) -> None:
    walk = Walk(folder)
    with running(walk) as run:
        database = EmbeddedServer(walk.home).database
        alter(database, "ALTER SYSTEM SET default_transaction_read_only = on")
        walk.put_orders(5, first=1)
        until(lambda: said(walk, READ_ONLY) > 0, 60)
        assert answers(walk)
        assert run.poll() is None

        alter(database, "ALTER SYSTEM RESET default_transaction_read_only")

        until(lambda: walk.delivered("all") == expected(6)[0])
        until(lambda: said(walk, AGAIN) == 1, 60)
        alter(database, *FULL_DISK)
        walk.put_orders(5, first=6)
        log = walk.home / "spark" / "spark.log"
        until(lambda: log.read_text().count("ResolveWriteToStream") > 3, 300)  # the query began so often
        assert run.poll() is None

        alter(database, "DROP TRIGGER full_disk ON crossdock.message")

        until(lambda: walk.delivered("all") == expected(11)[0])
        assert run.poll() is None
    assert 1 <= said(walk, READ_ONLY) <= 3  # now and then: once a minute
    assert 1 <= said(walk, FULL) <= 7
    assert "Traceback" not in walk.errors()
    assert walk.get("suspended") == []


def alter(database: str, *commands: str) -> None:
    with psycopg.connect(database, autocommit=True, options="-cdefault_transaction_read_only=off") as connection:
        for command in (*commands, "SELECT pg_reload_conf()"):
            connection.execute(command.encode())


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of its own for the embedded server, which is full soon."""
    disk = folder / ".crossdock" / "postgres"
    disk.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here ({mounted.stderr.strip()}); the tests above have PostgreSQL say it")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.process
def test_run_waits_while_the_disk_of_the_embedded_server_is_full_and_goes_on_by_itself(
    folder: Path, small_disk: Path
) -> None:
    walk = Walk(folder)
    with running(walk) as run:
        filler = small_disk / "filler"
        fill(filler)
        walk.put("large.json", b'{"id": "large", "region": "US", "amount": 5, "note": "%b"}' % (b"x" * 20_000_000))
        until(lambda: " disk " in walk.errors() and " is full" in " ".join(walk.errors().split()))
        answers(walk)
        assert run.poll() is None

        filler.unlink()

        until(lambda: set(walk.delivered("all")) == {"o0", "large"})
        assert run.poll() is None
    assert "Traceback" not in walk.errors()


def fill(path: Path) -> None:
    """Until nothing more goes on the disk."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(os.urandom(64 * 1024))


def test_embedded_server_that_has_no_room_to_start_says_so_at_once(small_disk: Path) -> None:
    server = EmbeddedServer(small_disk.parent)
    server.acquire()
    server.release()
    fill(small_disk / "filler")
    for segment in sorted((small_disk / "data" / "pg_wal").glob("0*"))[1:]:
        segment.unlink()

    with pytest.raises(OutageError, match="its disk is full"):
        server.acquire()

    (small_disk / "filler").unlink()
    server.acquire()
    server.release()
