"""The decision about a batch: which references each message gets, and which it is refused. Nothing is written here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import psycopg

from crossdock.message.message import Message
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.copy import Column, copy_columns, copy_tuples
from crossdock.messagebox.statement import statement
from crossdock.receive.interchange import Interchange
from crossdock.subscription.correlation import correlation_hash
from crossdock.subscription.router import Int64s, Router, Subscription

_SMALL_BATCH = 64
_ADDRESSES = {"BTS.SPTransportID": "send port", "BTS.SPGroupID": "send port group"}


@dataclass(frozen=True, slots=True)
class InstanceMatch:
    """A running instance that waits for a message with these correlation values."""

    subscription_id: int
    instance_id: UUID
    service_id: int
    service: str
    host_id: int
    priority: int
    bound_to: int | None
    labels: Sequence[str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reference that is not given: the host lacks labels that the message has."""

    position: int
    subscription_id: int
    service_id: int
    service: str
    host_id: int
    missing: tuple[str, ...]


@dataclass(slots=True)
class Decision:
    """References of activation subscriptions as two columns, message position and subscription, and the exceptions."""

    router: Router
    positions: Int64s
    subscriptions: Int64s
    instances: list[tuple[int, InstanceMatch]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)

    def counts(self, messages: int) -> Int64s:
        """How many references each message gets."""
        counts = np.bincount(self.positions, minlength=messages)
        for position, _ in self.instances:
            counts[position] += 1
        return counts.astype(np.int64)

    def why_unrouted(self, position: int, message: Message) -> str:
        """The reason to show for a message that gets no reference."""
        if position in self.refused:
            return self.refused[position]
        lacking = [refusal for refusal in self.refusals if refusal.position == position]
        if lacking:
            names = ", ".join(sorted({refusal.service for refusal in lacking}))
            labels = ", ".join(sorted({label for refusal in lacking for label in refusal.missing}))
            return f"No subscription matches: {names} would, but the host lacks the label {labels}."
        kind = message.context.get("BTS.MessageType")
        subject = f"nobody wants this message of type {kind!r}." if kind else "the message has no type."
        return f"No subscription matches: {subject}"

    def only(self, kept: npt.NDArray[np.bool_]) -> Decision:
        """The decision about the messages that are kept, by their new positions."""
        place = np.cumsum(kept) - 1
        mine = kept[self.positions]
        return Decision(
            self.router,
            place[self.positions[mine]],
            self.subscriptions[mine],
            [(int(place[position]), match) for position, match in self.instances if kept[position]],
            [replace(each, position=int(place[each.position])) for each in self.refusals if kept[each.position]],
            {int(place[position]): reason for position, reason in self.refused.items() if kept[position]},
        )


def decide(router: Router, messages: Batch) -> Decision:
    """Match, then take back what labels forbid, and all of what could not reach whom it names."""
    if len(messages) < _SMALL_BATCH:
        positions, numbers = router.match_few(message.context.promoted for message in messages)
    else:
        positions, numbers = router.match(messages)
    decision = Decision(router, positions, numbers)
    _refuse_unreachable(decision, messages)
    _refuse_by_label(decision, messages)
    return decision


def find_instances(connection: psycopg.Connection, decision: Decision, messages: Batch) -> None:
    """Add the running instances that wait for these messages, and lock their subscriptions until the commit."""
    if sought := correlation_hashes(decision.router, messages):
        for hash_, *row in connection.execute(statement("find_instances"), {"hash": list(sought)}):
            match = InstanceMatch(*row)
            for position in (each for each in sought[hash_] if each not in decision.refused):
                if not _refused(decision, position, messages.labels(position), match.subscription_id, match):
                    decision.instances.append((position, match))


def correlation_hashes(router: Router, messages: Batch) -> Mapping[UUID, Sequence[int]]:
    """By what running instances may wait for messages, and the positions of those messages."""
    sought: defaultdict[UUID, list[int]] = defaultdict(list)
    for correlation, properties in router.correlations.items():
        columns = [messages.column(name) for name in properties]
        for position, values in enumerate(zip(*columns, strict=True)):
            known = {name: value for name, value in zip(properties, values, strict=True) if value is not None}
            hash_ = correlation_hash(correlation, properties, known, case_sensitive=router.case_sensitive)
            if hash_ is not None:
                sought[hash_].append(position)
    return sought


def refuse_second_answers(decision: Decision, messages: Batch) -> None:
    """A request has one answer: where two services would give one, none of them gets it."""
    requests = messages.requests()
    if not requests:
        return
    for position in requests:
        mine = decision.subscriptions[decision.positions == position].tolist()
        answering = [each.service for number in mine if (each := decision.router.subscriptions[number]).two_way]
        if len(answering) > 1:
            names = ", ".join(answering)
            decision.refused[position] = f"The request matches more than one two-way subscriber: {names}."
    _drop(decision, lambda position, _: position in decision.refused)
    decision.instances = [each for each in decision.instances if each[0] not in decision.refused]


def _refuse_unreachable(decision: Decision, messages: Batch) -> None:
    """A message for a port that is not enlisted is kept for it: given to others only, it would be lost on the port."""
    for name, what in _ADDRESSES.items():
        column = messages.column(name)
        named = column.count(None) < len(column)  # in the bulk lane hardly ever, and there are many
        for position, address in enumerate(column if named else ()):
            if address is None:
                continue
            begin, end = np.searchsorted(decision.positions, [position, position + 1])
            mine = decision.subscriptions[begin:end].tolist()
            reached = {decision.router.subscriptions[number].address for number in mine}
            if str(address).rstrip().lower() not in reached:
                decision.refused[position] = f"The {what} that {name} names is not enlisted."
    if decision.refused:
        _drop(decision, lambda position, _: position in decision.refused)


