"""The bulk lane on a real Spark cluster: a standalone master, two workers, speculative tasks, and whatever gets killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from psycopg.conninfo import make_conninfo

from cluster import Cluster, standalone_cluster
from walk import Walk, expected, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
ORDERS = 20_000 if SOAK else 900
CONFIGURATION = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m",
    "spark.executor.cores": "1", "spark.cores.max": "2", "spark.speculation": "true", "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.1", "spark.speculation.minTaskRuntime": "100ms",
}  # fmt: skip
DYING = '''
import os, signal
from pathlib import Path

def once(document):
    """Kill the process that works on the 100th order, the first time somebody gets there."""
    if document.promoted["OrderId"] == "o100":
        try:
            Path(__file__).with_name("died").touch(exist_ok=False)
        except FileExistsError:
            return document
        os.kill(os.getpid(), signal.SIGKILL)
    return document
'''


CURIOUS = """
from pathlib import Path
from crossdock.dataflow.receive import _workers

def once(document):
    Path(__file__).with_name("seen").write_text(repr(list(_workers)))
    return document
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def walk(folder: Path) -> Walk:
    made = Walk(folder, environment={"CROSSDOCK_SPARK_CONF": json.dumps(CONFIGURATION)})
    application = folder / made.application
    own = "pipelines: [{name: dying, disassemble: json, components: ['dying:once']}]\n"
    application.write_text(own + application.read_text().replace("pipeline: json", "pipeline: dying"))
    (folder / "dying.py").write_text(DYING)
    return made


def assert_exact(walk: Walk) -> None:
    assert (walk.delivered("all"), walk.delivered("europe-large")) == expected(ORDERS)
    assert walk.waiting_input() == []
    assert "Traceback" not in walk.errors()


def test_task_that_dies_half_way_is_done_again_elsewhere_and_nothing_is_doubled(cluster: Cluster, walk: Walk) -> None:
    walk.put_orders(ORDERS, per_file=30)

    code, summary = walk.run("--master", cluster.url)

    assert (walk.folder / "died").exists()
    assert (code, summary["received"], summary["published"]) == (0, ORDERS, ORDERS)
    everything, large = expected(ORDERS)
    assert summary["ports"] == {"EuropeLarge": large.total(), "Archive": everything.total()}
    assert_exact(walk)


def test_password_of_the_database_does_not_travel_to_the_executors(
    cluster: Cluster, walk: Walk, empty_database: str
) -> None:
    (walk.folder / "dying.py").write_text(CURIOUS)
    walk.put_orders(30, per_file=10)

    _, summary = walk.run("--master", cluster.url, "--database", make_conninfo(empty_database, password="geheim"))

    assert summary["received"] == 30
    assert "dbname" in (walk.folder / "seen").read_text()
    assert "geheim" not in (walk.folder / "seen").read_text()
    written = [path for path in [*walk.home.rglob("*"), *cluster.folder.rglob("*")] if path.is_file()]
    assert [path for path in written if b"geheim" in path.read_bytes()] == []


def test_executors_and_then_the_driver_are_killed_and_a_second_run_finishes(cluster: Cluster, walk: Walk) -> None:
    (walk.folder / "died").touch()
    walk.put_orders(ORDERS, per_file=10)
    run = walk.start("run", walk.application, "--until-idle", "--master", cluster.url)
    try:
        until(lambda: sum(walk.delivered("all").values()) > 0 or run.poll() is not None, 180)
        cluster.kill_executors()
        before = sum(walk.delivered("all").values())
        until(lambda: sum(walk.delivered("all").values()) > before or run.poll() is not None, 180)
    finally:
        run.kill()
        run.wait()
    for process in walk.processes():
        with suppress(psutil.NoSuchProcess):
            process.kill()

    walk.run("--master", cluster.url)

    assert_exact(walk)
