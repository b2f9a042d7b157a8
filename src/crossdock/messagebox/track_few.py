"""What was published a few at a time: as segments in memory for whoever reads them, and packed for good by a job.

A row has what its publisher said. What a host says about locations and services of others is not believed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import psycopg
from psycopg.rows import namedtuple_row

from crossdock.errors import ContextError
from crossdock.message.context import Context
from crossdock.message.property import Value
from crossdock.messagebox.statement import statement
from crossdock.messagebox.track_filter import distinct, make_filter
from crossdock.messagebox.track_segment import (
    UNREADABLE,
    Origin,
    Segment,
    Transaction,
    micros,
    pack_bodies,
    runs,
    take_personal,
)
from crossdock.messagebox.track_write import KEPT_EXCEPTIONS, UNFILTERED, instances_of, pack_personal

_SPAN = timedelta(seconds=30)
_READ_AT_ONCE = 50
# As the columns have them with which they are compared: a number that no column holds fails the statement.
_Integer = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_BigInteger = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# A step settles no more than a claim takes at once. Each message of an origin is asked for all that the origin settled.
_Settled = Annotated[list[_BigInteger], msgspec.Meta(max_length=1_000)]


class _Said(msgspec.Struct):
    """An origin, as whoever publishes wrote it."""

    messages: _BigInteger = 0
    location: _Integer | None = None
    service: _Integer | None = None
    instance: UUID | None = None
    settled: _Settled = []


class _Noted(msgspec.Struct, omit_defaults=True):
    """What publishing wrote about one message, as far as it is tracked."""

    message_id: UUID
    subscription_id: _BigInteger = 0
    instance_id: UUID | None = None
    code: str | None = None
    reason: str | None = None
    labels: list[str] = []


class _Exceptions(msgspec.Struct):
    queued: list[_Noted] = []
    activated: list[_Noted] = []
    stopped: list[_Noted] = []
    suspended: list[_Noted] = []
    refused: list[_Noted] = []


class Place(NamedTuple):
    """A location or a service."""

    name: str
    application: str
    host_id: int


@dataclass(frozen=True, slots=True)
class Known:
    """Locations and services by their ids, and the hosts for which database users may speak."""

    locations: Mapping[int, Place]
    services: Mapping[int, Place]
    publishers: Mapping[str, Sequence[int]]

    def believed(self, origin: Origin, publisher: str) -> Origin:
        """An origin without what the publisher may not say."""
        hosts = self.publishers.get(publisher, ())
        location = self.locations.get(origin.location or 0)
        service = self.services.get(origin.service or 0)
        ours = service is not None and service.host_id in hosts
        return origin._replace(
            location=origin.location if location is not None and location.host_id in hosts else None,
            service=origin.service if ours else None,
            instance=origin.instance if ours else None,
        )

    def application(self, origin: Origin) -> str | None:
        for place in (self.locations.get(origin.location or 0), self.services.get(origin.service or 0)):
            if place is not None:
                return place.application
        return None


def read_known(connection: psycopg.Connection, found: Iterable[Origin], publishers: Iterable[str] = ()) -> Known:
    found = list(found)
    wanted = {
        "location": list({each.location for each in found if each.location is not None}),
        "service": list({each.service for each in found if each.service is not None}),
    }
    rows = connection.execute(statement("list_places"), wanted).fetchall()
    hosts = connection.execute(statement("list_publishers"), {"name": list(set(publishers))}).fetchall()
    places: dict[str, dict[int, Place]] = {"location": {}, "service": {}}
    for kind, id_, *place in rows:
        places[kind][id_] = Place(*place)
    return Known(places["location"], places["service"], dict(hosts))


def find_few(
    connection: psycopg.Connection,
    *,
    ids: Sequence[UUID] | None = None,
    transactions: Sequence[int] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    bodies: bool = False,
) -> Iterator[Few]:
    """What is not packed yet, the oldest first, some at a time. `bodies` are for whoever may read them."""
    wanted = {
        "ids": None if ids is None else list(ids),
        "transactions": None if transactions is None else list(transactions),
        "since": since,
        "until": until,
    }
    # Of the server, so that what a host has published meanwhile is not in memory all at once.
    with connection.cursor("few", row_factory=namedtuple_row) as cursor:
        cursor.execute(statement("find_few_bodies" if bodies else "find_few"), wanted)
        while rows := cursor.fetchmany(_READ_AT_ONCE):
            yield from _fews(connection, rows)


@dataclass(frozen=True, slots=True)
class Few:
    """A row: its messages as a segment, from where each is, and the bodies that were kept."""

    at: datetime
    segment: Segment
    origins: Sequence[Origin]
    applications: Sequence[str | None]
    bodies: Mapping[UUID, bytes]


def _fews(connection: psycopg.Connection, rows: Sequence[Any]) -> list[Few]:
    origins = [_origins(row) for row in rows]
    known = read_known(connection, (each for every in origins for each in every), (row.publisher for row in rows))
    return [_few(row, every, known) for row, every in zip(rows, origins, strict=True)]


def _origins(row: Any) -> list[Origin]:
    """One for each message."""
    count = len(row.message_ids)
    nothing = [Origin(1)] * count
    try:
        said = [] if row.origins is None else msgspec.json.decode(row.origins, type=list[_Said])
    except UNREADABLE:  # nobody who publishes by the agent says it so
        return nothing
    each: list[Origin] = []
    for run in said:
        instance = None if run.instance is None else str(run.instance)
        told = Origin(1, run.location, run.service, instance, tuple(run.settled))
        each += [told] * min(run.messages, count - len(each))
    return (each + nothing)[:count]


def _few(row: Any, origins: Sequence[Origin], known: Known) -> Few:
    kept = [place for place, context in enumerate(row.contexts) if context is not None]
    places = {row.message_ids[place]: position for position, place in enumerate(kept)}
    routes = sorted(
        (places[message], number)
        for message, number in zip(row.references_to, row.subscriptions, strict=False)
        if message in places and number is not None
    )
    columns = np.array(routes, np.int64).reshape(-1, 2)
    believed = [known.believed(origins[place], row.publisher) for place in kept]
    at = micros(row.at)
    segment = Segment(
        b"".join(row.message_ids[place].bytes for place in kept),
        [row.contexts[place].encode() for place in kept],
        columns[:, 0],
        columns[:, 1],
        believed,
        _exceptions(row.exceptions, places),
        [Transaction(len(kept), at, row.transaction, row.epoch, row.first_reference, row.last_reference)],
    )
    bodies = {id_: body for id_, body in zip(row.body_of or (), row.bodies or (), strict=False) if body is not None}
    return Few(row.at, segment, believed, [known.application(each) for each in believed], bodies)


def _exceptions(stored: str | None, places: Mapping[UUID, int]) -> dict[str, list[dict[str, Any]]]:
    if stored is None:
        return {}
    try:
        decoded = msgspec.json.decode(stored, type=_Exceptions, strict=False)
    except UNREADABLE:
        return {}
    found = {name: [msgspec.to_builtins(row) for row in getattr(decoded, name)] for name in KEPT_EXCEPTIONS}
    mine = {str(id_) for id_ in places}
    return {name: kept for name, rows in found.items() if (kept := [row for row in rows if row["message_id"] in mine])}


def pack_few(
    connection: psycopg.Connection, personal: frozenset[str], *, limit: int, size: int, case_sensitive: bool
) -> tuple[int, bool]:
    """Pack some of what was published a few at a time, in one transaction, up to `size` bytes of it.

    Gives how many rows, and whether there are more.
    """
    with connection.transaction():
        with connection.cursor(row_factory=namedtuple_row) as cursor:
            rows = cursor.execute(statement("take_few"), {"limit": limit, "bytes": size}).fetchall()
        groups: defaultdict[tuple[Any, ...], list[_Member]] = defaultdict(list)
        for few in sorted(_fews(connection, rows), key=lambda each: each.at):
            span = int(few.at.timestamp() // _SPAN.total_seconds())
            noted = _by_message(few.segment.exceptions)
            for position, application in enumerate(few.applications):
                labels = _labels(few.segment.contexts[position])
                groups[span, application, labels].append(_Member(few, position, noted))
        for (_, application, labels), members in groups.items():
            kept = _packed(members, personal, case_sensitive=case_sensitive)
            connection.execute(statement("pack_few"), {**kept, "application": application, "labels": list(labels)})
    return len(rows), bool(rows) and (len(rows) == limit or rows[0][-1])


def _labels(context: bytes) -> tuple[str, ...]:
    if b'"labels"' not in context:
        return ()
    try:
        # No text of PostgreSQL holds NUL, and no host has such a label.
        return tuple(sorted(label.replace("\0", "\ufffd") for label in Context.from_json(context).labels))
    except ContextError:
        return ()


class _Member(NamedTuple):
    """A message that is packed, and what was noted about all messages of its row, by their ids."""

    few: Few
    position: int
    noted: Mapping[str, Sequence[tuple[str, dict[str, Any]]]]


def _by_message(exceptions: Mapping[str, Sequence[dict[str, Any]]]) -> Mapping[str, list[tuple[str, dict[str, Any]]]]:
    """Found once: to look through all of them for each message would take the square of their number."""
    found: defaultdict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for kind, rows in exceptions.items():
        for row in rows:
            found[row["message_id"]].append((kind, row))
    return found


def _packed(members: Sequence[_Member], personal: frozenset[str], *, case_sensitive: bool) -> dict[str, Any]:
    segment, bodies = _merged(members)
    values = promoted_values(segment.contexts)
    values.update(instances_of(segment.origins))
    apart = {name: values.pop(name) for name in personal if name in values}
    segment.contexts, taken = take_personal(segment.contexts, personal)
    kept = any(taken)
    lowest, highest = segment.bounds()
    moments = [each.few.at for each in members]
    return {
        "at": min(moments),
        "until": max(moments),
        "epoch": max(each.epoch for each in segment.transactions),
        "lowest": lowest,
        "highest": highest,
        "messages": len(segment),
        "first": min(each.first for each in segment.transactions),
        "last": max(each.last for each in segment.transactions),
        "filter": make_filter(values, case_sensitive=case_sensitive),
        "content": segment.pack(),
        "personal_filter": make_filter(apart, case_sensitive=case_sensitive) if kept else None,
        "personal": pack_personal(taken) if kept else None,
        "bodies": pack_bodies(b"".join(id_.bytes for id_ in bodies), list(bodies.values())) if bodies else None,
    }


def _merged(members: Sequence[_Member]) -> tuple[Segment, dict[UUID, bytes]]:
    positions, subscriptions, ids, contexts, origins, transactions = [], [], [], [], [], []
    exceptions: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    bodies: dict[UUID, bytes] = {}
    for place, (few, position, noted) in enumerate(members):
        segment, id_ = few.segment, few.segment.id(position)
        low, high = np.searchsorted(segment.positions, [position, position + 1])  # they are in order
        mine = segment.subscriptions[low:high].tolist()
        positions += [place] * len(mine)
        subscriptions += mine
        ids.append(id_.bytes)
        contexts.append(segment.contexts[position])
        origins.append(few.origins[position])
        transactions.append(segment.transactions[0]._replace(messages=1))
        for kind, row in noted.get(str(id_), ()):
            exceptions[kind].append(row)
        if id_ in few.bodies:
            bodies[id_] = few.bodies[id_]
    columns = np.array(positions, np.int64), np.array(subscriptions, np.int64)
    made = Segment(b"".join(ids), contexts, *columns, runs(origins), dict(exceptions), runs(transactions))
    return made, bodies


def promoted_values(contexts: Iterable[bytes]) -> dict[str, Collection[Value]]:
    """By the name of a property the values that occur. A context that cannot be read has none."""
    found: defaultdict[str, list[Value | None]] = defaultdict(list)
    for context in contexts:
        try:
            promoted = Context.from_json(context).promoted
        except ContextError:
            continue
        for name, value in promoted.items():
            if name not in UNFILTERED:
                found[name].append(value)
    return {name: distinct(values) for name, values in found.items()}