def _refuse_by_label(decision: Decision, messages: Batch) -> None:
    if not messages.labelled:
        return
    for position, number in zip(decision.positions.tolist(), decision.subscriptions.tolist(), strict=True):
        _refused(decision, position, messages.labels(position), number, decision.router.subscriptions[number])
    refused = {(refusal.position, refusal.subscription_id) for refusal in decision.refusals}
    _drop(decision, lambda position, number: (position, number) in refused)


def _refused(
    decision: Decision, position: int, labels: frozenset[str], number: int, subscriber: Subscription | InstanceMatch
) -> bool:
    """Whether the host of a subscriber lacks a label of the message; noted if so."""
    missing = labels.difference(subscriber.labels)
    if missing:
        decision.refusals.append(
            Refusal(
                position, number, subscriber.service_id, subscriber.service, subscriber.host_id, tuple(sorted(missing))
            )
        )
    return bool(missing)


def _drop(decision: Decision, condition: Any) -> None:
    pairs = zip(decision.positions.tolist(), decision.subscriptions.tolist(), strict=True)
    kept = np.array([not condition(position, number) for position, number in pairs], np.bool_)
    decision.positions, decision.subscriptions = decision.positions[kept], decision.subscriptions[kept]


def give(connection: psycopg.Connection, decision: Decision, ids: npt.NDArray[Any]) -> Mapping[int, int]:
    """Write the references: queued where the service is started, suspended where it is stopped. Queued ones by host."""
    table = decision.router.table
    rows = table.rows(decision.subscriptions)
    started = table.started[rows]
    queued = rows[started]
    columns: list[Column] = [
        ("int2", table.host_id[queued]),
        ("int4", table.line[queued]),
        ("int2", table.priority[queued]),
        ("uuid", ids[decision.positions[started]]),
        ("int8", table.id[queued]),
        ("int4", table.service_id[queued]),
    ]
    copy_columns(
        connection,
        "COPY queue (host_id, line, priority, message_id, subscription_id, service_id) FROM STDIN (FORMAT BINARY)",
        columns,
    )
    _give_stopped(connection, decision, decision.positions[~started], decision.subscriptions[~started], ids)
    _give_instances(connection, decision, ids)
    _record_refusals(connection, decision, ids)
    hosts, counts = np.unique(table.host_id[queued], return_counts=True)
    found = dict(zip(hosts.tolist(), counts.tolist(), strict=True))
    for _, match in decision.instances:
        found[match.host_id] = found.get(match.host_id, 0) + 1
    return found


def _give_stopped(
    connection: psycopg.Connection, decision: Decision, positions: Int64s, numbers: Int64s, ids: npt.NDArray[Any]
) -> None:
    rows = []
    for position, number in zip(positions.tolist(), numbers.tolist(), strict=True):
        each = decision.router.subscriptions[number]
        reason = f"Send port {each.service!r} is stopped."
        rows.append((each.host_id, "stopped", _uuid(ids[position]), each.id, each.service_id, each.priority, reason))
    copy_tuples(
        connection,
        "COPY suspended (host_id, kind, message_id, subscription_id, service_id, priority, reason)"
        " FROM STDIN (FORMAT BINARY)",
        ("int2", "text", "uuid", "int8", "int4", "int2", "text"),
        rows,
    )


def _give_instances(connection: psycopg.Connection, decision: Decision, ids: npt.NDArray[Any]) -> None:
    rows: list[tuple[object, ...]] = [
        (match.host_id, -(match.bound_to or 0), match.priority, _uuid(ids[position]), match.subscription_id,
         match.service_id, match.instance_id)
        for position, match in decision.instances
    ]  # fmt: skip
    copy_tuples(
        connection,
        "COPY queue (host_id, line, priority, message_id, subscription_id, service_id, instance_id)"
        " FROM STDIN (FORMAT BINARY)",
        ("int2", "int4", "int2", "uuid", "int8", "int4", "uuid"),
        rows,
    )


def _record_refusals(connection: psycopg.Connection, decision: Decision, ids: npt.NDArray[Any]) -> None:
    rows: list[tuple[object, ...]] = [
        (_uuid(ids[each.position]), each.subscription_id, each.service_id, each.host_id, list(each.missing))
        for each in decision.refusals
    ]  # fmt: skip
    copy_tuples(
        connection,
        "COPY refusal (message_id, subscription_id, service_id, host_id, labels) FROM STDIN (FORMAT BINARY)",
        ("uuid", "int8", "int4", "int2", "text[]"),
        rows,
    )


def _uuid(value: Any) -> UUID:
    return UUID(bytes=bytes(value))


def kept_back(decision: Decision, interchanges: Sequence[Interchange], counts: npt.NDArray[np.int64]) -> str | None:
    """Why the first standard interchange with a message that nobody wants stays; None if there is none."""
    begin = 0
    for each in interchanges:
        missed = np.flatnonzero(counts[begin : begin + len(each.messages)] == 0)
        if each.standard and len(missed):
            place = int(missed[0])
            why = decision.why_unrouted(begin + place, each.messages[place]).rstrip(".")
            kept = "all of the file is kept back: its interchange is standard"
            return f"message {place + 1} of {len(each.messages)}: {why} ({kept})"
        begin += len(each.messages)
    return None
