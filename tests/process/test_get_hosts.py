"""What `crossdock get hosts` shows: the instances that live, and how they are."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from express import living
from office import Office, eventually
from walk import CROSSDOCK


@pytest.fixture
def office(database: str, tmp_path: Path) -> Office:
    """Deployed, and nobody delivers."""
    return Office(
        database, tmp_path, {"send_ports": [{"name": "Out", "adapter": "file", "address": "out/%MessageID%"}]}
    )


@pytest.fixture
def instance(office: Office) -> Iterator[subprocess.Popen[bytes]]:
    """A process that delivers."""
    process = subprocess.Popen([CROSSDOCK, "host", "Default", "--database", office.agent.database])
    eventually(lambda: states(office), ["running"])
    yield process
    process.kill()
    process.wait()


def command(database: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CROSSDOCK, *arguments, "--database", database], capture_output=True, text=True, timeout=120, check=False
    )


def states(office: Office) -> list[str]:
    """How the instances of the default host are."""
    [host] = office.agent.configuration.list_hosts()
    return [each.state for each in host.instances]


def test_hosts_show_their_living_instances(office: Office, database: str) -> None:
    with living(office.agent) as life:
        [alive] = json.loads(command(database, "get", "hosts", "-o", "json").stdout)
        life.check("running", 0)  # who says nothing for ten seconds is silent, and a command may take long
        running = columns(command(database, "get", "hosts").stdout)
        life.check("throttled", 2_000)
        throttled = columns(command(database, "get", "hosts").stdout)
    [dead] = json.loads(command(database, "get", "hosts", "-o", "json").stdout)
    none = columns(command(database, "get", "hosts").stdout)

    assert list(alive["instances"][0]) == ["machine", "process", "class", "state", "in_hand", "started_at", "seen_at"]
    assert dead["instances"] == []
    assert [(each["instances"], each["state"]) for each in (running, throttled, none)] == [
        ("1", "running"),
        ("1", "throttled"),
        ("0", "none"),
    ]


def columns(table: str) -> dict[str, str]:
    """The only row of a table, by its columns."""
    head, row = table.splitlines()
    return dict(zip(head.split(), row.split(), strict=True))


@pytest.mark.process
def test_instance_that_was_killed_is_no_longer_shown(
    office: Office, database: str, instance: subprocess.Popen[bytes]
) -> None:
    instance.kill()
    instance.wait()

    eventually(lambda: states(office), [])
    assert columns(command(database, "get", "hosts").stdout)["state"] == "none"


@pytest.mark.process
def test_instance_that_hangs_is_shown_as_silent_until_it_speaks_again(
    office: Office, database: str, instance: subprocess.Popen[bytes]
) -> None:
    instance.send_signal(signal.SIGSTOP)

    eventually(lambda: states(office), ["silent"], 60)
    assert columns(command(database, "get", "hosts").stdout)["state"] == "silent"
    instance.send_signal(signal.SIGCONT)

    eventually(lambda: states(office), ["running"])
