"""Which instance of an orchestration a message begins or joins: the convoy of its values, or one of its own.

Publishers decide it for what they publish. For what was suspended, since the orchestration was stopped for example, it
is decided when that is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from crossdock.errors import ContextError, TransientError
from crossdock.message.context import Context
from crossdock.message.property import Value
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.instance_rows import new_instance_id
from crossdock.messagebox.load import load_correlations, load_types, read_receive
from crossdock.messagebox.rows import Delivery
from crossdock.messagebox.statement import statement
from crossdock.subscription.correlation import correlation_hash, shown_values
from crossdock.subscription.router import ActivatingReceive, CorrelationSet, latest_correlations, receive_of

_CONVOY_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Beginning:
    """By what a new instance waits: (correlation, hash, values as text) of each set.

    `convoy` is the hash of the set that other messages join it by.
    """

    waits: tuple[tuple[int, UUID, list[str]], ...]
    convoy: UUID | None


def beginning(
    receives: Sequence[ActivatingReceive],
    correlation_of: Callable[[str], tuple[int, CorrelationSet]],
    promoted: Mapping[str, Value],
    *,
    case_sensitive: bool,
) -> Beginning | None:
    """What the instance that a message begins waits for; None if for nothing, or if the message lacks a value."""
    place = receive_of(receives, promoted, case_sensitive=case_sensitive) if len(receives) > 1 else 0
    waits, convoy = [], None
    for name in receives[place].initializes:
        correlation, known = correlation_of(name)
        hash_ = correlation_hash(correlation, known.properties, promoted, case_sensitive=case_sensitive)
        if hash_ is None:
            return None
        waits.append((correlation, hash_, shown_values(known.properties, promoted)))
        if receives[place].convoy and known.types and receives[place].type in known.types:
            convoy = convoy or hash_
    return Beginning(tuple(waits), convoy) if waits else None


def open_convoys(
    connection: psycopg.Connection,
    wanted: Mapping[UUID, UUID],
    find: Callable[[Collection[UUID]], Collection[UUID]],
) -> None:
    """Open convoys, by hash, for new instances, but those that `find` finds others to have opened.

    Whoever opens a convoy first begins its instance; who comes second has waited for the first, and finds it.
    """
    missing = sorted(wanted)
    for _ in range(_CONVOY_ATTEMPTS):
        if not missing:
            return
        parameters = {"hash": missing, "instance": [wanted[hash_] for hash_ in missing]}
        ours = {opened for (opened,) in connection.execute(host_statement("open_convoys", None), parameters)}
        taken = [hash_ for hash_ in missing if hash_ not in ours]
        missing = sorted(set(taken).difference(find(taken) if taken else ()))
        if missing:  # its instance has just ended, or there never was one
            connection.execute(host_statement("close_convoys", None), {"hash": missing})
    raise TransientError("The instances of a convoy end as fast as messages find them.")


def begin_suspended(
    connection: psycopg.Connection, *, service: int | None = None, deliveries: Sequence[Delivery] = ()
) -> None:
    """Suspended references that are about to be resumed are given to the instances that they begin or join.

    Those of a `service` that was stopped, or these `deliveries`, in the order in which they were published. What our
    database user may not resume is left alone.
    """
    if service is not None:
        services = _services(connection, [service])
        found = _listed(connection, "list_stopped", {"service": service}) if services else []
    else:
        places = {
            "hosts": [each.host_id for each in deliveries],
            "sequences": [each.sequence for each in deliveries],
        }
        found = _listed(connection, "list_resumable", places)
        services = _services(connection, {each for *_, each in found if each is not None})
    rows = [
        _Row(host, sequence, message, services[each]) for host, sequence, message, each in found if each in services
    ]
    if rows:
        resuming = _Resuming(connection)
        for row, context in _with_contexts(connection, rows):
            resuming.add(row, context)
        resuming.begin()


@dataclass(frozen=True, slots=True)
class _Service:
    """An orchestration, the host where its instances are, and what begins them, as it is stored."""

    id: int
    host_id: int
    receives: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Row:
    """A suspended reference."""

    host_id: int
    sequence: int
    message_id: UUID
    service: _Service


def _listed(connection: psycopg.Connection, verb: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return connection.execute(host_statement(verb, None), parameters).fetchall()


def _services(connection: psycopg.Connection, ids: Collection[int]) -> dict[int, _Service]:
    rows = connection.execute(statement("list_begun_by_messages"), {"service": list(ids)})
    return {id_: _Service(id_, host, receives) for id_, host, receives in rows}


def _with_contexts(connection: psycopg.Connection, rows: Sequence[_Row]) -> Iterator[tuple[_Row, str]]:
    """Of those that the host of their service may have."""
    places = {"hosts": [row.host_id for row in rows], "sequences": [row.sequence for row in rows]}
    found = _listed(connection, "list_contexts", places)
    contexts: dict[tuple[int, int], str] = {(host, sequence): context for host, sequence, context in found}
    for row in rows:
        if (row.host_id, row.sequence) in contexts:
            yield row, contexts[row.host_id, row.sequence]


@dataclass(slots=True)
class _New:
    """An instance that the first of these references begins; the others join it."""

    beginning: Beginning
    rows: list[_Row] = field(default_factory=list)
    id: UUID = field(default_factory=new_instance_id)


class _Resuming:
    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._types = load_types(connection)
        self._correlations = load_correlations(connection)
        self._latest = latest_correlations(self._correlations)
        row = connection.execute(statement("read_case_sensitive")).fetchone()
        self._case_sensitive = row is not None and bool(row[0])
        self._receives: dict[int, list[ActivatingReceive]] = {}
        self._convoys: dict[UUID, _New] = {}
        self._single: list[_New] = []

    def add(self, row: _Row, context: str) -> None:
        """A message that lacks a value begins an instance as any other does, and its code will say what is wrong."""
        with suppress(ContextError):  # whoever is given it will say that it cannot be read
            made = self._beginning(row, Context.from_json(context).promoted)
            if made is None:
                return
            if made.convoy is None:
                self._single.append(_New(made, [row]))
            else:
                self._convoys.setdefault(made.convoy, _New(made)).rows.append(row)

    def _beginning(self, row: _Row, promoted: Mapping[str, Value]) -> Beginning | None:
        if row.service.id not in self._receives:
            self._receives[row.service.id] = [read_receive(self._types, each) for each in row.service.receives]

        def correlation_of(name: str) -> tuple[int, CorrelationSet]:
            number = self._latest[row.service.id, name]
            return number, self._correlations[number]

        receives = self._receives[row.service.id]
        return beginning(receives, correlation_of, promoted, case_sensitive=self._case_sensitive)

    def begin(self) -> None:
        running: dict[UUID, tuple[int, UUID]] = {}

        def find(hashes: Collection[UUID]) -> Collection[UUID]:
            rows = self._connection.execute(host_statement("find_instances", None), {"hash": list(hashes)}).fetchall()
            running.update({row[0]: (row[1], row[2]) for row in rows})
            return {row[0] for row in rows}

        if self._convoys:
            find(self._convoys)
        wanted = {hash_: new.id for hash_, new in self._convoys.items() if hash_ not in running}
        open_convoys(self._connection, wanted, find)
        joining = {hash_: new for hash_, new in self._convoys.items() if hash_ in running}
        begun = [*self._single, *(new for hash_, new in self._convoys.items() if hash_ not in running)]
        given = [_given(row, new.id, None) for new in begun for row in new.rows]
        given += [
            _given(row, instance, subscription)
            for hash_, new in joining.items()
            for subscription, instance in [running[hash_]]
            for row in new.rows
        ]
        made = {
            "instances": [
                {"id": new.id, "service_id": new.rows[0].service.id, "activation": new.rows[0].message_id}
                for new in begun
            ],
            "waits": [
                {
                    "instance_id": new.id,
                    "service_id": new.rows[0].service.id,
                    "correlation_id": correlation,
                    "hash": hash_,
                    "value": value,
                }
                for new in begun
                for correlation, hash_, value in new.beginning.waits
            ],
            "given": given,
        }
        written = {name: msgspec.json.encode(rows).decode() for name, rows in made.items()}
        self._connection.execute(host_statement("begin_suspended", None), written)


def _given(row: _Row, instance: UUID, subscription: int | None) -> dict[str, Any]:
    return {
        "host_id": row.host_id,
        "sequence": row.sequence,
        "instance_id": instance,
        "subscription_id": subscription,
    }
