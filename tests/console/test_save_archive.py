"""The archive of suspended messages: what it holds, and that nothing of it is left."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from console_box import Seeded, seeded
from crossdock.console.pages import install
from crossdock.messagebox.agent import Agent
from served import SAME_ORIGIN, served
from walk import until


def open_archives() -> list[str]:
    """Those that this process holds open, in which the console runs."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except FileNotFoundError:
            continue
    return [name for name in found if ".zip" in name]


def test_archive_is_sent_and_left_open_nowhere(database: str, agent: Agent) -> None:
    box: Seeded = seeded(agent)

    with served(database, install=install) as console, console.as_role("operator", "bodies") as client:
        for _ in range(3):
            answer = client.post("/suspended/save", data={"port": "Stopped"}, headers=SAME_ORIGIN)
            assert answer.status_code == 200
            with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
                [name] = archive.namelist()
                assert name.startswith(box.suspended)
                assert archive.read(name) == b"content"

        until(lambda: not open_archives(), 20)
    assert open_archives() == []
