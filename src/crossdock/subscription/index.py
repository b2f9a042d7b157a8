"""Finds the subscriptions of messages fast: compiled arrays over all activation subscriptions.

`match.py` says what must come out. A base that never changes, a small delta of what was enlisted since, and tombstones
for what is gone; `with_changes` makes the next index in milliseconds, `needs_compaction` says when to build anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crossdock.message.property import Value
from crossdock.subscription.index_build import CompiledFilters, compile_filters
from crossdock.subscription.index_encode import ARROW_TYPES, NumpyEncoder
from crossdock.subscription.index_numpy import NumpyEngine
from crossdock.subscription.index_rows import PropertyTypes, rows_of_filters, rows_of_table
from crossdock.subscription.predicate import Group

Matches = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]


class SubscriptionIndex:
    def __init__(self, base: CompiledFilters) -> None:
        self._base = base
        self._encoder = NumpyEncoder(base.names, base.constants, case_sensitive=base.case_sensitive)
        self._engine = NumpyEngine(base.layout)

    @classmethod
    def build(
        cls,
        filters: Iterable[tuple[int, Sequence[Group]]] | pa.Table,
        types: PropertyTypes,
        *,
        case_sensitive: bool = False,
        sample: pa.RecordBatch | None = None,
    ) -> SubscriptionIndex:
        rows = rows_of_table(filters, types) if isinstance(filters, pa.Table) else rows_of_filters(filters, types)
        return cls(compile_filters(rows, case_sensitive=case_sensitive, sample=sample))

    def match(self, batch: pa.RecordBatch) -> Iterator[Matches]:
        encoded = self._encoder.encode(batch, self._base.layout.bit_property.tolist())
        for messages, subscriptions in self._engine.match(encoded):
            yield messages, self._base.layout.ids[subscriptions]

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        types = {name: known.type for name, known in zip(self._base.names, self._base.constants, strict=True)}
        batch = pa.RecordBatch.from_pydict(
            {name: pa.array([promoted[name]], ARROW_TYPES[type_]) for name, type_ in types.items() if name in promoted}
            or {"": [None]}
        )
        return sorted(int(each) for _, ids in self.match(batch) for each in ids)
