"""What waits for a person: list it, resume it, terminate it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from crossdock.message.context import Context
from crossdock.message.message import Message
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.decide import decide, find_instances, give, refuse_second_answers
from crossdock.messagebox.publish import check_epoch
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.rows import SuspendedMessage
from crossdock.messagebox.statement import statement
from crossdock.subscription.router import Router

Load = Callable[[psycopg.Connection, Sequence[UUID]], dict[UUID, Message]]


class Suspensions(Queues):
    """The agent's verbs for suspended messages."""

    def suspended(self, *, ids: Sequence[UUID] | None = None, limit: int | None = None) -> list[SuspendedMessage]:
        parameters = {"limit": limit, "message": None if ids is None else list(ids)}
        with self._connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return [_suspended(row) for row in cursor.execute(statement("list_suspended"), parameters)]

    def resume_deliveries(self, ids: Sequence[UUID]) -> dict[UUID, int]:
        """Deliver again what failed or was stopped; gives the number of references of each message."""
        resumed: dict[UUID, int] = {}
        hosts = set()
        with self._services_held_still() as connection:
            rows = connection.execute(statement("resume"), {"message": list(ids)}).fetchall()
        for message, _, host in rows:
            resumed[message] = resumed.get(message, 0) + 1
            hosts.add(host)
        for host in hosts:
            self._reset_marks(host)
        self._notify(hosts)
        return resumed

    def terminate(self, ids: Sequence[UUID]) -> dict[UUID, int]:
        """End these for good; gives the number of suspended references of each message."""
        return dict(self._rows("terminate", {"message": list(ids)}))

    def purge_suspended(self, *, before: Any, limit: int = 1000) -> int:
        """End what has been suspended since before a time; gives how many references. Nobody does this unasked."""
        [(count,)] = self._rows("purge_suspended", {"before": before, "limit": limit})
        return int(count)

    # Routing failures

    def unreported(self, *, limit: int) -> list[tuple[UUID, Context]]:
        """Unrouted messages whose nearest misses are still to be worked out."""
        rows = self._rows("list_unreported", {"limit": limit})
        return [(message, Context.from_json(context)) for message, context in rows]

    def report_failures(self, reports: Mapping[UUID, Sequence[Mapping[str, Any]]]) -> None:
        """Keep the nearest misses of messages that are still unrouted."""
        self._run("report_failures", {"message": list(reports), "report": list(map(json.dumps, reports.values()))})


def reroute(
    connection: psycopg.Connection, router: Router, ids: Sequence[UUID], load: Load
) -> tuple[dict[UUID, bool], Mapping[int, int]]:
    """Route unrouted messages again, in the caller's connection: whether somebody wants each, and what hosts got.

    A message that still nobody wants stays as it is. The reference that kept it is replaced in the same transaction.
    """
    with connection.transaction():
        held = connection.execute(statement("lock_unrouted"), {"message": list(ids)}).fetchall()
        stored = load(connection, [message for _, _, message in held])
        messages = Batch([[stored[message] for _, _, message in held]])
        decision = decide(router, messages)
        find_instances(connection, decision, messages)
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
    context = Context.from_json(row["context"])

    def text(name: str) -> str | None:
        value = context.get(name)
        return None if value is None else str(value)

    return SuspendedMessage(
        id=row["id"],
        kind=row["kind"],
        reason=row["reason"],
        source_file=text("FILE.ReceivedFileName"),
        receive_location=text("BTS.ReceiveLocationName"),
        port=row["port"],
        type=text("BTS.MessageType"),
        bytes=int(row["bytes"] or 0),
        suspended_at=row["suspended_at"],
        host_id=row["host_id"],
        sequence=row["sequence"],
        nearest_misses=None if row["report"] is None else json.loads(row["report"]),
    )
