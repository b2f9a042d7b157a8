"""Two pipelines on one MessageBox share the sources; when one is killed, the other reads what it had claimed."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from crossdock.messagebox.agent import Agent
from crossdock.messagebox.claims import CLAIM_LOCK
from walk import Walk, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(2400)]

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
ORDERS = 40_000 if SOAK else 6_000
# A component that notes which pipeline has read which order.
NOTE = """
import os
from pathlib import Path

def read(document):
    with Path(__file__).with_name("reads.txt").open("ab", buffering=0) as log:
        log.write(f"{os.environ['PIPELINE']} {document.promoted['OrderId']}\\n".encode())
    return document
"""


class Pipelines:
    """Two `crossdock pipeline` processes, each in a home of its own."""

    def __init__(self, walk: Walk, database: str) -> None:
        self.walk = walk
        self.database = database
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for number in ("1", "2"):
            self.walk.environment["PIPELINE"] = number
            self.processes.append(self.walk.start("pipeline", "--home", f"home{number}", "--database", self.database))
        until(lambda: self.holding() == 2, 600)

    def holding(self) -> int:
        """How many sessions claim sources."""
        query = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database WHERE classid = %s"
        with psycopg.connect(self.database) as connection:
            [(count,)] = connection.execute(f"{query} AND datname = current_database()", [CLAIM_LOCK]).fetchall()
        return int(count)

    def reads(self) -> list[tuple[str, str]]:
        """(pipeline, order) of every read."""
        log = self.walk.folder / "reads.txt"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(pipeline, order) for pipeline, order in (line.split() for line in lines)]

    def read_by(self, pipeline: str) -> int:
        return sum(each == pipeline for each, _ in self.reads())


@pytest.fixture
def pipelines(folder: Path, empty_database: str) -> Iterator[Pipelines]:
    walk = Walk(folder)
    application = (folder / walk.application).read_text()
    own = 'pipelines: [{name: noted, disassemble: json, components: ["note:read"]}]\n'
    (folder / walk.application).write_text(own + application.replace("pipeline: json", "pipeline: noted"))
    (folder / "note.py").write_text(NOTE)
    walk.run("--database", empty_database)  # deploys
    made = Pipelines(walk, empty_database)
    made.start()
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    for left in walk.processes():
        with suppress(psutil.NoSuchProcess):
            left.kill()


def assert_published_once(pipelines: Pipelines) -> None:
    until(lambda: pipelines.walk.waiting_input() == [], 900)
    with Agent(pipelines.database) as agent:
        statistics = agent.statistics()
    assert (statistics.received, statistics.published, statistics.unread) == (ORDERS, ORDERS, 0)
    with psycopg.connect(pipelines.database, options="-csearch_path=crossdock") as connection:
        rows = connection.execute("SELECT context->'promoted'->>'OrderId' FROM message").fetchall()
    assert Counter(order for (order,) in rows) == Counter(f"o{n}" for n in range(ORDERS))


def test_two_pipelines_read_each_source_once_between_them(pipelines: Pipelines) -> None:
    pipelines.walk.put_orders(ORDERS)

    assert_published_once(pipelines)

    assert set(Counter(order for _, order in pipelines.reads()).values()) == {1}
    assert min(pipelines.read_by("1"), pipelines.read_by("2")) > 0


def test_pipeline_that_is_killed_leaves_its_sources_to_the_other(pipelines: Pipelines) -> None:
    pipelines.walk.put_orders(ORDERS)
    until(lambda: min(pipelines.read_by("1"), pipelines.read_by("2")) > 0, 300)

    pipelines.processes[0].kill()

    assert_published_once(pipelines)
    reads = Counter(order for _, order in pipelines.reads())
    assert len(reads) == ORDERS
    assert max(reads.values()) <= 2
    assert reads.total() <= 1.5 * ORDERS
