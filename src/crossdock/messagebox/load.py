"""Loads the router of an epoch: all subscriptions for a process that knows none, else only what changed since.

The compiled index is kept as files, one set per epoch, so that the processes of one machine share it in memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.messagebox.statement import statement
from crossdock.subscription.index import SubscriptionIndex
from crossdock.subscription.index_rows import filters_of_table
from crossdock.subscription.predicate import Filter
from crossdock.subscription.router import Router, Subscription

_KEPT_EPOCHS = 3
_COLUMNS = pa.schema(
    [
        ("subscription", pa.int64()),
        ("group", pa.int64()),
        ("predicate", pa.int64()),
        ("property", pa.string()),
        ("operator", pa.string()),
        ("value", pa.string()),
    ]
)


def load_router(connection: psycopg.Connection, known: Router | None, folder: Path | None) -> Router:
    """The router of the current epoch, from the one that is known if there is one."""
    with connection.transaction():
        # One snapshot: the epoch and the subscriptions belong together.
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = connection.execute("SELECT number, epoch, case_sensitive FROM box").fetchone()
        assert row is not None
        box, epoch, case_sensitive = row
        if known is None or known.index.needs_compaction:
            return _load_all(connection, epoch, _Files(folder, box), case_sensitive=case_sensitive)
        return _load_changes(connection, epoch, _Files(folder, box), known)


def load_filters(connection: psycopg.Connection) -> dict[int, Filter]:
    table = _predicates(connection, -1)
    return {number: Filter(groups) for number, groups in filters_of_table(table, _types(connection)).items()}


class _Files:
    """The index files of one MessageBox; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, box: int) -> None:
        self._folder = folder
        self._box = box

    def open(self, epoch: int) -> SubscriptionIndex | None:
        path = self._path(epoch)
        return SubscriptionIndex.open(path) if path is not None and path.is_dir() else None

    def save(self, epoch: int, index: SubscriptionIndex) -> SubscriptionIndex:
        path = self._path(epoch)
        if path is not None:
            index.save(path)
            self._forget_old(path)
        return index

    def _path(self, epoch: int) -> Path | None:
        return None if self._folder is None else self._folder / f"{self._box:010x}-{epoch:012}"

    def _forget_old(self, newest: Path) -> None:
        """Files that are still mapped by somebody stay readable for them."""
        for old in sorted(newest.parent.glob(f"{self._box:010x}-*"))[:-_KEPT_EPOCHS]:
            shutil.rmtree(old, ignore_errors=True)


def _load_all(connection: psycopg.Connection, epoch: int, files: _Files, *, case_sensitive: bool) -> Router:
    index = files.open(epoch)
    if index is None:
        table = _predicates(connection, -1)
        index = SubscriptionIndex.build(table, _types(connection), case_sensitive=case_sensitive)
        files.save(epoch, index)
    return Router(epoch, _subscriptions(connection, -1), index, _types(connection))


def _load_changes(connection: psycopg.Connection, epoch: int, files: _Files, known: Router) -> Router:
    changed = _subscriptions(connection, known.epoch)
    removed = [
        number
        for (number,) in connection.execute(
            "SELECT subscription_id FROM subscription_removal WHERE epoch > %s", [known.epoch]
        )
    ]
    types = _types(connection)
    index = files.open(epoch)
    if index is None:
        # A changed subscription may have lost its filter, and then no predicate rows replace the old ones.
        index = known.index.with_changes(_predicates(connection, known.epoch), [*removed, *changed], types=types)
        files.save(epoch, index)
    kept = {number: each for number, each in known.subscriptions.items() if number not in removed}
    return Router(epoch, {**kept, **changed}, index, types)


def _subscriptions(connection: psycopg.Connection, after: int) -> dict[int, Subscription]:
    rows = connection.execute(statement("load_subscriptions"), {"epoch": after})
    return {row[0]: Subscription(*row) for row in rows}


def _predicates(connection: psycopg.Connection, after: int) -> pa.Table:
    rows = connection.execute(statement("load_predicates"), {"epoch": after}).fetchall()
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[] for _ in _COLUMNS]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_COLUMNS)


def _types(connection: psycopg.Connection) -> PropertyRegistry:
    rows = connection.execute("SELECT name, type FROM property").fetchall()
    return PropertyRegistry([(name, PropertyType(type_)) for name, type_ in rows])
