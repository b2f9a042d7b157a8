"""Reads segments of the track: what each of their messages was, where it came from and to whom it was given."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from crossdock.messagebox.track_few import Few, Known
from crossdock.messagebox.track_rows import Route, Tracked
from crossdock.messagebox.track_segment import (
    UNREADABLE,
    Origin,
    Segment,
    Transaction,
    decompress,
    micros,
    moment,
    put_back,
)

_MARK = b'{"personal":""}'
Taken = Mapping[int, Sequence[tuple[str, str]]]


@dataclass(slots=True)
class Chunk:
    """A segment that was read, with what its row says. One that is not packed yet has no number."""

    number: int | None
    application: str | None
    segment: Segment
    applications: Sequence[str | None] | None
    _origin_ends: list[int]
    _transaction_ends: list[int]

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> Chunk:
        at, number, transaction, epoch, application, first, last, content = row
        segment = Segment.unpack(bytes(content))
        if not segment.transactions:
            segment.transactions = [Transaction(len(segment), micros(at), transaction, epoch, first, last)]
        return cls._made(number, application, segment, None)

    @classmethod
    def of_few(cls, few: Few) -> Chunk:
        return cls._made(None, None, few.segment, few.applications)

    @classmethod
    def _made(
        cls, number: int | None, application: str | None, segment: Segment, applications: Sequence[str | None] | None
    ) -> Chunk:
        origin_ends = list(accumulate(each.messages for each in segment.origins))
        transaction_ends = list(accumulate(each.messages for each in segment.transactions))
        return cls(number, application, segment, applications, origin_ends, transaction_ends)

    def origin(self, position: int) -> Origin:
        place = bisect_right(self._origin_ends, position)
        return self.segment.origins[place] if place < len(self._origin_ends) else Origin(1)

    def transaction(self, position: int) -> Transaction:
        return self.segment.transactions[bisect_right(self._transaction_ends, position)]

    def at(self, position: int) -> datetime:
        return moment(self.transaction(position).at)

    def claims(self, position: int) -> list[tuple[int, int]]:
        """What the transaction of a message is said to have settled: (transaction, sequence)."""
        number = self.transaction(position).number
        return [(number, sequence) for sequence in self.origin(position).settled]

    def published_by(self, settled: Collection[tuple[int, int]], instance: str) -> list[int]:
        """The messages that these settlements published, or a step of this instance."""
        return [
            position
            for position in range(len(self.segment))
            if self.origin(position).instance == instance or any(claim in settled for claim in self.claims(position))
        ]

    def context(self, position: int, taken: Taken) -> bytes:
        context: bytes = self.segment.contexts[position]
        values = taken.get(position, ())
        return put_back(context, [(name, value.encode()) for name, value in values]) if values else context

    def taken(self, content: bytes | None) -> dict[int, list[tuple[str, str]]]:
        """The personal values of the segment, by position."""
        if content is None:
            return {}
        kept = msgspec.json.decode(decompress(bytes(content)), type=list[tuple[int, list[tuple[str, str]]]])
        return dict(kept)


def tracked(
    found: Sequence[tuple[Chunk, Sequence[int]]],
    taken: Sequence[Taken],
    known: Known,
    parents: Mapping[tuple[int, int], UUID],
) -> list[Tracked]:
    """The messages at these positions, the oldest first. One that was routed again is one message."""
    every: dict[UUID, Tracked] = {}
    more: list[Tracked] = []
    for (chunk, positions), values in zip(found, taken, strict=True):
        unusual = _unusual(chunk.segment)
        for position in positions:
            each = _tracked(chunk, position, values, known, parents, unusual)
            if chunk.segment.rerouted:
                more.append(each)
            elif each.id not in every or each.at < every[each.id].at:  # who takes an id later says nothing about it
                every[each.id] = each
    for each in more:
        every[each.id] = _again(every[each.id], each) if each.id in every else each
    return sorted(every.values(), key=lambda each: (each.at, each.id))


def _again(first: Tracked, later: Tracked) -> Tracked:
    """A message that nobody wanted, and that was routed again."""
    routes = tuple(dict.fromkeys((*first.routes, *later.routes)))
    return replace(first, routes=routes, rerouted=(*first.rerouted, later.references))


def _unusual(segment: Segment) -> Mapping[str, Mapping[str, list[dict[str, Any]]]]:
    """What publishing wrote about single messages, by kind and id. Where it named no subscription there is none."""
    found: dict[str, defaultdict[str, list[dict[str, Any]]]] = {}
    for kind, rows in segment.exceptions.items():
        found[kind] = defaultdict(list)
        for row in rows:
            found[kind][str(row["message_id"])].append(row)
    return found


def _tracked(
    chunk: Chunk,
    position: int,
    values: Taken,
    known: Known,
    parents: Mapping[tuple[int, int], UUID],
    unusual: Mapping[str, Mapping[str, list[dict[str, Any]]]],
) -> Tracked:
    segment, id_ = chunk.segment, chunk.segment.id(position)
    origin, transaction = chunk.origin(position), chunk.transaction(position)

    def rows(kind: str) -> Sequence[dict[str, Any]]:
        return unusual[kind].get(str(id_), ()) if kind in unusual else ()

    document = _document(chunk.context(position, values))
    written = document.get("written", {})
    place = known.locations.get(origin.location or 0)
    low, high = np.searchsorted(segment.positions, [position, position + 1])
    routes = [Route(number) for number in segment.subscriptions[low:high].tolist()]
    routes += [Route(row["subscription_id"]) for row in rows("stopped") if "subscription_id" in row]
    routes += [
        Route(row["subscription_id"], UUID(row["instance_id"]) if "instance_id" in row else None)
        for kind in ("queued", "activated")
        for row in rows(kind)
        if "subscription_id" in row
    ]
    suspended = next(iter(rows("suspended")), {})
    instance = () if origin.instance is None else (UUID(origin.instance),)
    applications = chunk.applications
    return Tracked(
        id=id_,
        at=moment(transaction.at),
        epoch=transaction.epoch,
        application=chunk.application if applications is None else applications[position],
        location=_text(written.get("BTS.ReceiveLocationName")) if place is None else place.name,
        source=_text(written.get("FILE.ReceivedFileName")),
        labels=tuple(document.get("labels", ())),
        context=document,
        routes=tuple(dict.fromkeys(routes)),
        refusals=tuple(
            (row["subscription_id"], tuple(row.get("labels", ())))
            for row in rows("refused")
            if "subscription_id" in row
        ),
        code=suspended.get("code"),
        reason=suspended.get("reason"),
        parents=(*(parents[claim] for claim in chunk.claims(position) if claim in parents), *instance),
        references=(transaction.first, transaction.last),
    )


def _text(value: object) -> str | None:
    """None for what is none: the role of a host may write a value of another type."""
    return value if isinstance(value, str) else None


def unmarked(context: bytes) -> bytes:
    """A context without the marks of what is kept apart."""
    return msgspec.json.encode(_document(context)) if _MARK in context else context


def _document(context: bytes) -> dict[str, Any]:
    """The stored document; what is marked as kept apart is left out, and named. One that is none is empty."""
    try:
        document = msgspec.json.decode(context, type=_Document)
    except UNREADABLE:
        return {}
    kept: dict[str, Any] = {"promoted": document.promoted, "written": document.written}
    if document.labels:
        kept["labels"] = document.labels
    if document.erased:
        kept["erased"] = True
    if _MARK not in context:
        return kept
    named = []
    for values in (document.promoted, document.written):
        for name in [name for name, value in values.items() if value == {"personal": ""}]:
            del values[name]
            named.append(name)
    return {**kept, "personal": named}


class _Document(msgspec.Struct):
    promoted: dict[str, str | dict[str, str]] = {}
    written: dict[str, str | dict[str, str]] = {}
    labels: list[str] = []
    erased: bool = False
