"""Tracks what a transaction publishes: one segment for each application and label set, with columns as they are.

Many messages are packed here, in the process that publishes them. A few are tracked by the function that publishes
them, as they are, and packed later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import psycopg

from crossdock.message.columns import MessageColumns
from crossdock.message.message import Message, Part
from crossdock.message.property import TOKEN, Value
from crossdock.message.publication import Express, FromSource, InPlaceOf, Publication, Settles
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.decide import Decision
from crossdock.messagebox.statement import statement
from crossdock.messagebox.store import PART_LIMIT_BYTES
from crossdock.messagebox.track_filter import distinct, make_filter
from crossdock.messagebox.track_segment import Origin, Segment, compress, pack_bodies, runs, take_personal
from crossdock.subscription.router import Int64s, Router

# A segment that is found is read whole: so many messages at most, unless one source has more.
_SEGMENT_MESSAGES = 8_192
KEPT_EXCEPTIONS = ("queued", "activated", "stopped", "suspended", "refused")

# Numbers of messages in their source and tokens, by which nobody looks for one: each would take room in the filter.
UNFILTERED = frozenset({"BTS.InterchangeSequenceNumber", "BTS.LastInterchangeMessage", TOKEN})
# Under this name instances are in the filter of a segment: no property is called so.
INSTANCE = "@instance"

Row = dict[str, Any]
# By the name of a property the values that occur.
Values = dict[str, Collection[Value]]


def origins(publications: Sequence[Publication]) -> list[Origin]:
    """Where the messages are from, in the order in which they are written: those that failed come last."""
    every = [(each, len(each.messages)) for each in publications]
    every += [(each, len(each.failures)) for each in publications]
    return runs(_origin(each, count) for each, count in every if count)


def _origin(publication: Publication, count: int) -> Origin:
    service, instance, settled = publication.service_id, publication.instance, publication.settled
    named = None if instance is None else str(instance)
    match publication.cause:
        case FromSource(location_id=location):
            return Origin(count, location)
        case InPlaceOf(sequence=sequence, location_id=location):
            return Origin(count, location, settled=(sequence,))
        case Settles(sequence=sequence):
            return Origin(count, None, service, named, (sequence,))
        case Express(location_id=location):
            return Origin(count, location, service, named, tuple(settled))


def origins_json(found: Sequence[Origin]) -> str | None:
    """None where nothing is known of any."""
    if all(each[1:] == Origin(0)[1:] for each in found):
        return None
    return msgspec.json.encode([each._asdict() for each in found]).decode()


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Messages of one piece of a batch that are tracked alike: from one position up to another."""

    begin: int
    end: int
    piece: Sequence[Message]
    origin: Origin
    labels: tuple[str, ...]
    bodies: bool

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.origin.service, self.labels)


def track_many(
    connection: psycopg.Connection,
    decision: Decision,
    messages: Batch,
    found: Sequence[Origin],
    exceptions: Mapping[str, Sequence[Row]],
    first: int,
    *,
    rerouted: bool = False,
) -> None:
    """Write the segments of messages that were published by COPY, in the same transaction.

    `first`: the last number that was drawn before their references were given.
    """
    router = decision.router
    groups: dict[tuple[Any, ...], list[_Stretch]] = {}
    for stretch in _stretches(router, messages, found):
        application = _application(router, stretch.origin)
        groups.setdefault((application, *stretch.key), []).append(stretch)
    for (application, service, labels), stretches in groups.items():
        for some in _cut(stretches):
            segment = _segment(decision, messages, some, exceptions)
            segment.rerouted = rerouted
            kept = _kept(router, some, segment)
            kept |= {"application": application, "service": service, "labels": list(labels), "first": first}
            connection.execute(statement("track_published"), kept)


def track_again(connection: psycopg.Connection, decision: Decision, messages: Batch, first: int) -> None:
    """Messages that nobody wanted were given references: they are tracked once more, where they were before."""
    named = decision.router.tracking.names
    found = [Origin(1, named.get(str(each.context.get("BTS.ReceiveLocationName")))) for each in messages]
    besides: dict[str, list[Row]] = {
        "queued": [
            {"message_id": messages[at].id, "subscription_id": each.subscription_id, "instance_id": each.instance_id}
            for at, each in decision.instances
        ],
        "activated": [
            {"message_id": messages[at].id, "subscription_id": each.subscription_id, "instance_id": each.id}
            for at, each in decision.activated
        ],
    }
    track_many(connection, decision, messages, runs(found), besides, first, rerouted=True)


def _application(router: Router, origin: Origin) -> str | None:
    known = None if origin.location is None else router.tracking.locations.get(origin.location)
    return None if known is None else known[0]


def _level(router: Router, origin: Origin) -> str:
    if origin.location is not None and origin.location in router.tracking.locations:
        return router.tracking.locations[origin.location][1]
    return "events" if origin.service is None else router.tracking.services.get(origin.service, "events")


def _stretches(router: Router, messages: Batch, found: Sequence[Origin]) -> Iterator[_Stretch]:
    """What is tracked, cut where a piece, an origin or a label set ends."""
    rest = iter([(each, each.messages) for each in found])
    origin, left = next(rest, (Origin(len(messages)), len(messages)))
    position = 0
    for piece in messages.pieces:
        place = 0
        while place < len(piece):
            while not left:
                origin, left = next(rest)
            labels, most = _labels(messages, piece, place)
            count = min(left, most)
            level = _level(router, origin)
            if level != "off":
                begin = position + place
                part = piece if count == len(piece) else piece[place : place + count]
                yield _Stretch(begin, begin + count, part, origin, labels, level == "bodies")
            place, left = place + count, left - count
        position += len(piece)


