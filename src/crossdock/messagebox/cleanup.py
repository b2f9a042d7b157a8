"""Cleanup: what the maintenance jobs do in the store. Each verb is safe to run again, and by several at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import psycopg

from crossdock.messagebox.database import Database
from crossdock.messagebox.statement import log_statement, statement
from crossdock.messagebox.track_erase import rewrite_erased
from crossdock.messagebox.track_few import pack_few

_CLEANUP_LOCK = 0x0C05_5D10
_LOCK_TIMEOUT = "200ms"
_KEPT_REMOVALS = 10_000
# An index this large over this few rows is mostly empty pages: building it anew takes a moment and gives them back.
_BLOATED_BYTES = 4 * 1024 * 1024
_FEW_ROWS = 5_000

# A table that was empty when PostgreSQL last counted its rows seems small enough to be gone through again and again.
# Without a copy in memory that seems expensive, as it is.
_SUMMING = {"work_mem": "64MB", "enable_material": "off", "enable_seqscan": "on"}

_TRACK = ("track_published", "track_personal", "track_body", "track_settled")
_DAYS_AHEAD = 2

Kind = Literal["message", "part"]


class Cleanup:
    """`agent.cleanup`: the verbs for maintenance."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def may_be_unreferenced(self, kind: Kind) -> bool:
        """Whether summing the logs could free anything."""
        with self._database.connection() as connection:
            row = connection.execute(log_statement("may_be_unreferenced", kind, 1)).fetchone()
        return row is not None and bool(row[0])

    def swap_log(self, kind: Kind) -> int:
        """Let everybody write to the other log from now on; gives the number of the closed one."""
        with self._database.connection() as connection:
            row = connection.execute(log_statement("swap_log", kind, 1)).fetchone()
        assert row is not None
        return int(row[0])

    def sum_log(self, kind: Kind, log: int) -> int:
        """Add a closed log into the totals and delete what nobody references; gives how many messages or parts."""
        with self._database.connection() as connection:
            connection.execute(statement("create_unreferenced"))
            with connection.transaction():
                for name, value in _SUMMING.items():
                    connection.execute(statement("set_for_transaction"), {"name": name, "value": value})
                # Planned for the rows that are there now: a plan that was kept may be for hardly any.
                run = partial(connection.execute, prepare=False)
                if _locked(connection, log_statement("lock_log", kind, log)):
                    run(log_statement("sum_log", kind, log))
                    run(log_statement("truncate_log", kind, log))
                else:
                    run(log_statement("sum_log_gently", kind, log))
                run(log_statement("take_zero", kind, log))
                row = run(statement(f"delete_{kind}s")).fetchone()
        return 0 if row is None else int(row[0])

    def fold_counts(self) -> None:
        """Add up publications whose source is forgotten, and deliveries; only sums stay."""
        with self._database.connection() as connection, connection.transaction():
            connection.execute(statement("fold_publications"))
            connection.execute(statement("fold_deliveries"))

    def forget_removals(self) -> None:
        """Forget subscriptions that were removed long ago."""
        self._database.run("forget_removals", {"kept": _KEPT_REMOVALS})

    def forget_versions(self) -> int:
        """Forget what subscriptions were before the oldest message that can be asked about; gives how many versions."""
        with self._database.connection() as connection:
            return connection.execute(statement("forget_versions")).rowcount

    def pack_track(self) -> int:
        """Pack what was tracked a few at a time into segments; gives how many rows."""
        packed = 0
        with self._database.connection() as connection:
            apart = frozenset(name for (name,) in connection.execute(statement("list_personal")))
            row = connection.execute(statement("read_case_sensitive")).fetchone()
            case_sensitive = row is not None and bool(row[0])
            more = True
            while more:
                count, more = pack_few(connection, apart, case_sensitive=case_sensitive)
                packed += count
        return packed

    def rewrite_erased(self) -> int:
        """Rewrite what is marked as erased, without it; gives how many segments were looked at."""
        with self._database.connection() as connection:
            row = connection.execute(statement("read_case_sensitive")).fetchone()
            return rewrite_erased(connection, case_sensitive=row is not None and bool(row[0]))

    def make_track_partitions(self) -> int:
        """Partitions of the track for the next days; gives how many are new. What is in use waits for the next time."""
        return sum(self._partitions("make_track_partitions", table, {"days": _DAYS_AHEAD}) for table in _TRACK)

    def drop_track_partitions(self, kept: timedelta, bodies_kept: timedelta) -> int:
        """Forget what was tracked longer ago; gives how many partitions are gone."""
        ages = dict.fromkeys(_TRACK, kept) | {"track_body": min(kept, bodies_kept)}
        return sum(self._partitions("drop_track_partitions", table, {"kept": age}) for table, age in ages.items())

    def _partitions(self, verb: str, table: str, parameters: dict[str, Any]) -> int:
        """One table in a transaction: whoever publishes locks them in another order."""
        with self._database.connection() as connection, connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            try:
                with connection.transaction():
                    row = connection.execute(statement(verb), {"parent": table, **parameters}).fetchone()
            except psycopg.errors.LockNotAvailable:
                return 0
        return 0 if row is None else int(row[0])

    def compact(self) -> list[str]:
        """Make tables and indexes small again that are large over few rows; gives their names. Skips what is in use."""
        large = {"bytes": _BLOATED_BYTES, "rows": _FEW_ROWS}
        tables = [name for name, size in self._database.rows("list_hollow", large) if self._vacuum(name) < size]
        return tables + [name for (name,) in self._database.rows("list_bloated", large) if self._reindex(name)]

    def _vacuum(self, table: str) -> int:
        """Gives how many bytes it has afterwards."""
        # By itself PostgreSQL leaves a few dead rows in their place, and the table as large as it is.
        vacuum = psycopg.sql.SQL("VACUUM (INDEX_CLEANUP on, SKIP_LOCKED) {}").format(psycopg.sql.Identifier(table))
        with self._database.connection() as connection:
            connection.execute(vacuum)
            row = connection.execute(statement("table_size"), {"name": table}).fetchone()
        assert row is not None
        return int(row[0])

    def _reindex(self, index: str) -> bool:
        with self._database.connection() as connection, connection.transaction():
            rebuild = psycopg.sql.SQL("REINDEX INDEX {}").format(psycopg.sql.Identifier(index))
            return _locked(connection, rebuild)

    @contextmanager
    def alone(self, job: int) -> Iterator[bool]:
        """Whether this process may run the job of this number now; only one may, until it is done or dies."""
        with self._database.connection() as connection:
            job_lock = {"lock": _CLEANUP_LOCK, "job": job}
            row = connection.execute(statement("take_job"), job_lock).fetchone()
            mine = row is not None and bool(row[0])
            try:
                yield mine
            finally:
                if mine and not connection.closed:
                    connection.execute(statement("end_job"), job_lock)


def _locked(connection: psycopg.Connection, command: Any) -> bool:
    """Run a command that needs a lock, if it can be had at once; a reader who is there for long must not hold us up."""
    connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
    try:
        with connection.transaction():
            connection.execute(command)
    except psycopg.errors.LockNotAvailable:
        return False
    finally:
        connection.execute("SET LOCAL lock_timeout = 0")
    return True
