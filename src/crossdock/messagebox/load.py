"""Loads the router of an epoch: all subscriptions for a process that knows none, else only what changed since.

The compiled index is kept as files, one set per epoch, so that the processes of one machine share it in memory.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.messagebox.statement import statement
from crossdock.subscription.index.index import SubscriptionIndex
from crossdock.subscription.index.rows import filters_of_rows
from crossdock.subscription.predicate import Filter
from crossdock.subscription.router import ActivatingReceive, CorrelationSet, Epoch, Router, Subscription, Tracking
from crossdock.subscription.text import parse_filter

_KEPT_EPOCHS = 3
_LEFT_OVER_SECONDS = 600
_SMALL_CHANGE = 1_000
_FEW_PREDICATES = 5_000
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


logger = logging.getLogger(__name__)


def load_router(connection: psycopg.Connection, known: Router | None, folder: Path | None) -> Router:
    """The router of the current epoch, from the one that is known if there is one."""
    with connection.transaction():
        # One snapshot: the epoch and the subscriptions belong together.
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = connection.execute(statement("read_box")).fetchone()
        assert row is not None
        box, number, token, case_sensitive, removals_after = row
        epoch, files = Epoch(number, token), _Files(folder, f"{box:010x}", f"{number:012}-{token.hex[:12]}")
        stale = known is not None and (known.epoch.number < removals_after or not _is_past(connection, known.epoch))
        if known is None or stale or known.index.needs_compaction or _much_changed(connection, known):
            return _load_all(connection, epoch, files, case_sensitive=case_sensitive)
        return _load_changes(connection, epoch, files, known)


def load_filters(connection: psycopg.Connection) -> dict[int, Filter]:
    """The filters as they were declared, without the transport id that every service has."""
    rows = _predicates(connection, -1, first_group=1)
    return {number: Filter(groups) for number, groups in filters_of_rows(rows, load_types(connection)).items()}


def _is_past(connection: psycopg.Connection, epoch: Epoch) -> bool:
    """Whether this MessageBox was in that epoch: one that was restored may not have been, whatever its number."""
    sought = {"epoch": epoch.number, "token": epoch.token}
    return connection.execute(statement("was_in_epoch"), sought).fetchone() is not None


class _Files:
    """The index files of one epoch of a MessageBox; without a folder nothing is kept.

    They only save work: files that cannot be read are made anew, and files that cannot be written are done without.
    """

    def __init__(self, folder: Path | None, box: str, epoch: str) -> None:
        self._folder = folder
        self._box = box
        self._path = None if folder is None else folder / f"{box}-{epoch}"

    def open(self) -> SubscriptionIndex | None:
        if self._path is None or not self._path.is_dir():
            return None
        try:
            return SubscriptionIndex.open(self._path)
        except Exception as error:
            logger.warning("The subscription index in %s is built again: %r", self._path, error)
            shutil.rmtree(self._path, ignore_errors=True)
            return None

    def save(self, index: SubscriptionIndex) -> None:
        if self._path is None:
            return
        try:
            index.save(self._path)
            self._forget_old()
        except OSError as error:
            logger.warning("The subscription index is not kept in %s: %s", self._path, error)

    def _forget_old(self) -> None:
        """Files that are still mapped by somebody stay readable for them."""
        assert self._folder is not None
        assert self._path is not None
        made_at = self._path.stat().st_mtime  # by the clock of the files, whatever ours says
        for old in sorted(self._folder.glob(f"{self._box}-*"))[:-_KEPT_EPOCHS]:
            shutil.rmtree(old, ignore_errors=True)
        for left_over in self._folder.glob(f".{self._box}-*"):
            if made_at - left_over.stat().st_mtime > _LEFT_OVER_SECONDS:
                shutil.rmtree(left_over, ignore_errors=True)


def _much_changed(connection: psycopg.Connection, known: Router) -> bool:
    """Whether a delta would be so large that a new base is better."""
    row = connection.execute(statement("count_changed"), {"epoch": known.epoch.number}).fetchone()
    return row is not None and row[0] > max(_SMALL_CHANGE, len(known.subscriptions) // 20)


def _load_all(connection: psycopg.Connection, epoch: Epoch, files: _Files, *, case_sensitive: bool) -> Router:
    index = files.open()
    if index is None:
        types, rows = load_types(connection), _predicates(connection, -1)
        # pyarrow imports pandas to make a table of lists: a second that a few subscriptions need not wait for.
        few = len(rows) <= _FEW_PREDICATES
        filters = filters_of_rows(rows, types).items() if few else _table_of(rows)
        index = SubscriptionIndex.build(filters, types, case_sensitive=case_sensitive)
        files.save(index)
    return _router(connection, epoch, _subscriptions(connection, -1), index, case_sensitive=case_sensitive)


def _load_changes(connection: psycopg.Connection, epoch: Epoch, files: _Files, known: Router) -> Router:
    changed = _subscriptions(connection, known.epoch.number)
    removed = [number for (number,) in connection.execute(statement("list_removed"), {"epoch": known.epoch.number})]
    types = load_types(connection)
    index = files.open()
    if index is None:
        # A changed subscription may have lost its filter, and then no predicate rows replace the old ones.
        added = filters_of_rows(_predicates(connection, known.epoch.number), types).items()
        index = known.index.with_changes(added, [*removed, *changed], types=types)
        files.save(index)
    kept = {number: each for number, each in known.subscriptions.items() if number not in removed}
    return _router(connection, epoch, {**kept, **changed}, index, case_sensitive=known.case_sensitive)


def _router(
    connection: psycopg.Connection,
    epoch: Epoch,
    subscriptions: dict[int, Subscription],
    index: SubscriptionIndex,
    *,
    case_sensitive: bool,
) -> Router:
    types = load_types(connection)
    correlations = load_correlations(connection)
    receives = {each.id: _receives(types, each.receives) for each in subscriptions.values() if each.receives}
    tracking = _tracking(connection)
    return Router(epoch, subscriptions, index, types, correlations, case_sensitive, receives, tracking)


def _tracking(connection: psycopg.Connection) -> Tracking:
    levels = connection.execute(statement("list_track_levels")).fetchall()
    return Tracking(
        {id_: (application, level) for kind, id_, _, application, level in levels if kind == "location"},
        {name: id_ for kind, id_, name, _, _ in levels if kind == "location"},
        {id_: level for kind, id_, _, _, level in levels if kind == "service"},
        frozenset(name for (name,) in connection.execute(statement("list_personal"))),
    )


def load_correlations(connection: psycopg.Connection) -> dict[int, CorrelationSet]:
    """By what running instances may wait, by number."""
    return {id_: _correlation(*row) for id_, *row in connection.execute(statement("list_correlations"))}


def _correlation(
    properties: list[str], types: list[str] | None, service: int | None, name: str | None
) -> CorrelationSet:
    return CorrelationSet(tuple(properties), None if types is None else frozenset(types), service, name)


def _receives(types: PropertyRegistry, stored: Sequence[Mapping[str, Any]]) -> Sequence[ActivatingReceive]:
    return [read_receive(types, each) for each in stored]


def read_receive(types: PropertyRegistry, stored: Mapping[str, Any]) -> ActivatingReceive:
    """As it is kept with its service."""
    filter_ = None if stored.get("filter") is None else parse_filter(types, stored["filter"])
    return ActivatingReceive(stored["type"], filter_, tuple(stored["initializes"]), bool(stored["convoy"]))


def _subscriptions(connection: psycopg.Connection, after: int) -> dict[int, Subscription]:
    rows = connection.execute(statement("load_subscriptions"), {"epoch": after})
    return {row[0]: _subscription(*row) for row in rows}


def _subscription(id_: int, service: int, name: str, host: int, state: Any, *rest: Any) -> Subscription:
    priority, line, two_way, labels, address, receives = rest
    return Subscription(id_, service, name, host, state, priority, line, two_way, frozenset(labels), address, receives)


def _predicates(connection: psycopg.Connection, after: int, *, first_group: int = 0) -> list[tuple[Any, ...]]:
    parameters = {"epoch": after, "first_group": first_group}
    return connection.execute(statement("load_predicates"), parameters).fetchall()


def _table_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[] for _ in _COLUMNS]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_COLUMNS)


def load_types(connection: psycopg.Connection) -> PropertyRegistry:
    """The declared properties."""
    rows = connection.execute(statement("list_properties")).fetchall()
    return PropertyRegistry([(name, PropertyType(type_)) for name, type_ in rows])