def _labels(messages: Batch, piece: Sequence[Message], place: int) -> tuple[tuple[str, ...], int]:
    """The labels of a message, and how many from there on in its piece have the same."""
    if isinstance(piece, MessageColumns):
        return tuple(sorted(piece.labels)), len(piece) - place
    if not messages.labelled:
        return (), len(piece) - place
    labels = piece[place].context.labels
    end = place + 1
    while end < len(piece) and piece[end].context.labels == labels:
        end += 1
    return tuple(sorted(labels)), end - place


def _cut(stretches: Sequence[_Stretch]) -> Iterator[list[_Stretch]]:
    some: list[_Stretch] = []
    count = 0
    for each in stretches:
        some.append(each)
        count += each.end - each.begin
        if count >= _SEGMENT_MESSAGES:
            yield some
            some, count = [], 0
    if some:
        yield some


def _segment(
    decision: Decision, messages: Batch, stretches: Sequence[_Stretch], exceptions: Mapping[str, Sequence[Row]]
) -> Segment:
    all_ids = messages.ids.tobytes()
    counts = [each.end - each.begin for each in stretches]
    ids = b"".join(all_ids[16 * each.begin : 16 * each.end] for each in stretches)
    contexts = list(chain.from_iterable(messages.contexts[each.begin : each.end] for each in stretches))
    positions, subscriptions = _routes(decision, stretches)
    alike = runs(each.origin._replace(messages=count) for each, count in zip(stretches, counts, strict=True))
    kept = {name: list(exceptions[name]) for name in KEPT_EXCEPTIONS if exceptions.get(name)}
    if kept and sum(counts) < len(messages):
        own = {ids[place : place + 16] for place in range(0, len(ids), 16)}
        kept = {name: [row for row in rows if row["message_id"].bytes in own] for name, rows in kept.items()}
    return Segment(ids, contexts, positions, subscriptions, alike, kept)


def _routes(decision: Decision, stretches: Sequence[_Stretch]) -> tuple[Int64s, Int64s]:
    """The routes of these messages, by their positions in the segment. Those of the decision are in order."""
    positions, subscriptions, begin = [], [], 0
    for each in stretches:
        low, high = np.searchsorted(decision.positions, [each.begin, each.end])
        positions.append(decision.positions[low:high] + (begin - each.begin))
        subscriptions.append(decision.subscriptions[low:high])
        begin += each.end - each.begin
    return np.concatenate(positions), np.concatenate(subscriptions)


def _kept(router: Router, stretches: Sequence[_Stretch], segment: Segment) -> dict[str, Any]:
    """The parameters of the statement `track_published` that follow from the messages."""
    values = _values(each.piece for each in stretches)
    values.update(instances_of(segment.origins))
    personal: bytes | None = None
    apart = {name: values.pop(name) for name in router.tracking.personal if name in values}
    segment.contexts, taken = take_personal(segment.contexts, router.tracking.personal)
    if any(taken):
        personal = pack_personal(taken)
    lowest, highest = segment.bounds()
    return {
        "epoch": router.epoch.number,
        "lowest": lowest,
        "highest": highest,
        "messages": len(segment),
        "filter": make_filter(values, case_sensitive=router.case_sensitive),
        "content": segment.pack(),
        "personal_filter": make_filter(apart, case_sensitive=router.case_sensitive) if personal else None,
        "personal": personal,
        "bodies": _bodies(router, stretches, segment),
    }


def instances_of(found: Iterable[Origin]) -> Values:
    """The instances whose steps published messages, sought as if they were values of a property of this name."""
    instances: set[Value] = {each.instance for each in found if each.instance is not None}
    return {INSTANCE: instances} if instances else {}


def pack_personal(taken: Sequence[Sequence[tuple[str, bytes]]]) -> bytes:
    """By position the names and values that were taken out of contexts."""
    kept = [(position, [(name, value.decode()) for name, value in each]) for position, each in enumerate(taken) if each]
    return compress(msgspec.json.encode(kept))


def _values(pieces: Iterable[Sequence[Message]]) -> Values:
    """The promoted values that occur."""
    found: defaultdict[str, list[Value | None]] = defaultdict(list)
    for piece in pieces:
        if isinstance(piece, MessageColumns):
            for name, column in piece.own.items():
                if name not in UNFILTERED:
                    found[name].extend(column)
            for name, value in piece.shared.items():
                found[name].append(value)
        else:
            for message in piece:
                for name, value in message.context.promoted.items():
                    found[name].append(value)
    return {name: distinct(values) for name, values in found.items() if name not in UNFILTERED}


def _bodies(router: Router, stretches: Sequence[_Stretch], segment: Segment) -> bytes | None:
    """The bodies of messages from a location, or for a port, that wants them. What is in fragments is left out."""
    wanted = np.repeat([each.bodies for each in stretches], [each.end - each.begin for each in stretches])
    if len(router.with_bodies):
        wanted[segment.positions[np.isin(segment.subscriptions, router.with_bodies)]] = True
    if not wanted.any():
        return None
    chosen: list[tuple[int, bytes]] = []
    position = 0
    for each in stretches:
        bodies = each.piece.bodies if isinstance(each.piece, MessageColumns) else map(_body, each.piece)
        for place, body in enumerate(bodies, position):
            if body is not None and wanted[place] and len(body) <= PART_LIMIT_BYTES:
                chosen.append((place, body))
        position += each.end - each.begin
    ids = b"".join(segment.ids[16 * place : 16 * place + 16] for place, _ in chosen)
    return pack_bodies(ids, [body for _, body in chosen])


def _body(message: Message) -> bytes | None:
    part = message.parts[0] if message.parts else None
    return part.body if isinstance(part, Part) else None
