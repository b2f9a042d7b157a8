"""`crossdock top`: what the screen shows and what its keys do, on a real terminal; and the same for scripts."""

from __future__ import annotations

import io
import json
import os
import pty
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from threading import Thread

import pytest
from rich.console import Console

from crossdock.cli import main
from crossdock.cli.keyboard import keyboard
from crossdock.cli.top import Screen, live, once
from crossdock.errors import OutageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.sample import (
    BoxSample,
    DetailSample,
    Flow,
    HostSample,
    Sample,
    ServiceSample,
    SuspendedSample,
)
from express import deploy, living, port, publish
from walk import until

HOSTILE = "P\x1b[2J\x1b]0;pwn\x07[red]\nforged"


def a_port(number: int, name: str | None = None, **figures: int | float) -> ServiceSample:
    values: dict[str, object] = {"delivered": 0, "retried": 0, "failed": 0, **figures}
    return ServiceSample(number, name or f"Port{number:03}", "orders", "messaging", "Default", "started", **values)  # type: ignore[arg-type]


def a_sample(*ports: ServiceSample, age: float = 2.0) -> Sample:
    box = BoxSample(
        exact=False, seconds=5, total=Flow(), per_second=Flow(received=1234.4, delivered=0.25), unread=1, ready=2_000_000,
        claimed=3, waiting=4, suspended=5, unrouted=6, instances=7, suspended_instances=8, oldest_seconds=7300,
        spool_messages=9, database_bytes=10, ports_left_out=0,
        hosts=(HostSample("Default", {"running": 2}, ready=5), HostSample("Lost", {})),
        suspensions=(SuspendedSample("partner-refused", "send", 5, 90.0),),
    )  # fmt: skip
    return Sample(1, datetime(2026, 11, 18, 10, tzinfo=UTC), age, box, DetailSample(ports))


def lines(screen: Screen, sample: Sample, height: int = 40) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=140).print(screen.shown(sample, height))
    return out.getvalue().splitlines()


def ports_of(shown: list[str]) -> list[str]:
    return [line.split()[0] for line in shown if line.startswith(("Port", "P\\"))]


def test_screen_shows_rates_queues_hosts_and_codes() -> None:
    shown = "\n".join(lines(Screen(), a_sample(a_port(1, delivered=10, ready=3, suspended=2, oldest_seconds=61.0))))

    assert "large queues are estimates" in shown
    assert "received 1,234" in shown
    assert "delivered 0.2" in shown
    assert "ready 2,000,000" in shown
    assert "oldest 2 h" in shown
    assert "2 running" in shown
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("Lost")] == [["Lost", "NONE"]]
    assert "partner-refused" in shown
    assert "NOBODY SAMPLES" not in shown


def test_old_sample_is_said_to_be_old() -> None:
    assert any("NOBODY SAMPLES: this is 15 min old" in line for line in lines(Screen(), a_sample(age=900)))


def test_key_s_sorts_by_the_next_column() -> None:
    sample = a_sample(
        a_port(1, suspended=9), a_port(2, ready=5, oldest_seconds=1.0), a_port(3, delivered_per_second=2.5),
        a_port(4, oldest_seconds=50.0),
    )  # fmt: skip
    screen = Screen()

    firsts = []
    for _ in range(6):
        firsts.append(ports_of(lines(screen, sample))[0])
        screen.press("s")

    assert firsts == ["Port003", "Port002", "Port001", "Port004", "Port001", "Port003"]


def test_arrows_scroll_within_what_there_is() -> None:
    sample = a_sample(*(a_port(n, delivered_per_second=100 - n) for n in range(50)))
    screen = Screen()

    top = ports_of(lines(screen, sample, height=25))
    for _ in range(3):
        screen.press("down")
    scrolled = ports_of(lines(screen, sample, height=25))
    for _ in range(20):
        screen.press("page down")
    bottom = ports_of(lines(screen, sample, height=25))
    screen.press("home")
    screen.press("up")

    assert (top[0], scrolled[0], bottom[-1]) == ("Port000", "Port003", "Port049")
    assert len(lines(screen, sample, height=25)) <= 25
    assert ports_of(lines(screen, sample, height=25)) == top


