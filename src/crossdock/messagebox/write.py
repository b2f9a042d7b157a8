"""Writes what was decided: messages, a reference for each subscription that a message matches, and the exceptions.

Many messages and their references go in by COPY, a few in one round trip. The exceptions are: references of running
instances, what is suspended or refused, counts of locations, and who waits for a response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
import psycopg

from crossdock.errors import PortStoppedError
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.copy import copy_columns
from crossdock.messagebox.decide import Decision
from crossdock.messagebox.statement import array_text, statement
from crossdock.messagebox.store import store, store_columns
from crossdock.messagebox.track_segment import Origin
from crossdock.messagebox.track_write import origins_json, track_many
from crossdock.subscription.router import Int64s

Row = dict[str, Any]
_QUEUE = "COPY queue (host_id, subqueue, priority, message_id, subscription_id, service_id) FROM STDIN (FORMAT BINARY)"


@dataclass(frozen=True, slots=True)
class Queued:
    """Which references go to a queue, since their service is started, and the rows of their subscriptions."""

    started: npt.NDArray[np.bool_]
    rows: Int64s

    @classmethod
    def of(cls, decision: Decision) -> Queued:
        table = decision.router.table
        rows = table.rows(decision.subscriptions)
        started = table.started[rows]
        return cls(started, rows[started])

    def hosts(self, decision: Decision) -> dict[int, int]:
        """How many references go to the queue of each host, with those of running instances."""
        found = Counter(decision.router.table.host_id[self.rows].tolist())
        found.update(match.host_id for _, match in decision.instances)
        found.update(begun.host_id for _, begun in decision.activated)
        return found


@dataclass(slots=True)
class Writing:
    """Messages with how many references each has, and the references: everything that is to be written."""

    messages: Batch
    counts: Int64s
    decision: Decision
    origins: Sequence[Origin] = ()
    queued: Queued = field(init=False)
    exceptions: dict[str, list[Row]] = field(init=False)

    def __post_init__(self) -> None:
        self.queued = Queued.of(self.decision)
        self.exceptions = exceptions(
            self.decision, self.queued.started, lambda position: _uuid(self.messages.ids[position])
        )


def write_many(connection: psycopg.Connection, writing: Writing) -> None:
    """By COPY."""
    first = connection.execute(statement("read_last_reference")).fetchone()
    assert first is not None
    if writing.messages:
        store(connection, writing.messages, writing.counts)
    _give(connection, writing.decision, writing.queued, writing.messages.ids, writing.exceptions)
    track_many(connection, writing.decision, writing.messages, writing.origins, writing.exceptions, first[0])


def write_few(connection: psycopg.Connection, writing: Writing, *, check: tuple[int, UUID, UUID | None]) -> None:
    """In one round trip; `check`: the lock of publishers, and the epochs that must still hold.

    The function takes the host, the service and the rest of a reference from the subscription, and counts references.
    """
    given_to = writing.decision.positions[writing.queued.started].tolist()
    lock, epoch, location_epoch = check
    parameters = {
        **store_columns(connection, writing.messages),
        "reference": array_text(writing.messages[position].id for position in given_to),
        "subscription": array_text(writing.decision.router.table.id[writing.queued.rows].tolist()),
        "exceptions": _json(writing.exceptions),
        "lock": lock,
        "epoch": epoch,
        "location_epoch": location_epoch,
        "origins": origins_json(writing.origins),
    }
    connection.execute(statement("publish_few"), parameters)


def give(connection: psycopg.Connection, decision: Decision, ids: npt.NDArray[Any]) -> dict[int, int]:
    """Write the references of messages that are stored; gives how many go to the queue of each host."""
    queued = Queued.of(decision)
    besides = exceptions(decision, queued.started, lambda position: _uuid(ids[position]))
    _give(connection, decision, queued, ids, besides)
    return queued.hosts(decision)


def _give(
    connection: psycopg.Connection,
    decision: Decision,
    queued: Queued,
    ids: npt.NDArray[Any],
    besides: Mapping[str, Sequence[Row]],
) -> None:
    table, rows = decision.router.table, queued.rows
    copy_columns(
        connection,
        _QUEUE,
        [
            ("int2", table.host_id[rows]),
            ("int4", table.subqueue[rows]),
            ("int2", table.priority[rows]),
            ("uuid", ids[decision.positions[queued.started]]),
            ("int8", table.id[rows]),
            ("int4", table.service_id[rows]),
        ],
    )
    exceptional = _json(besides)
    if exceptional is not None:
        connection.execute(statement("publish_exceptions"), {"exceptions": exceptional})


def exceptions(
    decision: Decision, started: npt.NDArray[np.bool_], id_of: Callable[[int], UUID]
) -> dict[str, list[Row]]:
    """References of running instances and of stopped services, and what was refused. `id_of` gives a message's id."""
    stopped = zip(decision.positions[~started].tolist(), decision.subscriptions[~started].tolist(), strict=True)
    return {
        "queued": [
            {
                "message_id": id_of(position),
                "subscription_id": match.subscription_id,
                "hash": match.hash,
                "instance_id": match.instance_id,
            }
            for position, match in decision.instances
        ],
        "activated": [
            {"message_id": id_of(position), "subscription_id": begun.subscription_id, "instance_id": begun.id}
            for position, begun in decision.activated
        ],
        "initialized": [
            {
                "instance_id": begun.id,
                "subscription_id": begun.subscription_id,
                "correlation_id": correlation,
                "hash": hash_,
                "value": value,
            }
            for begun in {begun.id: begun for _, begun in decision.activated}.values()
            for correlation, hash_, value in begun.waits
        ],
        "suspended": [],
        "stopped": [_stopped(decision, id_of(position), number) for position, number in stopped],
        "refused": [
            {
                "message_id": id_of(each.position),
                "subscription_id": each.subscription_id,
                "service_id": each.service_id,
                "host_id": each.host_id,
                "labels": each.missing,
            }
            for each in decision.refusals
        ],
    }


def suspension(host_id: int, kind: str, code: str, message: UUID, reason: str) -> Row:
    """A message that waits at a host, for no service."""
    return {"host_id": host_id, "kind": kind, "code": code, "message_id": message, "reason": reason}


def _stopped(decision: Decision, message: UUID, number: int) -> Row:
    each = decision.router.subscriptions[number]
    return {
        "code": PortStoppedError.code,
        "message_id": message,
        "subscription_id": each.id,
        "reason": f"Send port {each.service!r} is stopped.",
    }


def _json(rows: Mapping[str, Sequence[Row]]) -> str | None:
    """None where there are none, as there are mostly."""
    kept = {name: each for name, each in rows.items() if each}
    return msgspec.json.encode(kept).decode() if kept else None


def _uuid(value: Any) -> UUID:
    return UUID(bytes=bytes(value))
