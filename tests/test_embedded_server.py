"""The embedded server comes back for whoever needs it, also where the one who started it has not heard that it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from crossdock.messagebox.embedded import EmbeddedServer
from walk import until

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
