"""kill -9 at any point of the walk, then the same command again: everything ends in exactly the right places.

The points are chosen by what has happened so far (messages published, files delivered), so that every step is hit: before
anything, in the middle of publishing, in the middle of delivering.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from counted import assert_explained
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer
from exact_box import assert_box_is_exact
from exact_track import assert_track_is_exact
from walk import Walk, expected, java_of, kill, python_workers_of, until

pytestmark = pytest.mark.process

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
ORDERS = 20_000 if SOAK else 1_500
Victims = Callable[[Walk, "subprocess.Popen[bytes]"], list[psutil.Process]]


def driver(_: Walk, run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [psutil.Process(run.pid)]


def java(_: Walk, run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return java_of(run)


def python_worker(_: Walk, run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return python_workers_of(run)[-1:]


def postgres(walk: Walk, _: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [psutil.Process(walk.postmaster())]


def everything(walk: Walk, run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [*psutil.Process(run.pid).children(recursive=True), psutil.Process(run.pid), *postgres(walk, run)]


# The others one by one in a soak; `test_processes.py` kills each of them every time.
VICTIMS = [java, everything, *([driver, python_worker, postgres] if SOAK else [])]


@pytest.mark.parametrize("victims", VICTIMS, ids=lambda each: each.__name__)
def test_killed_in_the_middle_and_run_again_loses_and_doubles_nothing(folder: Path, victims: Victims) -> None:
    walk = walk_with_orders(folder)
    run = walk.start("run", "orders.yaml", "--until-idle", "-o", "json")
    until(lambda: delivered_files(walk) > 50 or run.poll() is not None)

    kill(*victims(walk, run))
    run.communicate(timeout=240)
    walk.run()

    assert_exact(walk, kills=1, lives=2 if victims is postgres else 1)


@pytest.mark.parametrize("seed", range(10 if SOAK else 1))
def test_killed_at_random_moments_with_the_checkpoint_deleted_in_between(folder: Path, seed: int) -> None:
    randomness = random.Random(seed)
    walk = walk_with_orders(folder)

    for _ in range(3):
        run = walk.start("run", "orders.yaml", "--until-idle", "-o", "json")
        until(lambda: "running" in walk.errors() or run.poll() is not None)  # noqa: B023
        time.sleep(randomness.uniform(0, 6))
        if run.poll() is None:
            kill(*everything(walk, run))
        run.communicate()
        for checkpoint in (walk.home / "spark").glob("checkpoint*"):
            shutil.rmtree(checkpoint, ignore_errors=True)
        (folder / "stderr.txt").unlink(missing_ok=True)
    walk.run()

    assert_exact(walk, kills=3)


def walk_with_orders(folder: Path) -> Walk:
    """Many small files and a few large ones, and one that is wrong."""
    walk = Walk(folder, counted=True)
    walk.put_orders(ORDERS // 2)
    walk.put_orders(ORDERS - ORDERS // 2, per_file=250, first=ORDERS // 2)
    walk.put("broken.json", b"{")
    return walk


def delivered_files(walk: Walk) -> int:
    folder = walk.folder / "out" / "all"
    return sum(1 for path in folder.iterdir() if not path.name.startswith(".")) if folder.exists() else 0


def assert_exact(walk: Walk, *, kills: int, lives: int = 1) -> None:
    all_orders, large = expected(ORDERS)
    assert walk.delivered("all") == all_orders
    assert walk.delivered("europe-large") == large
    for port in ("all", "europe-large"):
        assert_explained(walk.folder / "out" / port, kills=kills, lives=lives)
    assert walk.waiting_input() == []
    assert [Path(row["source_file"]).name for row in walk.get("suspended")] == ["broken.json"]
    left_over = [path for port in ("all", "europe-large") for path in (walk.folder / "out" / port).glob(".*")]
    assert left_over == []
    assert_box_is_exact(walk, ORDERS)
    server = EmbeddedServer(walk.home)
    with Agent(server.acquire()) as agent:
        ports = {"Archive": walk.folder / "out" / "all", "EuropeLarge": walk.folder / "out" / "europe-large"}
        assert_track_is_exact(agent, ports, suspended=1)
    server.release()
    until(lambda: not walk.processes(), 20)
