"""The embedded server comes back for whoever needs it, also where the one who started it has not heard that it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from crossdock.messagebox.embedded import EmbeddedServer
from walk import until

pytestmark = pytest.mark.process

STARTED_BY_ANOTHER = """
import sys, time
from pathlib import Path
from crossdock.messagebox.embedded import EmbeddedServer
EmbeddedServer(Path(sys.argv[1])).acquire()
print("up", flush=True)
time.sleep(600)
"""


def test_server_that_was_killed_starts_again_though_its_parent_has_not_noticed(folder: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", STARTED_BY_ANOTHER, str(folder)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    server = EmbeddedServer(folder)
    try:
        server.acquire()
        postmaster = int((server.data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(postmaster, signal.SIGKILL)
        until(lambda: psutil.Process(postmaster).status() == psutil.STATUS_ZOMBIE, 30)

        server.acquire()

        assert int((server.data / "postmaster.pid").read_text().split("\n", 1)[0]) != postmaster
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        server.release()


def test_worker_of_a_killed_server_that_hangs_does_not_keep_the_next_one_from_starting(folder: Path) -> None:
    server = EmbeddedServer(folder)
    try:
        server.acquire()
        postmaster = psutil.Process(int((server.data / "postmaster.pid").read_text().split("\n", 1)[0]))
        worker = postmaster.children()[0]
        worker.send_signal(signal.SIGSTOP)
        postmaster.kill()
        until(lambda: not postmaster.is_running() or postmaster.status() == psutil.STATUS_ZOMBIE, 30)

        server.acquire()

        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    finally:
        server.release()
