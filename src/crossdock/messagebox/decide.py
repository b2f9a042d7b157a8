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

from crossdock.errors import LabelError, SecondAnswerError, TerminalError, UnreachableError, UnroutedError
from crossdock.message.message import Message
from crossdock.message.publication import Publication
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.host_functions import host_statement
from crossdock.subscription.correlation import correlation_hash
from crossdock.subscription.router import Int64s, Router, Subscription

_SMALL_BATCH = 64
_ADDRESSES = {"BTS.SPTransportID": "send port", "BTS.SPGroupID": "send port group"}


@dataclass(frozen=True, slots=True)
class InstanceMatch:
    """A running instance that waits for a message with these correlation values."""

    hash: UUID
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
    refused: dict[int, TerminalError] = field(default_factory=dict)

    def counts(self, messages: int) -> Int64s:
        """How many references each message gets."""
        counts = np.bincount(self.positions, minlength=messages)
        for position, _ in self.instances:
            counts[position] += 1
        return counts.astype(np.int64)

    @property
    def started(self) -> npt.NDArray[np.bool_]:
        """Which of the references go to a queue; the others are suspended, because their service is stopped."""
        table = self.router.table
        return table.started[table.rows(self.subscriptions)]

    def held(self, messages: int) -> Int64s:
        """How many references of each message are suspended because their service is stopped."""
        return np.bincount(self.positions[~self.started], minlength=messages)

    def reasons(self, messages: Batch, counts: Int64s) -> dict[int, TerminalError]:
        """Why messages get no reference, by their position."""
        missed = np.flatnonzero(counts == 0).tolist()
        return {position: self.why_unrouted(position, messages[position]) for position in missed}

    def why_unrouted(self, position: int, message: Message) -> TerminalError:
        """The reason to show for a message that gets no reference."""
        if position in self.refused:
            return self.refused[position]
        lacking = [refusal for refusal in self.refusals if refusal.position == position]
        if lacking:
            names = ", ".join(sorted({refusal.service for refusal in lacking}))
            labels = ", ".join(sorted({label for refusal in lacking for label in refusal.missing}))
            return LabelError(f"No subscription matches: {names} would, but the host lacks the label {labels}.")
        kind = message.context.get("BTS.MessageType")
        subject = f"nobody wants this message of type {kind!r}." if kind else "the message has no type."
        return UnroutedError(f"No subscription matches: {subject}")

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


def find_instances(
    connection: psycopg.Connection, decision: Decision, messages: Batch, sought: Mapping[UUID, Sequence[int]]
) -> None:
    """Add the running instances that wait for these messages, and lock their subscriptions until the commit.

    `sought`: by what they may wait, as `correlation_hashes` gives it.
    """
    if sought:
        for hash_, *row in connection.execute(host_statement("find_instances", None), {"hash": list(sought)}):
            match = InstanceMatch(hash_, *row)
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
            reason = f"The request matches more than one two-way subscriber: {names}."
            decision.refused[position] = SecondAnswerError(reason)
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
                decision.refused[position] = UnreachableError(f"The {what} that {name} names is not enlisted.")
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


def kept_back(decision: Decision, publications: Sequence[Publication], counts: npt.NDArray[np.int64]) -> str | None:
    """Why the first all-or-nothing publication with a message that nobody wants stays; None if there is none."""
    begin = 0
    for each in publications:
        missed = np.flatnonzero(counts[begin : begin + len(each.messages)] == 0)
        if each.all_or_nothing and len(missed):
            place = int(missed[0])
            why = str(decision.why_unrouted(begin + place, each.messages[place])).rstrip(".")
            kept = "all of the file is kept back: its interchange is standard"
            return f"message {place + 1} of {len(each.messages)}: {why} ({kept})"
        begin += len(each.messages)
    return None
