"""Ways in which a MessageBox goes back in time or becomes two: each copies a database as it is now, to be opened later."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from crossdock.messagebox.embedded import EmbeddedServer, binaries
from databases import drop, named
from walk import until

# Called once the original has gone on: starts the copy and gives its connection string.
Open = Callable[[], str]
_SETTINGS = {"wal_level": "replica", "wal_keep_size": "1GB", "shared_buffers": "16MB", "wal_buffers": "1MB"}


class Copies:
    """Copies of one server. `origin` runs in `folder`; what is opened is stopped with the stack."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.archive.mkdir()
        self._stack = stack
        self.origin = EmbeddedServer(folder / "origin", _SETTINGS)
        self.server = self.origin.acquire()
        stack.callback(self.origin.release)

    def cold_copy(self, database: str) -> Open:
        """The data folder of a server that was stopped."""
        self.origin.release()
        target = self._target()
        shutil.copytree(self.origin.data, target.data, symlinks=True)
        self.origin.acquire()
        return lambda: self._opened(target, database)

    def base_backup(self, database: str) -> Open:
        """Of a running server, with the log that was written meanwhile and no target: it goes on by the same timeline."""
        target = self._backed_up()
        return lambda: self._opened(target, database)

    def point_in_time(self, database: str) -> Open:
        """A base backup, and the archived log up to a moment that has a name."""
        target = self._backed_up()
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute("SELECT pg_create_restore_point('here')")

        def opened() -> str:
            with psycopg.connect(self.server, autocommit=True) as connection:
                connection.execute("SELECT pg_switch_wal()")
            for segment in (self.origin.data / "pg_wal").glob("0*"):
                if segment.is_file():
                    shutil.copy(segment, self.archive)
            _configure(
                target,
                restore_command=f"cp {self.archive}/%f %p",
                recovery_target_name="here",
                recovery_target_action="promote",
            )
            _write(target, "recovery.signal", "")
            return self._opened(target, database)

        return opened

    def standby(self) -> EmbeddedServer:
        """A copy that follows as far as the log goes that it has, until it is promoted; it runs."""
        target = self._backed_up()
        _write(target, "standby.signal", "")
        target.acquire()
        self._stack.callback(target.release)
        return target

    def fail_over(self, standby: EmbeddedServer) -> None:
        """The original is gone, at once, and the standby takes its place."""
        self.origin._run(
            "pg_ctl", "stop", "--pgdata", str(self.origin.data), "--mode", "immediate", owned=self.origin.data
        )
        with psycopg.connect(standby.database, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def template(self, database: str) -> Open:
        """CREATE DATABASE … TEMPLATE on the same server."""
        copy = f"{_name(database)}_copy"
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {copy} TEMPLATE {_name(database)} STRATEGY file_copy".encode())
        return lambda: named(self.server, copy)

    def dump(self, database: str, *, into: str) -> Open:
        """What pg_dump writes, loaded by psql into a database of another server."""
        file = self.folder / f"{_name(database)}.sql"
        subprocess.run([binaries() / "pg_dump", "--no-owner", "--file", file, "--dbname", database], check=True)

        def opened() -> str:
            options = ("--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={file}", f"--dbname={into}")
            subprocess.run([binaries() / "psql", *options], check=True, stdout=subprocess.DEVNULL)
            return into

        return opened

    def _target(self) -> EmbeddedServer:
        made = EmbeddedServer(self.folder / f"copy-{len(list(self.folder.glob('copy-*')))}", _SETTINGS)
        made.folder.mkdir(parents=True)
        return made

    def _backed_up(self) -> EmbeddedServer:
        target = self._target()
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute("SELECT pg_backup_start('copy', fast => true)")
            left_out = shutil.ignore_patterns(
                "postmaster.pid", "postmaster.opts", ".s.PGSQL*", "pg_wal", "pg_internal.init*"
            )
            shutil.copytree(self.origin.data, target.data, symlinks=True, ignore=left_out)
            row = connection.execute("SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)").fetchone()
        assert row is not None
        shutil.copytree(self.origin.data / "pg_wal", target.data / "pg_wal")
        _write(target, "backup_label", row[0])
        return target

    def _opened(self, target: EmbeddedServer, database: str) -> str:
        opened = target.acquire()
        self._stack.callback(target.release)
        until(lambda: recovered(opened), 60)
        return named(opened, _name(database))


def recovered(server: str) -> bool:
    """Whether it has come to the end of the log, and can be written to."""
    with psycopg.connect(server) as connection:
        row = connection.execute("SELECT NOT pg_is_in_recovery()").fetchone()
    return row is not None and bool(row[0])


@contextmanager
def new_database(server: str, name: str) -> Iterator[str]:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield named(server, name)
    drop(server, name)


def _name(database: str) -> str:
    return str(conninfo_to_dict(database)["dbname"])


def _configure(server: EmbeddedServer, **settings: str) -> None:
    with (server.data / "postgresql.auto.conf").open("a") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())


def _write(server: EmbeddedServer, name: str, content: str) -> None:
    path = server.data / name
    path.write_text(content)
    os.chown(path, server.data.stat().st_uid, -1)
