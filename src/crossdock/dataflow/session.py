"""The one place that makes a Spark session: quiet, local unless told otherwise, and gone when it is closed."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from crossdock.dataflow.java import Java, find_java
from crossdock.errors import UnavailableError
from crossdock.home import keep_logs_small, make_private, open_log
from crossdock.messagebox.conninfo import ENVIRONMENT
from crossdock.receive.time_limit import TIME_LIMIT_SECONDS
from crossdock.settings import Settings

_TASK_ATTEMPTS = 4
_STOP_SECONDS = 20
_LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class Spark:
    """A running Spark. `close` ends the session and the Java process behind it.

    `time_limit` is for one source. A `remote` one has executors on other machines.
    """

    session: SparkSession
    java: Java
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    link: Path | None = None
    time_limit: float = TIME_LIMIT_SECONDS
    remote: bool = False

    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        with suppress(Exception):  # the Java process may be gone already, and then there is nothing left to stop
            self.session.stop()
        SparkContext._gateway = None
        SparkContext._jvm = None
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()  # Spark's Java process ends when this pipe does
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _unlink(self.link)


def start_spark(settings: Settings) -> Spark:
    """Start Spark with its files under the home. Raises UnavailableError if it does not come up."""
    real = settings.home.resolve() / "spark"
    make_private(real)
    folder, link = _plain(real)
    java = find_java(folder / "java")
    keep_logs_small(real.parent)
    log = real / "spark.log"
    (folder / "log4j2.properties").write_text(_LOGGING)
    (folder / "tmp").mkdir(exist_ok=True)
    os.environ["JAVA_HOME"] = str(java.home)
    if not settings.master:  # on a cluster its machines may have their Python elsewhere
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # its web page, too, is for this machine only
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_PIN_THREAD"] = "false"  # with it, Spark drops the secret by which it calls us back
    os.environ.pop("SPARK_HOME", None)  # another Spark's scripts would not fit the pyspark that is imported
    conf = SparkConf(loadDefaults=False)
    for name, value in (_configuration(folder, settings) | settings.spark_conf).items():
        conf.set(name, value)
    _silence_py4j()
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with open_log(log) as output, _own_database(settings):
            gateway: Any = launch_gateway(  # type: ignore[no-untyped-call]
                conf,
                # Its own session: a signal to our process group must not end it under our feet.
                popen_kwargs={"stdout": output, "stderr": output, "start_new_session": True},
            )
        # Spark calls us back on a port of its own: whoever else connects there must know the secret too.
        gateway.callback_server_parameters.auth_token = gateway.gateway_parameters.auth_token
        context = SparkContext(conf=conf, gateway=gateway)
        accumulators: Any = context._accumulatorServer
        accumulators.handle_error = _said_elsewhere
    except (PySparkException, OSError, RuntimeError) as error:
        raise UnavailableError(
            f"Spark does not start on Java {java.version} ({java.origin}); see {log}: {error}"
        ) from error
    finally:
        _restore(interrupt)
    remote = _is_remote(settings.master)
    return Spark(SparkSession(context), java, gateway.proc, folder, log, link, settings.time_limit, remote)


def _is_remote(master: str) -> bool:
    return bool(master) and not re.fullmatch(r"local(\[.*\])?", master)


@contextmanager
def _own_database(settings: Settings) -> Iterator[None]:
    """Where no password travels, Spark's process here has it in its environment: it plans what the executors do."""
    before = os.environ.get(ENVIRONMENT)
    if _is_remote(settings.master) and settings.database:
        os.environ[ENVIRONMENT] = settings.database
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(ENVIRONMENT, None)
        else:
            os.environ[ENVIRONMENT] = before


def _silence_py4j() -> None:
    """It logs tracebacks when Java is gone, some by the root logger; we say so ourselves, in one sentence."""
    logging.getLogger().addFilter(_not_of_py4j)
    logger = logging.getLogger("py4j")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _said_elsewhere(request: Any, address: Any) -> None:
    """Spark prints a traceback here when Java is gone; `ReceiveFlow.check` says so in one sentence."""


def _restore(interrupt: Any) -> None:
    """Spark's context takes Ctrl-C for itself; what it means is decided by whoever started us."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)


def _plain(folder: Path) -> tuple[Path, Path | None]:
    """The folder under a name that Spark's scripts and Hadoop's paths can bear: blanks, commas, % and : they cannot."""
    if re.fullmatch(r"[\w./+@~-]+", str(folder), re.ASCII):
        return folder, None
    link = Path(tempfile.mkdtemp(prefix="crossdock-")) / "spark"
    link.symlink_to(folder)
    return link, link


def _unlink(link: Path | None) -> None:
    if link is not None:
        shutil.rmtree(link.parent, ignore_errors=True)


def _configuration(folder: Path, settings: Settings) -> dict[str, str]:
    master = settings.master
    local = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    # Every user of this machine reaches the ports of its Spark, which takes Java objects. It makes a secret by itself.
    authenticated = {} if _is_remote(master) else {"spark.authenticate": "true"}
    checkpoints = "org.apache.spark.sql.execution.streaming.checkpointing"
    return {
        "spark.app.name": "crossdock",
        # Several attempts for each task, so that a killed Python worker does not end the query.
        "spark.master": master or f"local[{os.cpu_count() or 2},{_TASK_ATTEMPTS}]",
        **({} if master else local),
        **authenticated,
        "spark.ui.enabled": str(settings.spark_ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        # The work is done in Python and PostgreSQL: quick compilation halves the time to start.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        f" -Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'} -Djava.io.tmpdir={folder / 'tmp'}",
        # `python -m` puts the current folder on the path, and a file there may be called queue.py.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.local.dir": str(folder / "tmp"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        "spark.sql.streaming.checkpointFileManagerClass": f"{checkpoints}.FileSystemBasedCheckpointFileManager",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
