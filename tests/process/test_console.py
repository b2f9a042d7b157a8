"""Console processes: started by a command, beside a run, and while PostgreSQL goes and comes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from console_box import seeded
from crossdock.client import Client
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer
from walk import CROSSDOCK, Walk, until

pytestmark = pytest.mark.process

ADDRESS = re.compile(r"Console: (?P<url>http://127\.0\.0\.1:\d+)/\?token=(?P<token>\S+)")


@contextmanager
def started(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A console process, its address and its one-time token."""
    command = [str(CROSSDOCK), "console", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = ADDRESS.match(line)
            assert found is not None, line + process.stdout.read()
            yield process, found["url"], found["token"]
        finally:
            process.terminate()
            process.wait(60)


def test_a_console_is_started_opened_once_and_ends_when_it_is_told_to(database: str, folder: Path) -> None:
    with Agent(database) as agent:
        seeded(agent)
    with (
        started(folder, "--database", database) as (process, url, token),
        httpx.Client(base_url=url, trust_env=False, timeout=60) as browser,
    ):
        first = browser.get("/", params={"token": token})
        page = browser.get("/")
        again = httpx.get(url, params={"token": token}, trust_env=False, timeout=60)
        with browser.stream("GET", "/api/v1/live") as live:
            assert live.status_code == 200
            process.send_signal(signal.SIGINT)
            ended = process.wait(60)

    assert (first.status_code, page.status_code, ended) == (303, 200, 0)
    assert page.headers["content-type"].startswith("text/html")
    assert again.headers["location"].startswith("/sign-in")


def test_what_cannot_be_served_is_one_sentence(database: str, folder: Path) -> None:
    def said(*options: str) -> tuple[int, str]:
        ran = subprocess.run([CROSSDOCK, "console", *options], cwd=folder, capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        return ran.returncode, ran.stderr.strip()

    assert said("--listen", "10.255.255.1:8400", "--database", database) == (
        2,
        "crossdock: The console listens at 10.255.255.1 only if people have to sign in: give --tokens, --passwords FILE, "
        "--trusted-proxy ADDRESS or --oidc-issuer URL. Without these it listens at 127.0.0.1.",
    )
    assert said("--home", "nowhere", "--listen", "127.0.0.1:0") == (
        2,
        "crossdock: There is no MessageBox in nowhere. Create it with `crossdock run APP`, or give --home.",
    )
    with started(folder, "--database", database) as (_, url, _):
        code, sentence = said("--listen", url.removeprefix("http://"), "--database", database)
    assert code == 1
    assert sentence.endswith("Address already in use. Give another --listen HOST:PORT.")


def test_a_console_answers_503_while_postgresql_is_away_and_goes_on_by_itself(folder: Path) -> None:
    server = EmbeddedServer(folder / "home")
    with Agent(server.acquire()) as agent:
        agent.box.create()
        seeded(agent)
    with started(folder, "--home", "home") as (_, url, _):
        made = subprocess.run(
            [CROSSDOCK, "token", "create", "test", "--role", "operator", "--home", "home"],
            cwd=folder, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        with Client(url, made.stdout.strip()) as client, httpx.Client(base_url=url, trust_env=False) as raw:
            raw.headers["authorization"] = f"Bearer {made.stdout.strip()}"
            before = [port.name for port in client.ports().items]
            postmaster = int((folder / "home/postgres/data/postmaster.pid").read_text().splitlines()[0])
            psutil.Process(postmaster).kill()
            statuses = set[int]()

            def is_back() -> bool:
                status = raw.get("/api/v1/ports", timeout=60).status_code
                statuses.add(status)
                return status == 200 and 503 in statuses

            until(is_back, 120)
            after = [port.name for port in client.ports().items]
    server.release()

    assert before == after
    assert statuses == {200, 503}


def test_run_serves_the_console_beside_itself_starts_it_again_and_ends_it(folder: Path) -> None:
    walk = Walk(folder)
    running = walk.start("run", walk.application, "--console", "--listen", "127.0.0.1:0")
    try:
        until(lambda: ADDRESS.search(_said(folder)) is not None, 180)
        found = ADDRESS.search(_said(folder))
        assert found is not None
        assert httpx.get(f"{found['url']}/health", trust_env=False, timeout=60).status_code == 200
        [console] = filter(_is_console, psutil.Process(running.pid).children(recursive=True))
        console.kill()
        until(lambda: len(ADDRESS.findall(_said(folder))) == 2, 180)
        again = list(ADDRESS.finditer(_said(folder)))[1]
        assert httpx.get(f"{again['url']}/health", trust_env=False, timeout=60).status_code == 200
        assert running.poll() is None
        [console] = filter(_is_console, psutil.Process(running.pid).children(recursive=True))
        os.kill(running.pid, signal.SIGKILL)  # however it ends
        running.wait(60)
        assert psutil.wait_procs([console], 60)[1] == []
    finally:
        running.kill()
        running.wait(60)


def _said(folder: Path) -> str:
    return (folder / "stderr.txt").read_text()


def _is_console(process: psutil.Process) -> bool:
    try:
        return "console" in process.cmdline()
    except psutil.Error:  # another child, which has just ended
        return False