def test_hostile_name_controls_no_terminal() -> None:
    shown = lines(Screen(), a_sample(a_port(1, HOSTILE)))

    assert all(letter.isprintable() for line in shown for letter in line)
    assert any(line.startswith(r"P\x1b[2J") and "[red]" in line for line in shown)


@contextmanager
def a_terminal() -> Iterator[tuple[int, int]]:
    """(ours, theirs)"""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def test_keys_are_read_one_by_one_and_the_terminal_is_as_it_was() -> None:
    with a_terminal() as (ours, theirs):
        before = termios.tcgetattr(theirs)
        with keyboard(theirs) as keys:
            os.write(ours, b"p\x1b[A\x1b[B\x1bOAs")
            pressed = keys.pressed(10)
            os.write(ours, b"\x1b[99~")
            unknown = keys.pressed(0.05)

        assert pressed == ["p", "up", "down", "up", "s"]
        assert unknown == []
        assert termios.tcgetattr(theirs) == before


def running_live(read: Callable[[], Sample], theirs: int, out: Console) -> Thread:
    thread = Thread(target=live, args=[read, 0.02, out, theirs], daemon=True)
    thread.start()
    return thread


def test_live_screen_reads_again_pauses_and_quits() -> None:
    reads: list[int] = []

    def read() -> Sample:
        reads.append(1)
        if len(reads) == 3:
            raise OutageError("The MessageBox cannot be reached", "gone")
        return a_sample(a_port(len(reads)))

    out = io.StringIO()
    with a_terminal() as (ours, theirs):
        thread = running_live(read, theirs, Console(file=out, width=120, height=30, force_terminal=True))
        until(lambda: len(reads) > 5)
        os.write(ours, b"p")
        until(lambda: "PAUSED" in out.getvalue())
        paused = len(reads)
        os.write(ours, b"s")
        until(lambda: "by queued" in out.getvalue())
        still = len(reads)
        os.write(ours, b"q")
        thread.join(60)

    assert still == paused
    assert not thread.is_alive()


def test_terminal_that_is_gone_ends_the_screen() -> None:
    ours, theirs = pty.openpty()
    out = io.StringIO()
    thread = running_live(a_sample, theirs, Console(file=out, force_terminal=True))
    until(lambda: "Crossdock" in out.getvalue())
    os.close(ours)
    thread.join(60)
    os.close(theirs)

    assert not thread.is_alive()


def test_all_ports_are_printed_once() -> None:
    out = io.StringIO()

    once(a_sample(*(a_port(n) for n in range(200))), Console(file=out, width=140))

    assert len(ports_of(out.getvalue().splitlines())) == 200


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr("sys.argv", ["crossdock", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_sample_is_printed_for_scripts(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, {"Region": "NO"})
    with living(agent):
        agent.samples.take()

    code = run(monkeypatch, "top", "--once", "-o", "json", "--database", database)
    told = json.loads(capsys.readouterr().out)
    refused = run(monkeypatch, "top", "-o", "json", "--database", database)
    run(monkeypatch, "top", "--database", database)

    assert code is None
    assert (told["box"]["ready"], told["box"]["hosts"][0]["instances"]) == (1, {"running": 1})
    assert [(each["name"], each["ready"]) for each in told["details"]["services"]] == [("A", 1)]
    assert refused == 2
    assert "ready 1 " in capsys.readouterr().out


def test_messagebox_that_nobody_has_looked_at_says_so(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy(agent)

    assert run(monkeypatch, "top", "--once", "--database", database) == 1
    assert "Nobody has looked at this MessageBox yet" in capsys.readouterr().err


def test_estimates_are_not_said_where_all_is_counted() -> None:
    sample = a_sample()

    assert "estimates" not in "\n".join(lines(Screen(), replace(sample, box=replace(sample.box, exact=True))))
