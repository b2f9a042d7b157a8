"""The decision about a batch: which references each message gets, and which it is refused. Nothing is written here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import psycopg

from crossdock.errors import (
    LabelError,
    SecondAnswerError,
    TerminalError,
    TooManyMessagesError,
    UnreachableError,
    UnroutedError,
)
from crossdock.message.message import Message
from crossdock.message.property import Value
from crossdock.message.publication import Publication
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.begin import beginning, open_convoys
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.instance_rows import new_instance_id
from crossdock.subscription.router import CorrelationSet, Int64s, Router, Subscription

_SMALL_BATCH = 64
_ADDRESSES = {"BTS.SPTransportID": "send port", "BTS.SPGroupID": "send port group"}
# References to running instances: where half of what is sent begins instances that wait for the other half, they would
# be the square of it.
_FOLLOWING_IN_ANY_CASE, _FOLLOWING_FOR_EACH, _FOLLOWING_AT_MOST = 100_000, 20, 2_000_000


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


@dataclass(frozen=True, slots=True)
class NewInstance:
    """An instance of an orchestration that messages of this batch begin, and by what it waits from then on.

    `waits` has (correlation, hash, values as text) of each set, `convoy` the hash of the one that messages join by.
    """

    id: UUID
    subscription_id: int
    host_id: int
    waits: tuple[tuple[int, UUID, list[str]], ...]
    convoy: UUID | None = None


@dataclass(slots=True)
class Decision:
    """References of activation subscriptions as two columns, message position and subscription, and the exceptions.

    `stopped_convoys` are those of stopped orchestrations, by position and subscription, that would join a convoy.
    """

    router: Router
    positions: Int64s
    subscriptions: Int64s
    instances: list[tuple[int, InstanceMatch]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    refused: dict[int, TerminalError] = field(default_factory=dict)
    activated: list[tuple[int, NewInstance]] = field(default_factory=list)
    stopped_convoys: list[tuple[int, int, UUID]] = field(default_factory=list)
    following: int = 0

    def follow(self, count: int, messages: Batch) -> None:
        """So many of the messages are for one more running instance. TooManyMessagesError: that are far too many."""
        self.following += count
        most = min(_FOLLOWING_IN_ANY_CASE + _FOLLOWING_FOR_EACH * len(messages), _FOLLOWING_AT_MOST)
        if self.following > most:
            raise TooManyMessagesError(
                f"so many running instances wait for the {len(messages):,} messages that they would be given more than "
                f"{most:,} together; send them in parts, or let each instance wait for a value of its own"
            )

    def counts(self, messages: int) -> Int64s:
        """How many references each message gets."""
        counts = np.bincount(self.positions, minlength=messages)
        for position, _ in (*self.instances, *self.activated):
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
        lacking = self._lacking() if missed else {}
        return {
            position: self._why_unrouted(position, messages[position], lacking.get(position, ())) for position in missed
        }

    def why_unrouted(self, position: int, message: Message) -> TerminalError:
        """The reason to show for a message that gets no reference."""
        return self._why_unrouted(position, message, self._lacking().get(position, ()))

    def _lacking(self) -> Mapping[int, Sequence[Refusal]]:
        """The refusals of each message: to look through all of them for each would take the square of their number."""
        found: defaultdict[int, list[Refusal]] = defaultdict(list)
        for refusal in self.refusals:
            found[refusal.position].append(refusal)
        return found

    def _why_unrouted(self, position: int, message: Message, lacking: Sequence[Refusal]) -> TerminalError:
        if position in self.refused:
            return self.refused[position]
        if lacking:
            names = ", ".join(sorted({refusal.service for refusal in lacking}))
            labels = ", ".join(sorted({label for refusal in lacking for label in refusal.missing}))
            return LabelError(f"No subscription matches: {names} would, but the host lacks the label {labels}.")
        kind = message.context.get("BTS.MessageType")
        subject = f"nobody wants this message of type {kind!r}." if kind else "the message has no type."
        return UnroutedError(f"No subscription matches: {subject}")

    def _activated(self, kept: npt.NDArray[np.bool_]) -> list[tuple[int, NewInstance]]:
        """Who joins a new instance that another message begins stays only with that message; a convoy begins anyway."""
        first: dict[UUID, int] = {}
        for position, begun in self.activated:
            first.setdefault(begun.id, position)
        return [
            (position, begun)
            for position, begun in self.activated
            if kept[position] and (begun.convoy is not None or kept[first[begun.id]])
        ]

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
            [(int(place[position]), begun) for position, begun in self._activated(kept)],
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
    _activate(decision, messages)
    return decision


def find_instances(
    connection: psycopg.Connection, decision: Decision, messages: Batch, sought: Mapping[UUID, Sequence[int]]
) -> None:
    """Add the running instances that wait for these messages, and lock their subscriptions until the commit.

    `sought`: by what they may wait, as `correlation_hashes` gives it. A message that finds a convoy begins no other.
    """
    if sought:
        _find(connection, decision, messages, sought)
        _join_though_stopped(decision)
        if any(begun.convoy is not None for _, begun in decision.activated):
            _join_convoys(connection, decision, messages, sought)
        if decision.activated:
            _join_new(decision, messages, sought)
        # What is published together comes to an instance in its order, by whatever values it waits.
        decision.instances.sort(key=lambda each: each[0])


def _join_though_stopped(decision: Decision) -> None:
    """To stop an orchestration is about new instances: what joins a running convoy is not suspended beside that."""
    running = {match.hash for _, match in decision.instances}
    joined = {(position, number) for position, number, convoy in decision.stopped_convoys if convoy in running}
    if joined:
        _drop(decision, lambda position, number: (position, number) in joined)


def _join_new(decision: Decision, messages: Batch, sought: Mapping[UUID, Sequence[int]]) -> None:
    """An order and its payment may be in one batch: the payment goes to the instance that the order begins there."""
    for begun in list({begun.id: begun for _, begun in decision.activated}.values()):
        subscription = decision.router.subscriptions[begun.subscription_id]
        hashes = [hash_ for _, hash_, _ in begun.waits if hash_ != begun.convoy]
        positions = sorted({each for hash_ in hashes for each in sought.get(hash_, ())})
        decision.follow(len(positions), messages)
        for position in positions:
            labels = messages.labels(position)
            if position not in decision.refused and not _refused(
                decision, position, labels, subscription.id, subscription
            ):
                decision.activated.append((position, begun))


def _find(
    connection: psycopg.Connection, decision: Decision, messages: Batch, sought: Mapping[UUID, Sequence[int]]
) -> None:
    for hash_, *row in connection.execute(host_statement("find_instances", None), {"hash": list(sought)}):
        decision.follow(len(sought[hash_]), messages)
        match = InstanceMatch(hash_, *row)
        for position in (each for each in sought[hash_] if each not in decision.refused):
            if not _refused(decision, position, messages.labels(position), match.subscription_id, match):
                decision.instances.append((position, match))


def _join_convoys(
    connection: psycopg.Connection, decision: Decision, messages: Batch, sought: Mapping[UUID, Sequence[int]]
) -> None:
    """A message for whose values there is a convoy joins it, and begins no other."""

    def find(hashes: Collection[UUID]) -> Collection[UUID]:
        _find(connection, decision, messages, {hash_: sought[hash_] for hash_ in hashes})
        return {match.hash for _, match in decision.instances}

    def without_running() -> list[tuple[int, NewInstance]]:
        running = {match.hash for _, match in decision.instances}
        return [each for each in decision.activated if each[1].convoy not in running]

    wanted = {begun.convoy: begun.id for _, begun in without_running() if begun.convoy is not None}
    open_convoys(connection, wanted, find)
    decision.activated = without_running()


def close_unused(connection: psycopg.Connection, before: Decision, after: Decision) -> None:
    """Convoys that were opened for messages which turned out to be published already."""
    kept = {None, *(begun.convoy for _, begun in after.activated)}
    if unused := {begun.convoy for _, begun in before.activated} - kept:
        connection.execute(host_statement("close_convoys", None), {"hash": list(unused)})


def _activate(decision: Decision, messages: Batch) -> None:
    """Where a message begins an instance and initializes what that waits for, the publisher makes the instance.

    A message that lacks a value begins it as any other does, and its code will say what is wrong.
    """
    router = decision.router
    if not len(router.initializing) or not len(decision.subscriptions):
        return
    begins, started = np.isin(decision.subscriptions, router.initializing), decision.started
    convoys: dict[UUID, NewInstance] = {}
    for row in np.flatnonzero(begins).tolist():
        position, number = int(decision.positions[row]), int(decision.subscriptions[row])
        begun = _begun(router, number, messages[position].context.promoted)
        if begun is None or not started[row]:
            begins[row] = False
            if begun is not None and begun.convoy is not None:
                decision.stopped_convoys.append((position, number, begun.convoy))
            continue
        if begun.convoy is not None:
            begun = convoys.setdefault(begun.convoy, begun)
        decision.activated.append((position, begun))
    decision.positions, decision.subscriptions = decision.positions[~begins], decision.subscriptions[~begins]


def _begun(router: Router, number: int, promoted: Mapping[str, Value]) -> NewInstance | None:
    subscription = router.subscriptions[number]

    def correlation_of(name: str) -> tuple[int, CorrelationSet]:
        correlation = router.latest_correlations[subscription.service_id, name]
        return correlation, router.correlations[correlation]

    made = beginning(router.receives[number], correlation_of, promoted, case_sensitive=router.case_sensitive)
    if made is None:
        return None
    return NewInstance(new_instance_id(), number, subscription.host_id, made.waits, made.convoy)


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
    decision.activated = [each for each in decision.activated if each[0] not in decision.refused]


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
