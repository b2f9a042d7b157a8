"""Receiving and delivering in processes of their own: they share the work, and whatever is killed, it is done once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from counted import assert_explained, assert_once_each
from exact_box import assert_box_is_exact
from walk import Walk, expected, java_of, python_workers_of, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
ORDERS = 200_000 if SOAK else 1_500
KILLS = 40 if SOAK else 5


class Crew:
    """A process that receives and two that deliver, in one home; who is killed is started again."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.commands = {
            "pipeline": ("pipeline",),
            "host 1": ("host", "Default"),
            "host 2": ("host", "Default"),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Whoever does not run."""
        for name, command in self.commands.items():
            if name not in self.processes or self.processes[name].poll() is not None:
                self.processes[name] = self.walk.start(*command)

    def runs(self) -> bool:
        """As somebody who looks after them would see to: one whose Java is killed while it starts gives up."""
        self.start()
        return True

    def stop(self) -> list[int]:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(120) for process in self.processes.values()]

    def kill(self, victim: str) -> None:
        with suppress(psutil.NoSuchProcess, FileNotFoundError, IndexError):
            VICTIMS[victim](self).kill()


VICTIMS: dict[str, Callable[[Crew], psutil.Process]] = {
    "driver": lambda crew: psutil.Process(crew.processes["pipeline"].pid),
    "java": lambda crew: java_of(crew.processes["pipeline"])[0],
    "python worker": lambda crew: python_workers_of(crew.processes["pipeline"])[-1],
    "host": lambda crew: psutil.Process(crew.processes["host 1"].pid),
    "postgres": lambda crew: psutil.Process(crew.walk.postmaster()),
}


@pytest.fixture
def crew(folder: Path) -> Iterator[Crew]:
    walk = Walk(folder, counted=True)
    walk.put("broken.json", b"{")
    walk.run()  # deploys
    made = Crew(walk)
    yield made
    for process in made.processes.values():
        process.kill()
        process.wait()
    for left in walk.processes():
        with suppress(psutil.NoSuchProcess):
            left.kill()


def delivered(walk: Walk) -> int:
    folder = walk.folder / "out" / "all"
    return sum(1 for path in folder.iterdir() if not path.name.startswith(".")) if folder.exists() else 0


def at_rest(host: dict[str, Any]) -> tuple[int, int, int]:
    return host["ready"], host["claimed"], len(host["instances"])


def test_whoever_is_killed_at_random_moments_every_order_is_published_once_and_delivered(crew: Crew) -> None:
    randomness = random.Random(11)
    walk = crew.walk
    walk.put_orders(ORDERS, per_file=500 if SOAK else 25)
    crew.start()
    victims = [randomness.choice(list(VICTIMS)) for _ in range(KILLS - len(VICTIMS))] + list(VICTIMS)

    for victim in victims:
        before = delivered(walk)
        until(lambda: crew.runs() and (delivered(walk) > before or delivered(walk) == ORDERS), 180)  # noqa: B023
        time.sleep(randomness.uniform(0, 2))
        crew.kill(victim)
        time.sleep(0.2)
        crew.start()
    until(lambda: crew.runs() and delivered(walk) == ORDERS and walk.waiting_input() == [], 1800 if SOAK else 240)
    # A host that is not at work yet is ended by a signal like any other process.
    until(lambda: crew.runs() and [at_rest(row) for row in walk.get("hosts")] == [(0, 0, 2)], 60)
    codes = crew.stop()

    assert (walk.delivered("all"), walk.delivered("europe-large")) == expected(ORDERS)
    for port in ("all", "europe-large"):  # a host has one life more for each time that PostgreSQL was killed
        kills = sum(victim in ("host", "postgres") for victim in victims)
        assert_explained(walk.folder / "out" / port, kills=kills, lives=1 + victims.count("postgres"))
    assert codes == [0, 0, 0]
    assert "Traceback" not in walk.errors()
    walk.run()  # cleans up what the last ones left
    assert_box_is_exact(walk, ORDERS)


def test_two_instances_share_the_queue_and_wrong_names_are_refused(crew: Crew) -> None:
    refused = crew.walk.command("host", "Nobody")
    assert (refused.returncode, "There is no host 'Nobody' (there are: Default)." in refused.stderr) == (2, True)
    crew.start()
    until(lambda: [len(row["instances"]) for row in crew.walk.get("hosts")] == [2], 60)
    second = crew.walk.command("pipeline")
    assert (second.returncode, "Another `crossdock run` or `pipeline`" in second.stderr) == (1, True)

    crew.walk.put_orders(50)
    until(lambda: delivered(crew.walk) == 50, 120)

    assert crew.stop() == [0, 0, 0]
    for port in ("all", "europe-large"):
        assert_once_each(crew.walk.folder / "out" / port)
    until(lambda: not crew.walk.processes(), 20)
