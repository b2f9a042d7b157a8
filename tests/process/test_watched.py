"""A real process that others watch: metrics, health, and log lines for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from office import Office, free_port
from walk import CROSSDOCK, until

pytestmark = pytest.mark.process


@pytest.fixture
def office(database: str, tmp_path: Path) -> Office:
    """Deployed, and nobody delivers. The folder that its port writes to is a file."""
    (tmp_path / "out").touch()
    port = {"name": "Out", "adapter": "file", "address": "out/%MessageID%", "retry": {"count": 0}}
    return Office(database, tmp_path, {"send_ports": [port]})


@pytest.fixture
def address(office: Office) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """(where it serves, process) of one that delivers."""
    at = f"127.0.0.1:{free_port()}"
    options = ["--metrics", at, "--log-format", "json", "--log-level", "info"]
    process = subprocess.Popen(
        [CROSSDOCK, "host", "Default", "--database", office.agent.database, *options],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    yield f"http://{at}", process
    process.kill()
    process.wait()


def told(url: str) -> httpx.Response | None:
    try:
        return httpx.get(url, timeout=60)
    except httpx.HTTPError:
        return None


def test_process_tells_how_it_is_and_logs_what_goes_wrong_as_json(
    office: Office, address: tuple[str, subprocess.Popen[str]]
) -> None:
    url, process = address
    until(lambda: (answer := told(f"{url}/health")) is not None and answer.status_code == 200)
    office.publish(to="Out")
    suspended = 'crossdock_port_references_suspended{application="office",port="Out"} 1.0'
    until(lambda: (answer := told(f"{url}/metrics")) is not None and suspended in answer.text)

    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)

    lines = [json.loads(line) for line in err.splitlines()]
    [notice] = [line for line in lines if line.get("artefact") == "send port"]
    assert (notice["level"], notice["name"], notice["count"]) == ("warning", "Out", 1)
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert told(f"{url}/health") is None
