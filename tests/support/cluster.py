"""A real Spark cluster for tests: a standalone master and two workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from crossdock.dataflow.java import find_java
from walk import until

_SPARK = Path(pyspark.__file__).parent
_MASTER = re.compile(r"spark://127\.0\.0\.1:\d+")


@dataclass
class Cluster:
    """`url` is what `--master` takes; logs and what executors write are in `folder`."""

    url: str
    folder: Path
    workers: list[subprocess.Popen[bytes]]

    def kill_executors(self) -> None:
        """The workers start new ones."""
        for worker in self.workers:
            for process in psutil.Process(worker.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                        process.kill()


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """Stopped at the end, with everything it started."""
    java = find_java(folder / "java")
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    environment.pop("SPARK_HOME", None)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=folder))
        return log

    try:
        log = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        until(lambda: _MASTER.search(log.read_text()) is not None, 60)
        found = _MASTER.search(log.read_text())
        assert found is not None
        url = found[0]
        for number in (1, 2):
            start(
                f"worker-{number}", "worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "700m",
                "--webui-port", "0", "--work-dir", str(folder / f"work-{number}"), url,
            )  # fmt: skip
        until(lambda: log.read_text().count("Registering worker") == 2, 60)
        yield Cluster(url, folder, started[1:])
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)
