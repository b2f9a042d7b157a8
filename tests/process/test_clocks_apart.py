"""Hosts whose machines disagree about the time: a real process that is two hours ahead, or behind, and another."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from express import rows
from office import Office, eventually, written
from partner import Partner, Request, partner
from walk import CROSSDOCK, until

pytestmark = pytest.mark.process

RETRY_SECONDS = 2
# Everything in the process that asks for the time gets another one. psycopg makes plain datetimes: they count as such.
SHIFTED = """
import datetime, os, time

ahead = float(os.environ["SECONDS_AHEAD"])
time_now, time_now_ns, real = time.time, time.time_ns, datetime.datetime

class Kind(type):
    def __instancecheck__(cls, thing):
        return isinstance(thing, real)

class Shifted(real, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds=ahead)

    @classmethod
    def utcnow(cls):
        return real.utcnow() + datetime.timedelta(seconds=ahead)

time.time = lambda: time_now() + ahead
time.time_ns = lambda: time_now_ns() + int(ahead * 10**9)
datetime.datetime = Shifted
"""
Start = Callable[[timedelta], subprocess.Popen[bytes]]


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[Start]:
    """A process of the host Sending whose clock is so much ahead."""
    (tmp_path / "shifted").mkdir()
    (tmp_path / "shifted" / "sitecustomize.py").write_text(SHIFTED)
    processes: list[subprocess.Popen[bytes]] = []

    def started(ahead: timedelta) -> subprocess.Popen[bytes]:
        shifted = {"PYTHONPATH": str(tmp_path / "shifted"), "SECONDS_AHEAD": str(ahead.total_seconds())}
        command = [str(CROSSDOCK), "host", "Sending", "--database", database]
        with (tmp_path / "stderr.txt").open("ab") as errors:
            processes.append(
                subprocess.Popen(command, env={**os.environ, **shifted}, stdout=subprocess.DEVNULL, stderr=errors)
            )
        return processes[-1]

    yield started
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def shop() -> Iterator[Partner]:
    with partner() as made:
        yield made


def office(database: str, folder: Path, *ports: dict[str, Any]) -> Office:
    hosts = [{"name": "Default"}, {"name": "Sending"}]
    common = {"filter": "Region = 'NO'", "host": "Sending"}
    application = {"properties": {"Region": "text"}, "hosts": hosts, "send_ports": [common | port for port in ports]}
    return Office(database, folder, application)


@pytest.mark.parametrize("ahead", [timedelta(hours=2), timedelta(hours=-2)], ids=["ahead", "behind"])
def test_host_whose_clock_is_two_hours_off_leaves_nothing_to_wait_for(
    database: str, tmp_path: Path, shop: Partner, start: Start, ahead: timedelta
) -> None:
    """It puts aside a failed delivery, blocks a line, has a third message in hand, and dies; another one goes on."""
    asked, answer = Event(), Event()

    def respond(request: Request) -> tuple[int, bytes]:
        if request.path == "/hangs":
            asked.set()
            assert answer.wait(60)
        return shop.status, b""

    shop.status, shop.respond = 503, respond
    sent = {"adapter": "http", "retry": {"count": 9, "interval": RETRY_SECONDS}}
    running = office(
        database,
        tmp_path,
        {"name": "Shop", "address": f"{shop.address}/shop", **sent},
        {"name": "Line", "address": f"{shop.address}/line", "ordered": True, **sent},
        {"name": "Hangs", "address": f"{shop.address}/hangs", **sent},
    )
    off = start(ahead)
    running.publish(Region="NO")

    waiting = "SELECT due_at - now() FROM scheduled UNION ALL SELECT blocked_until - now() FROM subqueue_lease"
    found: list[timedelta] = []

    def both_wait() -> bool:
        found[:] = [each for (each,) in rows(database, waiting) if each is not None]
        return asked.is_set() and len(found) == 2

    until(both_wait, 60)
    assert all(abs(each) < timedelta(minutes=1) for each in found)
    off.kill()
    off.wait()
    shop.status = 200
    answer.set()
    start(timedelta(0))

    eventually(lambda: running.agent.statistics().ports, {"Shop": 1, "Line": 1, "Hangs": 1}, 60)
    running.agent.close()


def test_two_hosts_two_hours_apart_share_the_work_and_open_a_window_at_the_same_time(
    database: str, tmp_path: Path, start: Start
) -> None:
    now = datetime.now(UTC)
    window = {"from": f"{now - timedelta(hours=1):%H:%M}", "to": f"{now + timedelta(hours=1):%H:%M}"}
    running = office(
        database,
        tmp_path,
        {"name": "Out", "adapter": "file", "address": "out/%MessageID% %datetime%", "service_window": window},
    )
    both = [start(timedelta(0)), start(timedelta(hours=2))]
    living = "SELECT process FROM host_instance WHERE state = 'running'"
    until(lambda: {(each.pid,) for each in both} <= set(rows(database, living)), 60)
    published = 0

    def by_both() -> bool:
        """Each names a file by what it takes for the time: so we know that one of them is wrong indeed."""
        nonlocal published
        running.publish(Region="NO")
        published += 1
        hours = {name.split()[1][:13] for name in written(tmp_path / "out")}
        return len(hours) > 1

    until(by_both, 60)
    eventually(lambda: running.agent.statistics().ports, {"Out": published}, 60)

    assert len(written(tmp_path / "out")) == published
    assert rows(database, "SELECT FROM scheduled") == []
    [host] = [each for each in running.agent.configuration.list_hosts() if each.name == "Sending"]
    assert [each.state for each in host.instances] == ["running", "running"]
    running.agent.close()
