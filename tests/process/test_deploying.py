"""Deploying beside running processes: they start quickly, without Spark where nothing needs it, and follow `apply`."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from walk import Walk, java_of, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

PATIENCE = 240  # the machine may be busy with other tests
START_CPU_SECONDS = 6.0  # 1.5 where nothing else runs; Spark alone would take more


class Web:
    """An application with an http location, whose file is written anew for every deployment."""

    def __init__(self, folder: Path) -> None:
        self.walk = Walk(folder)
        self.file = folder / "web.yaml"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.accepted = 0
        self.uncertain = 0

    def write(self, *ports: str, locations: str = "") -> None:
        each = "\n".join(
            f'  - {{name: {name}, adapter: file, address: "out/{name}/%MessageID%", host: {name}, '
            "filter: MessageType = 'Order'}"
            for name in ports
        )
        self.file.write_text(
            "application: web\nproperties: {Id: text}\n"
            "schemas: [{type: Order, format: json, promote: {Id: $.id}}]\n"
            "receive_ports:\n  - name: In\n    locations:\n"
            f'      - {{adapter: http, address: ":{self.port}/orders", pipeline: json}}\n{locations}'
            f"send_ports:\n{each}\n"
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = self.walk.start(*arguments)
        self.processes.append(process)
        return process

    def post(self) -> int:
        """The status; 0 if there is no answer."""
        try:
            answer = httpx.post(f"http://127.0.0.1:{self.port}/orders", json={"id": "a"}, timeout=60)
        except httpx.ConnectError:
            return 0
        except httpx.TransportError:
            self.uncertain += 1  # it may have been published
            return 0
        self.accepted += answer.status_code == 202
        return answer.status_code

    def delivered(self, port: str) -> int:
        return len(list((self.walk.folder / "out" / port).glob("[!.]*")))

    def all_delivered(self, port: str, *, before: int = 0, others: int = 0) -> None:
        """Wait until everything accepted, but for so many `before` and with so many `others`, is there: once each."""
        expected = self.accepted - before + others
        until(lambda: self.delivered(port) >= expected, PATIENCE)
        assert expected <= self.delivered(port) <= expected + self.uncertain


@pytest.fixture
def web(folder: Path) -> Iterator[Web]:
    made = Web(folder)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    for left in made.walk.processes():
        with suppress(psutil.NoSuchProcess):
            left.kill()


def test_run_answers_quickly_without_spark_and_follows_what_is_applied_and_undeployed(web: Web) -> None:
    web.write("One")
    run = web.start("run", str(web.file))
    until(lambda: web.post() == 202, PATIENCE)
    used = sum(psutil.Process(run.pid).cpu_times()[:2])
    web.all_delivered("One")
    before = web.accepted

    web.write("One", "Two")  # with a host of its own
    applied = web.walk.command("apply", str(web.file), "-o", "json")
    assert (applied.returncode, json.loads(applied.stdout)["summary"]) == (
        0,
        "1 host added, 1 port added; 2 subscriptions: 1 added",
    ), applied.stderr
    until(lambda: web.post() == 202, PATIENCE)
    web.all_delivered("Two", before=before)
    web.all_delivered("One")
    undeployed = web.walk.command("undeploy", "web", "--terminate", "-o", "json")

    assert (undeployed.returncode, json.loads(undeployed.stdout)[0]["ports"]) == (0, 2), undeployed.stderr
    until(lambda: web.post() == 0, PATIENCE)
    assert java_of(run) == []
    assert used < START_CPU_SECONDS
    run.send_signal(signal.SIGTERM)
    assert run.wait(PATIENCE) == 0
    assert "deployed web: " in web.walk.errors()
    assert "Traceback" not in web.walk.errors()


def test_host_and_pipeline_follow_what_is_applied_and_spark_starts_when_a_location_needs_it(web: Web) -> None:
    web.write("One")
    assert web.walk.command("apply", str(web.file)).returncode == 0
    pipeline, host = web.start("pipeline"), web.start("host", "One", "Default")
    until(lambda: web.post() == 202, PATIENCE)
    web.all_delivered("One")
    assert java_of(pipeline) == []

    web.write("One", locations='      - {adapter: file, address: "in/*.json", pipeline: json}\n')
    web.walk.put("b.json", b'{"id": "b"}')
    applied = web.walk.command("apply", str(web.file))

    assert applied.returncode == 0, applied.stderr
    assert "1 receive location added" in applied.stdout
    web.all_delivered("One", others=1)
    until(lambda: web.walk.waiting_input() == [], PATIENCE)
    assert len(java_of(pipeline)) >= 1
    for process in (pipeline, host):
        process.send_signal(signal.SIGTERM)
    assert [process.wait(PATIENCE) for process in (pipeline, host)] == [0, 0]
    assert "Traceback" not in web.walk.errors()


def test_web_requests_are_answered_while_spark_starts(web: Web) -> None:
    web.write("One", locations='      - {adapter: file, address: "in/*.json", pipeline: json}\n')
    web.walk.put("b.json", b'{"id": "b"}')
    run = web.start("run", str(web.file))

    until(lambda: web.post() == 202, PATIENCE)
    waiting = web.walk.waiting_input()
    web.all_delivered("One", others=1)

    assert waiting == ["b.json"]
    run.send_signal(signal.SIGTERM)
    assert run.wait(PATIENCE) == 0
