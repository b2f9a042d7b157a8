"""`crossdock get --watch` as a process: it shows the list again until Ctrl-C, and ends with 0."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from crossdock.cli.watching import with_seconds
from crossdock.messagebox.agent import Agent
from express import deploy, port

pytestmark = pytest.mark.process
SECONDS = 120.0


class Watching:
    """A process whose output is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.text = ""
        self._output = output

    def until(self, condition: Callable[[str], bool]) -> str:
        """What it has written since the last call, once that is as it should be."""
        deadline = time.monotonic() + SECONDS
        while not condition(self.text):
            assert time.monotonic() < deadline, self.text
            assert self.process.poll() is None, self.text
            if select.select([self._output], [], [], 1.0)[0]:
                self.text += os.read(self._output, 65_536).decode()
        seen, self.text = self.text, ""
        return seen

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        while self.process.poll() is None:  # it may have more to say than a pipe holds
            if select.select([self._output], [], [], 0.1)[0]:
                with suppress(OSError):  # a terminal is gone with the last process that has it
                    os.read(self._output, 65_536)
        return self.process.returncode


@contextmanager
def watching(agent: Agent, *words: str, terminal: bool = False) -> Iterator[Watching]:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "crossdock", "get", *words, "--database", agent.database]
    process = subprocess.Popen(command, stdout=theirs)
    os.close(theirs)
    try:
        yield Watching(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def ports(agent: Agent) -> Agent:
    deploy(agent, port("Plain", "Region = 'NO'"))
    return agent


def test_lines_of_json_are_one_document_for_each_look_and_show_what_changes(ports: Agent) -> None:
    with watching(ports, "ports", "--watch", "0.2", "-o", "jsonl") as watched:
        first = watched.until(lambda text: text.count("\n") >= 2)
        ports.subscriptions.stop("Plain")
        then = watched.until(lambda text: '"stopped"' in text and text.endswith("\n"))
        code = watched.interrupt()

    states = [json.loads(line)[0]["state"] for line in (first + then).splitlines()]
    assert (states[0], states[-1], code) == ("started", "stopped", 0)


def test_table_that_goes_to_no_terminal_comes_once_more_below_the_first(ports: Agent) -> None:
    with watching(ports, "ports", "--watch", "0.2") as watched:
        seen = watched.until(lambda text: text.count("Plain") >= 2)
        code = watched.interrupt()

    assert "\x1b" not in seen
    assert "\n\nname" in seen
    assert code == 0


def test_table_on_a_terminal_is_shown_in_place(ports: Agent) -> None:
    with watching(ports, "ports", "-o", "wide", "--watch", "0.2", terminal=True) as watched:
        seen = watched.until(lambda text: text.count("Plain") >= 2)
        code = watched.interrupt()

    assert seen.count("\x1b[2J") >= 2
    assert seen.startswith("\x1b[H\x1b[2J")
    assert code == 0


def test_messages_and_json_documents_are_watched_too(ports: Agent) -> None:
    with watching(ports, "messages", "-o", "json", "--watch") as watched:
        seen = watched.until(lambda text: text.count("[]\n") >= 2)
        code = watched.interrupt()

    assert (seen.replace("[]\n", ""), code) == ("", 0)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("ports --watch", "ports --watch 2"),
        ("ports --watch 5", "ports --watch 5"),
        ("--watch ports", "--watch 2 ports"),
        ("ports --watch -o json", "ports --watch 2 -o json"),
        ("ports --watch=3", "ports --watch=3"),
        ("-- --watch", "-- --watch"),
        ("ports", "ports"),
    ],
)
def test_seconds_may_be_left_out(words: str, meant: str) -> None:
    assert with_seconds(words.split()) == meant.split()
