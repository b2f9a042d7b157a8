"""Running instances of orchestrations: load them to go on, and what an operator asks and does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from crossdock.errors import ContextError
from crossdock.message.context import Context
from crossdock.message.message import Message
from crossdock.messagebox.audit import Act, record_acts
from crossdock.messagebox.database import Database
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.instance_rows import DueTimer, InstanceDetail, InstanceRow, StoredInstance
from crossdock.messagebox.messages import Messages
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.undeployment import end_instances


class Instances:
    """`agent.instances`: the verbs for running instances."""

    def __init__(self, database: Database, messages: Messages, queues: Queues) -> None:
        self._database = database
        self._messages = messages
        self._queues = queues

    # For whoever runs them

    def load(self, host_id: int, ids: Sequence[UUID]) -> dict[UUID, StoredInstance]:
        """Those that are there, with all that is needed to go on."""
        wanted = {"host": host_id, "id": list(ids)}
        found = {row[0]: row for row in self._database.host_rows("load_instances", wanted)}
        begun = [id_ for id_, row in found.items() if row[4] > 0 or row[5] != "running" or row[6] is not None]
        records: defaultdict[UUID, list[bytes]] = defaultdict(list)
        parked: defaultdict[UUID, list[tuple[int, UUID, int]]] = defaultdict(list)
        messages = {}
        if begun:
            wanted["id"] = begun
            for id_, _, record in self._database.host_rows("load_history", wanted):
                records[id_].append(record)
            for id_, sequence, message, subscription in self._database.host_rows("load_parked", wanted):
                parked[id_].append((sequence, message, subscription))
            messages = self._messages.held(host_id, begun)
        return {id_: _stored(row, records[id_], parked[id_], messages) for id_, row in found.items()}

    def due(self, host_id: int, *, limit: int) -> list[DueTimer]:
        """Timers whose time has come, the earliest first."""
        return [DueTimer(*row) for row in self._database.host_rows("list_due", {"host": host_id, "limit": limit})]

    def next_due(self, host_id: int) -> float | None:
        """In how many seconds a timer is due; None if there is none."""
        rows = self._database.host_rows("next_due", {"host": host_id})
        return float(rows[0][0]) if rows else None

    def correlations(self, subscriptions: Sequence[int]) -> dict[int, str | None]:
        """The names of the correlations by which instances subscribe; None for responses."""
        return dict(self._database.rows("list_subscribed_by", {"id": list(subscriptions)}))

    def version(self, digest: str) -> tuple[bytes, dict[str, str]] | None:
        """The code of a version, and the packages that it was deployed with."""
        rows = self._database.rows("load_version", {"digest": digest})
        return (bytes(rows[0][0]), rows[0][1]) if rows else None

    def addresses(self) -> dict[tuple[str, str], str]:
        """What to promote so that a message reaches a `port` or an orchestration, or a `group`, by its name."""
        return {(kind, name): str(id_) for kind, name, id_ in self._database.rows("list_addresses")}

    # For people

    def list(self, *, ids: Sequence[UUID] | None = None, limit: int | None = None) -> list[InstanceRow]:
        """The oldest first."""
        parameters = {"id": None if ids is None else list(ids), "limit": limit}
        return self._database.listed("list_instances", instance_row, parameters)

    def versions(self, orchestration: str) -> dict[str, int]:
        """How many instances of an orchestration live on which version of its code."""
        return dict(self._database.rows("count_versions", {"name": orchestration}))

    def sample(self, orchestration: str, *, excluding: str, limit: int) -> Sequence[tuple[int, UUID]]:
        """(host, id) of instances from as many places of the code as there are, `excluding` those of one version."""
        wanted = {"name": orchestration, "version": excluding, "limit": limit}
        return [(host, id_) for host, id_ in self._database.rows("sample_instances", wanted)]

    def describe(self, instance: UUID) -> InstanceDetail | None:
        """All of one instance; None if there is none of this id."""
        rows = self.list(ids=[instance])
        if not rows:
            return None
        wanted = {"host": rows[0].host_id, "id": instance}
        return InstanceDetail(
            rows[0],
            [bytes(record) for _, record in self._database.rows("list_records", wanted)],
            [(*row,) for row in self._database.rows("list_held", wanted)],
            [(*row,) for row in self._database.rows("list_timers", wanted)],
        )

    def resume(self, ids: Sequence[UUID]) -> Sequence[UUID]:
        """Let suspended instances go on; gives those that were suspended."""
        return self._woken("resume_instances", ids)

    def cancel(self, ids: Sequence[UUID]) -> Sequence[UUID]:
        """Let instances compensate and end; gives those that are there."""
        return self._woken("cancel_instances", ids)

    def terminate(self, ids: Sequence[UUID]) -> Sequence[UUID]:
        """End instances without running any code; gives those that were there.

        What they were given and did not take is suspended. A step that is being done is finished first.
        """
        self._database.refuse_limited("terminate instances")
        with self._queues.services_held_still() as connection:
            found = end_instances(connection, ids)
            acts = [
                Act("terminate", str(id_), {"state": state}, service_id=service) for _, id_, service, state in found
            ]
            record_acts(connection, acts)
        return [row[1] for row in found]

    def _woken(self, verb: str, ids: Sequence[UUID]) -> Sequence[UUID]:
        with self._database.connection() as connection, connection.transaction():
            rows = connection.execute(host_statement(verb, None), {"id": list(ids)}).fetchall()
        self._queues.notify({host for _, host, _ in rows})
        return [id_ for id_, _, _ in rows]


def _stored(
    row: tuple[Any, ...],
    records: Sequence[bytes],
    parked: Sequence[tuple[int, UUID, int]],
    messages: Mapping[UUID, Message],
) -> StoredInstance:
    id_, service, version, activation, step, state, code, subscribed = row
    return StoredInstance(id_, service, version, activation, step, state, code, subscribed, records, parked, messages)


def instance_row(*, context: str | None, correlated: Sequence[Any] | None, **columns: Any) -> InstanceRow:
    promoted = {}
    with suppress(ContextError):
        promoted = {} if context is None else dict(Context.from_json(context).promoted)
    # The role of a host may have written fewer values than there are properties.
    by_name = {name: dict(zip(properties, values, strict=False)) for name, properties, values in correlated or ()}
    return InstanceRow(**columns, promoted=promoted, correlated=by_name)
