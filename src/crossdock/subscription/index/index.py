"""Finds the subscriptions of messages fast: compiled arrays over all activation subscriptions.

`match.py` says what must come out. An index is a base that never changes, a small delta of what was enlisted since, and
tombstones for what is gone; `with_changes` makes the next one in milliseconds. Read on in `index/build.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crossdock.message.property import Value
from crossdock.subscription.index.build import CompiledFilters, compile_filters
from crossdock.subscription.index.codes import Flags
from crossdock.subscription.index.delta import Filters, read_filters, write_delta
from crossdock.subscription.index.files import (
    DESCRIPTION,
    open_array,
    open_filters,
    write_array,
    write_filters,
    write_folder,
)
from crossdock.subscription.index.rows import PropertyTypes, filters_of_table, rows_of_filters, rows_of_table
from crossdock.subscription.predicate import Group

Matches = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]

_SLICE, _CODES = 16_384, 4_000_000  # messages, and codes of messages, that are worked on at a time
_COMPACT_DELTA, _COMPACT_TOMBSTONES, _SMALL_DELTA = 0.05, 0.10, 1_000


class SubscriptionIndex:
    """Immutable, and safe to share between threads."""

    def __init__(
        self, base: Segment, delta: Segment | None = None, alive: Flags | None = None, filters: Filters | None = None
    ) -> None:
        self._base, self._delta, self._alive = base, delta, alive
        self._delta_filters = filters if filters is not None else {}

    @classmethod
    def build(
        cls,
        filters: Iterable[tuple[int, Sequence[Group]]] | pa.Table,
        types: PropertyTypes,
        *,
        case_sensitive: bool = False,
    ) -> SubscriptionIndex:
        """Compile filters, or predicate rows as `rows_of_table` takes them."""
        rows = rows_of_table(filters, types) if isinstance(filters, pa.Table) else rows_of_filters(filters, types)
        return cls(Segment(compile_filters(rows, case_sensitive=case_sensitive)))

    @classmethod
    def open(cls, folder: Path) -> SubscriptionIndex:
        """The index saved in a folder, mapped into memory."""
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        base = Segment(open_filters(folder / "base"), folder / "base")
        if not description["changed"]:
            return cls(base)
        delta = Segment(open_filters(folder / "delta"))
        return cls(base, delta, open_array(folder / "alive.npy"), read_filters(folder / "delta"))

    def save(self, folder: Path) -> None:
        """Write the folder, complete or not at all. What was opened from files is linked, not copied."""
        write_folder(folder, self._write)
        self._base.folder = self._base.folder or folder / "base"

    def with_changes(
        self,
        added: Iterable[tuple[int, Sequence[Group]]] | pa.Table = (),
        removed: Iterable[int] = (),
        *,
        types: PropertyTypes,
    ) -> SubscriptionIndex:
        """The index after subscriptions were enlisted (or changed: the new filter counts) and unenlisted."""
        if isinstance(added, pa.Table):
            added = filters_of_table(added, types).items()
        new = {number: tuple(groups) for number, groups in added}
        gone = {*new, *removed}
        kept = {number: groups for number, groups in self._delta_filters.items() if number not in gone}
        alive = np.ones(len(self._base.ids), np.bool_) if self._alive is None else self._alive.copy()
        alive[self._base.positions(gone)] = False
        filters = {**kept, **new}
        rows = rows_of_filters(filters.items(), types)
        compiled = compile_filters(rows, case_sensitive=self._base.filters.case_sensitive)
        return SubscriptionIndex(self._base, Segment(compiled), alive, filters)

    def match(self, batch: pa.RecordBatch) -> Iterator[Matches]:
        """Message positions and subscription ids, each pair once, in chunks of bounded size and in no order.

        Columns carry full property names; null is absent, a missing column is absent throughout.
        """
        properties = len(self._base.filters.names)
        step = max(1, min(_SLICE, _CODES // max(1, properties)))
        for start in range(0, batch.num_rows, step):
            for messages, ids in self._match_slice(batch.slice(start, step)):
                yield messages + np.int32(start) if start else messages, ids

    def _match_slice(self, batch: pa.RecordBatch) -> Iterator[Matches]:
        for messages, positions in self._base.matcher.match(batch):
            if self._alive is not None:
                living = np.flatnonzero(self._alive.take(positions))
                messages, positions = messages.take(living), positions.take(living)
            if len(messages):
                yield messages, self._base.ids.take(positions)
        if self._delta is not None:
            for messages, positions in self._delta.matcher.match(batch):
                yield messages, self._delta.ids.take(positions)

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """The ids of the subscriptions of one message, sorted."""
        positions = self._base.matcher.match_one(promoted)
        if self._alive is not None:
            positions = [position for position in positions if self._alive[position]]
        found: list[int] = self._base.ids[positions].tolist() if positions else []
        if self._delta is not None:
            found += self._delta.ids[self._delta.matcher.match_one(promoted)].tolist()
        return sorted(found)

    @property
    def properties(self) -> frozenset[str]:
        """The properties that filters mention."""
        return frozenset(self._base.filters.names) | frozenset(self._delta.filters.names if self._delta else ())

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return self._base.filters.size + (self._delta.filters.size if self._delta else 0)

    @property
    def delta_size(self) -> int:
        """Subscriptions enlisted since the base was built."""
        return len(self._delta_filters)

    @property
    def tombstones(self) -> int:
        """Subscriptions of the base that are gone or changed."""
        return 0 if self._alive is None else int(len(self._alive) - self._alive.sum())

    @property
    def needs_compaction(self) -> bool:
        """Whether enough has changed that a new base should be built."""
        count = len(self._base.ids)
        return (
            self.delta_size > max(_SMALL_DELTA, _COMPACT_DELTA * count)
            or self.tombstones > max(_SMALL_DELTA, _COMPACT_TOMBSTONES * count)
        )  # fmt: skip

    def _write(self, folder: Path) -> None:
        write_filters(self._base.filters, folder / "base", self._base.folder)
        if self._delta is not None and self._alive is not None:
            write_filters(self._delta.filters, folder / "delta")
            write_delta(self._delta_filters, folder / "delta")
            write_array(folder / "alive.npy", self._alive)
        (folder / DESCRIPTION).write_text(json.dumps({"changed": self._delta is not None}), encoding="utf-8")


class Segment:
    """Compiled filters and what matches by them: the base of an index, or its delta."""

    def __init__(self, filters: CompiledFilters, folder: Path | None = None) -> None:
        self.filters = filters
        self.ids = filters.layout.ids
        self.folder = folder
        from crossdock.subscription.index.compiled import CompiledMatcher  # numba: most commands match nothing

        self.matcher = CompiledMatcher(filters)

    def positions(self, ids: Iterable[int]) -> npt.NDArray[np.int64]:
        """Where these subscriptions are, as far as they are here; ids are sorted."""
        sought = np.array(sorted(ids), np.int64)
        at = np.searchsorted(self.ids, sought)
        known = at < len(self.ids)
        known[known] = self.ids[at[known]] == sought[known]
        return at[known]
