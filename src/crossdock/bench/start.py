"""How long `crossdock run` takes to start: until a web request is answered, its message delivered, and a file routed.

Each start is a process of its own, in a new home and then again in the same one. Only the file needs Spark. The
baselines are taken in the same run: an empty Python, and the embedded PostgreSQL alone, in a new home and again.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import median
from typing import Any

from crossdock.errors import UnavailableError
from crossdock.messagebox.embedded import EmbeddedServer

_LOOK_SECONDS = 0.005
_PATIENCE_SECONDS = 300.0
_APPLICATION = """
application: start
properties: {{OrderId: text}}
schemas: [{{type: Order, format: json, promote: {{OrderId: $.id}}}}]
receive_ports:
  - name: Orders
    locations:
      - {{adapter: http, address: "http://127.0.0.1:{port}/orders", pipeline: json}}
      - {{adapter: file, address: "in/*.json", pipeline: json}}
send_ports:
  - {{name: Out, adapter: file, address: "out/%OrderId%.json", filter: "EXISTS(OrderId)"}}
"""

Progress = Callable[[str], None]


def bench_start(*, rounds: int, progress: Progress) -> dict[str, Any]:
    """Seconds from the call of each command; of several rounds the median. `_new`: in a home that is not there yet."""
    new, again, postgres_new, postgres_again = [], [], [], []
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        with tempfile.TemporaryDirectory(prefix="crossdock-bench-") as home:
            postgres_new.append(_postgres_seconds(Path(home)))
            postgres_again.append(_postgres_seconds(Path(home)))
        with tempfile.TemporaryDirectory(prefix="crossdock-bench-") as folder:
            new.append(_start(Path(folder), "new"))
            again.append(_start(Path(folder), "again"))
    python = [sys.executable, "-m", "crossdock"]
    return {
        "rounds": rounds,
        "help_s": _median(_command_seconds([*python, "--help"]) for _ in range(rounds)),
        "python_s": _median(_command_seconds([sys.executable, "-c", "pass"]) for _ in range(rounds)),
        "postgres_new_s": _median(postgres_new),
        "postgres_s": _median(postgres_again),
        **{f"{name}_new_s": _median(each[name] for each in new) for name in new[0]},
        **{f"{name}_s": _median(each[name] for each in again) for name in again[0]},
    }


def _median(seconds: Iterator[float] | list[float]) -> float:
    return round(median(seconds), 2)


def _command_seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _postgres_seconds(home: Path) -> float:
    began = time.perf_counter()
    server = EmbeddedServer(home)
    try:
        server.acquire()
        return time.perf_counter() - began
    finally:
        server.release()


def _start(folder: Path, order: str) -> Mapping[str, float]:
    """Seconds from the call of `crossdock run` to the first answer, and to the delivery of what was sent and read."""
    port = _free_port()
    (folder / "start.yaml").write_text(_APPLICATION.format(port=port))
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "waiting.json").write_text(f'{{"id": "file-{order}"}}')
    began = time.perf_counter()
    with _running(folder) as process:
        _wait(process, lambda: _answered(port, f'{{"id": "http-{order}"}}'))
        answered = time.perf_counter()
        _wait(process, (folder / "out" / f"http-{order}.json").exists)
        delivered = time.perf_counter()
        _wait(process, (folder / "out" / f"file-{order}.json").exists)
        routed = time.perf_counter()
    ends = {"http_answer": answered, "http_delivery": delivered, "file_delivery": routed}
    return {name: end - began for name, end in ends.items()}


@contextmanager
def _running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "crossdock", "run", "start.yaml", "--home", "home"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _wait(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not happened():
        if process.poll() is not None or time.monotonic() > until:
            raise UnavailableError("`crossdock run` has not started. Try it by itself: crossdock doctor")
        time.sleep(_LOOK_SECONDS)


def _answered(port: int, body: str) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    with suppress(OSError, HTTPException):
        connection.request("POST", "/orders", body)
        return connection.getresponse().status < 300
    return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
