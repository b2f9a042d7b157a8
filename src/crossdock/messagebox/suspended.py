"""What waits for a person: list it, resume it, terminate it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from crossdock.errors import ContextError, UnreadableError
from crossdock.message.context import Context
from crossdock.message.message import Message
from crossdock.messagebox.audit import Since, since_parameters
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.begin import begin_suspended
from crossdock.messagebox.database import Database
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.messages import UNREADABLE
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.rows import Delivery, SuspendedMessage
from crossdock.messagebox.statement import array_text, statement
from crossdock.messagebox.store import store_columns

_NO_TIME = "The time when it was suspended is none that can be shown."
_NO_REPORT = "Its routing failure report cannot be read."


@dataclass(frozen=True, slots=True)
class SuspendedGroup:
    """What is suspended for the same code at the same port. `sample` is the oldest message of it."""

    code: str
    port: str | None
    count: int
    first: datetime
    last: datetime
    sample: UUID


class Suspended:
    """`agent.suspended`: the verbs for suspended messages."""

    def __init__(self, database: Database, queues: Queues) -> None:
        self._database = database
        self._queues = queues

    def messages(
        self,
        *,
        ids: Sequence[UUID] | None = None,
        limit: int | None = None,
        after: int = 0,
        port: str | None = None,
        code: str | None = None,
        since: Since | None = None,
    ) -> list[SuspendedMessage]:
        """The oldest first. The next page is `after` the sequence of the last one."""
        parameters = {
            "limit": limit,
            "message": None if ids is None else list(ids),
            "after": after,
            "port": port,
            "code": code,
            **since_parameters(since),
        }
        with self._database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return [_suspended(row) for row in cursor.execute(statement("list_suspended"), parameters)]

    def groups(self) -> list[SuspendedGroup]:
        """How many are suspended for each code and port."""
        return self._database.listed("group_suspended", SuspendedGroup)

    def resume(self, ids: Sequence[UUID]) -> dict[UUID, int]:
        """Deliver again what failed or was stopped; gives the number of references of each message.

        What the host lacks a label of stays suspended, with that reason.
        """
        return _counted(self.resume_deliveries(self._deliveries(ids)))

    def resume_deliveries(self, deliveries: Sequence[Delivery]) -> dict[Delivery, UUID]:
        """The same for these deliveries, in one transaction with its record; gives the message of each that is queued.

        Left alone is what somebody dealt with meanwhile, and what our database user may not do this to.
        """
        resumed, hosts = {}, set()
        with self._queues.services_held_still() as connection:
            begin_suspended(connection, deliveries=deliveries)
            rows = connection.execute(host_statement("resume_deliveries", None), _columns(deliveries)).fetchall()
        for host, sequence, message, target, _ in rows:
            resumed[Delivery(host, sequence)] = message
            hosts.add(target)
        self._wake(hosts)
        return resumed

    def withheld(self, deliveries: Sequence[Delivery]) -> dict[int, str]:
        """Which suspended deliveries, by their number, cannot be resumed, and why: the host lacks a label, or the
        application was undeployed.
        """
        sequences = [each.sequence for each in deliveries]
        with self._database.connection() as connection:
            query = host_statement("list_withheld", None)
            withheld: dict[int, str] = dict(connection.execute(query, {"sequences": sequences}).fetchall())
        return withheld | {
            sequence: f"application {application!r} is undeployed; deploy it again first"
            for sequence, application in self._database.rows("list_held_back", {"sequence": sequences})
        }

    def terminate(self, ids: Sequence[UUID]) -> dict[UUID, int]:
        """End these for good; gives the number of suspended references of each message."""
        return _counted(self.terminate_deliveries(self._deliveries(ids)))

    def terminate_deliveries(self, deliveries: Sequence[Delivery]) -> dict[Delivery, UUID]:
        """The same for these deliveries, in one transaction with its record; gives the message of each that ended."""
        with self._database.connection() as connection:
            rows = connection.execute(host_statement("terminate_deliveries", None), _columns(deliveries)).fetchall()
        return {Delivery(host, sequence): message for host, sequence, message, _, _ in rows}

    def edit(self, delivery: Delivery, message: Message, changes: Mapping[str, Any]) -> UUID | None:
        """Let another message take the place of the one of a suspended delivery, and be delivered to that subscriber.

        One transaction, with its record. Gives the id of the original, which is kept for a while. None, and nothing is
        done, if somebody has dealt with the delivery, or our database user may not do this.
        """
        with self._queues.services_held_still() as connection:
            columns = store_columns(connection, Batch([[message]]))
            parameters = {
                **columns,
                "message": message.id,
                "context": columns["context"][0],
                "at_host": delivery.host_id,
                "at_sequence": delivery.sequence,
                "changes": json.dumps(changes),
            }
            done = connection.execute(host_statement("edit_delivery", None), parameters).fetchall()
            if not done:  # fragments of a large body are stored by now
                raise psycopg.Rollback
        if not done:
            return None
        [(original, host, _)] = done
        self._wake({host})
        return UUID(str(original))

    def purge_originals(self, *, age: timedelta, limit: int = 1000) -> int:
        """Forget originals of edited messages that were edited longer ago than this; gives how many."""
        rows = self._database.rows("purge_originals", {"age": age, "limit": limit})
        return int(rows[0][0]) if rows else 0

    def _deliveries(self, ids: Sequence[UUID]) -> list[Delivery]:
        return [Delivery(*row) for row in self._database.rows("find_suspended", {"message": list(ids)})]

    def _wake(self, hosts: Collection[int]) -> None:
        for host in hosts:
            self._queues.reset_scan_starts(host)
        self._queues.notify(hosts)

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


def _counted(done: Mapping[Delivery, UUID]) -> dict[UUID, int]:
    return dict(Counter(done.values()))


def _columns(deliveries: Sequence[Delivery]) -> dict[str, str]:
    """In their order: two who end the same ones do not wait for each other in turn."""
    placed = sorted((each.host_id, each.sequence) for each in deliveries)
    return {"hosts": array_text(host for host, _ in placed), "sequences": array_text(number for _, number in placed)}


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
        attempt=row["attempt"],
        application=row["application"],
        instance=row["instance_id"],
        promoted=None if context is None else context.promoted,
        stored=row["context"] is not None,
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
