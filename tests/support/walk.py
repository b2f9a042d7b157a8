"""Real `crossdock` processes for tests: a folder with an application and its input, runs of it, and ways to kill them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from counted import NAME, put_beside
from crossdock.messagebox.embedded import EmbeddedServer

EXAMPLES = Path(__file__).parents[2] / "examples"
CROSSDOCK = Path(sys.executable).with_name("crossdock")
OLD = 1_700_000_000


class Walk:
    """The orders application in a folder of its own. If `counted`, attempts to deliver can be asked for."""

    def __init__(
        self,
        folder: Path,
        application: str = "orders.yaml",
        environment: Mapping[str, str] | None = None,
        *,
        counted: bool = False,
    ):
        self.folder = folder
        self.application = application
        self.environment = {**os.environ, "CROSSDOCK_DEBUG": "", **(environment or {})}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "in").mkdir(exist_ok=True)
        text = (EXAMPLES / application).read_text()
        if counted:
            put_beside(folder)
            text = text.replace("    adapter: file\n", f'    adapter: "{NAME}"\n')
            assert NAME in text
        (folder / application).write_text(text)

    @property
    def home(self) -> Path:
        return self.folder / ".crossdock"

    def put(self, name: str, content: bytes) -> None:
        """A file that is complete at once: written elsewhere, then moved in."""
        path = self.folder / "in" / name
        temporary = self.folder / f".new-{name}"
        temporary.write_bytes(content)
        os.utime(temporary, (OLD, OLD))
        temporary.rename(path)

    def put_orders(self, count: int, *, per_file: int = 1, first: int = 0) -> None:
        """Orders o<n>; every third from Europe and large."""
        for start in range(first, first + count, per_file):
            orders = [order(n) for n in range(start, min(start + per_file, first + count))]
            self.put(f"orders-{start:06}.json", "\n".join(map(json.dumps, orders)).encode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "stderr.txt").open("ab") as errors:
            return subprocess.Popen(
                [CROSSDOCK, *arguments], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=errors
            )

    def command(self, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CROSSDOCK, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """`crossdock run --until-idle`: its exit code and summary."""
        result = self.command("run", self.application, "--until-idle", "-o", "json", *arguments)
        assert result.returncode in (0, 3), result.stderr
        assert "Traceback" not in result.stderr
        return result.returncode, json.loads(result.stdout)

    def get(self, what: str) -> list[dict[str, Any]]:
        result = self.command("get", what, "-o", "json")
        assert result.returncode == 0, result.stderr
        rows: list[dict[str, Any]] = json.loads(result.stdout)
        return rows

    def delivered(self, port_folder: str) -> Counter[str]:
        """How often each order id arrived in a folder."""
        files = (self.folder / "out" / port_folder).glob("[!.]*")
        return Counter(json.loads(path.read_bytes())["id"] for path in files)

    def waiting_input(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "in").iterdir())

    def errors(self) -> str:
        path = self.folder / "stderr.txt"
        return path.read_text() if path.exists() else ""

    def postmaster(self) -> int:
        return int((self.home / "postgres" / "data" / "postmaster.pid").read_text().split("\n", 1)[0])

    def processes(self) -> list[psutil.Process]:
        """Everything that belongs to this folder: its runs, its PostgreSQL, its Spark."""
        return processes_of(self.folder)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Everything that names this folder in its command line, or works in it."""
    found = []
    for process in psutil.process_iter():
        try:
            command = " ".join(process.cmdline())
            if str(folder) in command or process.cwd().startswith(str(folder)):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def order(number: int) -> dict[str, object]:
    large = number % 3 == 0
    return {"id": f"o{number}", "region": "EU" if large else "US", "amount": 1000 + number if large else 5}


def expected(count: int, first: int = 0) -> tuple[Counter[str], Counter[str]]:
    """What must be in `all` and in `europe-large` for these orders."""
    numbers = range(first, first + count)
    return Counter(f"o{n}" for n in numbers), Counter(f"o{n}" for n in numbers if n % 3 == 0)


def until(
    condition: Callable[[], bool],
    seconds: float = 120,
    *,
    every_seconds: float = 0.02,
    describe: Callable[[], str] = lambda: "",
) -> None:
    """Wait for something to become true, with a deadline; if that passes, `describe` says how things are."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"this did not happen in time\n{describe()}"
        time.sleep(every_seconds)


def java_of(run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return _children(run, r"java")


def python_workers_of(run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return _children(run, r"pyspark\.daemon")


def _children(run: subprocess.Popen[bytes], pattern: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(run.pid).children(recursive=True):
        try:
            if re.search(pattern, " ".join(process.cmdline())):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def kill(*processes: psutil.Process) -> None:
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


def stop_postgres(server: EmbeddedServer, how: signal.Signals) -> None:
    """SIGQUIT is what `pg_ctl stop -m immediate` sends; either way it has to recover when it starts again."""
    postmaster = psutil.Process(int((server.data / "postmaster.pid").read_text().split("\n", 1)[0]))
    postmaster.send_signal(how)
    until(lambda: not postmaster.is_running() or postmaster.status() == psutil.STATUS_ZOMBIE, 30)
