"""What waits for a person: list it, resume it, terminate it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from crossdock.errors import ContextError, UnreadableError
from crossdock.message.context import Context
from crossdock.message.message import Message
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.database import Database
from crossdock.messagebox.decide import correlation_hashes, decide, find_instances, refuse_second_answers
from crossdock.messagebox.messages import UNREADABLE
from crossdock.messagebox.publish import check_epoch
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.rows import SuspendedMessage
from crossdock.messagebox.statement import statement
from crossdock.messagebox.write import give
from crossdock.subscription.router import Router

Load = Callable[[psycopg.Connection, Sequence[UUID]], dict[UUID, Message]]
_NO_TIME = "The time when it was suspended is none that can be shown."
_NO_REPORT = "Its routing failure report cannot be read."


class Suspended:
    """`agent.suspended`: the verbs for suspended messages."""

    def __init__(self, database: Database, queues: Queues) -> None:
        self._database = database
        self._queues = queues

    def messages(self, *, ids: Sequence[UUID] | None = None, limit: int | None = None) -> list[SuspendedMessage]:
        parameters = {"limit": limit, "message": None if ids is None else list(ids)}
        with self._database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return [_suspended(row) for row in cursor.execute(statement("list_suspended"), parameters)]

    def resume(self, ids: Sequence[UUID]) -> dict[UUID, int]:
        """Deliver again what failed or was stopped; gives the number of references of each message.

        What the host lacks a label of stays suspended, with that reason.
        """
        resumed: dict[UUID, int] = {}
        hosts = set()
        with self._queues.services_held_still() as connection:
            rows = connection.execute(statement("resume"), {"message": list(ids)}).fetchall()
        for message, host in rows:
            resumed[message] = resumed.get(message, 0) + 1
            hosts.add(host)
        for host in hosts:
            self._queues.reset_scan_starts(host)
        self._queues.notify(hosts)
        return resumed

    def withheld(self, ids: Sequence[UUID]) -> dict[tuple[UUID, str], str]:
        """Which suspended deliveries, by message and port, cannot be resumed: the host lacks a label. And why."""
        return {
            (message, port): reason
            for message, port, reason in self._database.rows("list_withheld", {"message": list(ids)})
        }

    def terminate(self, ids: Sequence[UUID]) -> dict[UUID, int]:
        """End these for good; gives the number of suspended references of each message."""
        return dict(self._database.rows("terminate", {"message": list(ids)}))

    def purge(self, *, age: timedelta, limit: int = 1000) -> int:
        """End what has been suspended for longer than this; gives how many references. Nobody does this unasked."""
        [(count,)] = self._database.rows("purge_suspended", {"age": age, "limit": limit})
        return int(count)

    # Routing failures

    def unreported(self, *, limit: int) -> list[tuple[UUID, Context | None]]:
        """Unrouted messages whose nearest misses are still to be worked out; None for an unreadable context."""
        rows = self._database.rows("list_unreported", {"limit": limit})
        return [(message, _readable(context)) for message, context in rows]

    def report_failures(self, reports: Mapping[UUID, Sequence[Mapping[str, Any]]]) -> None:
        """Keep the nearest misses of messages that are still unrouted."""
        self._database.run(
            "report_failures", {"message": list(reports), "report": list(map(json.dumps, reports.values()))}
        )


def reroute(
    connection: psycopg.Connection, router: Router, ids: Sequence[UUID], load: Load
) -> tuple[dict[UUID, bool], Mapping[int, int]]:
    """Route unrouted messages again, in the caller's connection: whether somebody wants each, and what hosts got.

    A message that still nobody wants stays as it is. The reference that kept it is replaced in the same transaction.
    """
    with connection.transaction():
        held = connection.execute(statement("lock_unrouted"), {"message": list(ids)}).fetchall()
        stored = load(connection, [message for _, _, message in held])
        messages = Batch([[stored[message] for _, _, message in held if message in stored]])
        decision = decide(router, messages)
        find_instances(connection, decision, messages, correlation_hashes(router, messages))
        refuse_second_answers(decision, messages)
        counts = decision.counts(len(messages))
        routed = [message for message, count in zip(messages, counts.tolist(), strict=True) if count]
        if not routed:
            return {message.id: False for message in messages}, {}
        decision = decision.only(counts > 0)
        column = messages.ids[counts > 0]
        connection.execute(statement("forget_unrouted"), {"message": [message.id for message in routed]})
        hosts = give(connection, decision, column)
        more = {message.id: count - 1 for message, count in zip(routed, counts[counts > 0].tolist(), strict=True)}
        connection.execute(statement("add_references"), {"message": list(more), "delta": list(more.values())})
        check_epoch(connection, router.epoch)
    return {message.id: count > 0 for message, count in zip(messages, counts.tolist(), strict=True)}, hosts


def _suspended(row: Mapping[str, Any]) -> SuspendedMessage:
    """With what can be read of it. What cannot is said in its reason: nothing in one row may hide the others."""
    context = None if row["context"] is None else _readable(row["context"])
    report = None if row["report"] is None else _report(row["report"])
    known = row["code"] == UnreadableError.code
    unreadable = {
        UNREADABLE: context is None and row["context"] is not None and not known,
        _NO_TIME: row["suspended_at"] is None,
        _NO_REPORT: report is None and row["report"] is not None,
    }
    said = [text for text, holds in unreadable.items() if holds]

    def text(name: str) -> str | None:
        value = None if context is None else context.get(name)
        return None if value is None else str(value)

    return SuspendedMessage(
        id=row["id"],
        kind=row["kind"],
        code=row["code"],
        reason=" ".join([row["reason"], *said]),
        source_file=text("FILE.ReceivedFileName"),
        receive_location=text("BTS.ReceiveLocationName"),
        port=row["port"],
        type=text("BTS.MessageType"),
        bytes=int(row["bytes"] or 0),
        suspended_at=row["suspended_at"],
        host_id=row["host_id"],
        sequence=row["sequence"],
        nearest_misses=report,
    )


def _readable(context: str) -> Context | None:
    try:
        return Context.from_json(context)
    except ContextError:
        return None


def _report(stored: str) -> list[Mapping[str, Any]] | None:
    try:
        report = json.loads(stored)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, list) and all(isinstance(miss, dict) for miss in report) else None
