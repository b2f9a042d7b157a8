"""Every command of the tutorial, in order, as a newcomer types it; what is printed is what the page shows."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from office import free_port
from walk import CROSSDOCK, until

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
_PORTS = ("8080", "9090", "9091")
_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
_VARIES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ?|[0-9a-f]{8}-[0-9a-f-]{27}")
_PATIENCE_SECONDS = 120.0


def commands(page: str) -> list[tuple[str, str]]:
    """What is typed, and what the page shows of the answer."""
    typed = [each for block in _CONSOLE.findall(page) for each in ("\n" + block).split("\n$ ")[1:]]
    return [(first, answer) for first, _, answer in (each.partition("\n") for each in typed)]


def same(shown: str, printed: str) -> bool:
    """Whether the lines are the same but for blanks, times, ids and what the page leaves out with an ellipsis."""
    wanted, found = (sorted(" ".join(_VARIES.sub("*", line).split()) for line in text.splitlines()) for text in (shown, printed))  # fmt: skip
    if "…" in wanted:
        return all(line in found for line in wanted if line != "…")
    patterns = [".*".join(re.escape(part) for part in line.split("…")) for line in wanted]
    return len(patterns) == len(found) and all(map(re.fullmatch, patterns, found))


@contextmanager
def process(command: str, folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    try:
        yield started
    finally:
        started.terminate()  # not by Ctrl-C, which is ignored where the tests run in the background
        started.wait(_PATIENCE_SECONDS)


def listens(port: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", int(port))) == 0


def test_every_command_of_the_tutorial_prints_what_the_page_shows(database: str, tmp_path: Path) -> None:
    page = PAGE.read_text()
    for port in _PORTS:
        page = page.replace(f":{port}/", f":{(free := free_port())}/").replace(f"server {port} ", f"server {free} ")
    [application] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "orders.yaml").write_text(application)
    path = f"{CROSSDOCK.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ, "PATH": path, "CROSSDOCK_DATABASE": database, "CROSSDOCK_PERSON": "you", "COLUMNS": "400"
    }  # fmt: skip

    def answer(command: str) -> str:
        shell = ["bash", "-c", command]
        done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def shows(command: str, shown: str) -> None:
        """Deliveries take a moment: a question is asked again until its answer is that of the page."""
        last = ""

        def asked() -> bool:
            nonlocal last
            last = answer(command)
            return same(shown, last)

        try:
            until(asked, _PATIENCE_SECONDS)
        except AssertionError:
            assert last == shown, command
            raise

    with ExitStack() as running:
        typed = commands(page)
        assert len(typed) > 20
        for command, shown in typed:
            if command.startswith("crossdock run"):
                running.enter_context(process(command, tmp_path, environment))
                [port] = re.findall(r":(\d+)/orders", application)
                until(lambda port=port: listens(port), _PATIENCE_SECONDS)  # type: ignore[misc]
            elif command.endswith("&"):
                running.enter_context(process(command.removesuffix("&"), tmp_path, environment))
                [port] = re.findall(r"server (\d+)", command)
                until(lambda port=port: listens(port), _PATIENCE_SECONDS)  # type: ignore[misc]
            elif command.startswith(("crossdock get", "crossdock explain", "crossdock trace")):
                shows(command, shown)
            elif shown:
                assert same(shown, printed := answer(command)), (command, printed)
            else:
                answer(command)
