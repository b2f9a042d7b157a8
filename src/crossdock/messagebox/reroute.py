"""Routing again, by the subscriptions of now: what nobody wanted, and what an instance ended without taking.

A discarded message may have gone to others when it was published, and they are not given it a second time. It goes to
running instances that do not have it, to the service whose instance discarded it, and to services that were enlisted
after it was published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import psycopg

from crossdock.message.message import Message
from crossdock.messagebox.audit import Act, record_acts
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.decide import Decision, decide, find_instances, refuse_second_answers
from crossdock.messagebox.publish import check_epoch
from crossdock.messagebox.sought import correlation_hashes
from crossdock.messagebox.statement import statement
from crossdock.messagebox.track_write import track_again
from crossdock.messagebox.write import give
from crossdock.subscription.router import Router

Load = Callable[[psycopg.Connection, Sequence[UUID]], dict[UUID, Message]]


@dataclass(slots=True)
class _Kept:
    """The suspended references of a message: how many, and the services whose instances discarded it.

    `sequence` is the number of the first; None if nobody was given the message.
    """

    references: int = 0
    sequence: int | None = None
    services: set[int] = field(default_factory=set)

    @property
    def kind(self) -> str:
        return "unrouted" if self.sequence is None else "discarded"


def reroute(
    connection: psycopg.Connection, router: Router, ids: Sequence[UUID], load: Load
) -> tuple[dict[UUID, bool], Mapping[int, int]]:
    """Route suspended messages again, in the caller's connection: whether somebody wants each, and what hosts got.

    A message that still nobody wants stays as it is. The references that kept it are replaced in the same transaction.
    """
    with connection.transaction():
        kept = _locked(connection, ids)
        stored = {id_: _usable(router, message) for id_, message in load(connection, list(kept)).items()}
        messages = Batch([[stored[message] for message in kept if message in stored]])
        places = [kept[message.id] for message in messages]
        decision = decide(router, messages)
        _leave_out_older(connection, decision, places)
        find_instances(connection, decision, messages, correlation_hashes(router, messages))
        _leave_out_holders(connection, decision, messages, places)
        refuse_second_answers(decision, messages)
        counts = decision.counts(len(messages))
        wanted = counts > 0
        routed = {message.id: int(count) for message, count in zip(messages, counts.tolist(), strict=True) if count}
        if not routed:
            return {message.id: False for message in messages}, {}
        first = connection.execute(statement("read_last_reference")).fetchone()
        assert first is not None
        connection.execute(statement("forget_suspended"), {"message": list(routed)})
        given, column = decision.only(wanted), messages.ids[wanted]
        hosts = give(connection, given, column)
        track_again(connection, given, Batch([[stored[message] for message in routed]]), first[0])
        more = {message: count - kept[message].references for message, count in routed.items()}
        connection.execute(statement("add_references"), {"message": list(more), "delta": list(more.values())})
        acts = [Act("resume", str(message), {"kind": kept[message].kind}) for message in routed]
        record_acts(connection, acts)
        check_epoch(connection, router.epoch)
    return {message.id: message.id in routed for message in messages}, hosts


def _usable(router: Router, message: Message) -> Message:
    """What it promotes and nobody can route by is only written."""
    context = message.context
    for name in context.promoted.keys() - router.usable(context.promoted).keys():
        context = context.write(name, context.promoted[name])
    return Message(message.id, context, message.parts)


def _locked(connection: psycopg.Connection, ids: Sequence[UUID]) -> dict[UUID, _Kept]:
    kept: defaultdict[UUID, _Kept] = defaultdict(_Kept)
    rows = connection.execute(statement("lock_reroutable"), {"message": list(ids)})
    for message, kind, sequence, service in rows.fetchall():
        each = kept[message]
        each.references += 1
        if kind == "discarded":
            each.sequence = sequence if each.sequence is None else each.sequence
            each.services.add(service)
    return kept


def _leave_out_older(connection: psycopg.Connection, decision: Decision, places: Sequence[_Kept]) -> None:
    """Who was enlisted when a discarded message was published was given it then, or did not want it."""
    if all(kept.sequence is None for kept in places):
        return
    numbers = {*decision.subscriptions.tolist(), *(begun.subscription_id for _, begun in decision.activated)}
    rows = connection.execute(statement("list_enlisted_after"), {"subscription": list(numbers)}).fetchall()
    enlisted_after: dict[int, int] = dict(rows)

    def is_new(position: int, number: int) -> bool:
        kept, service = places[position], decision.router.subscriptions[number].service_id
        return kept.sequence is None or service in kept.services or enlisted_after.get(number, 0) >= kept.sequence

    pairs = zip(decision.positions.tolist(), decision.subscriptions.tolist(), strict=True)
    new = np.array([is_new(position, number) for position, number in pairs], np.bool_)
    decision.positions, decision.subscriptions = decision.positions[new], decision.subscriptions[new]
    decision.activated = [
        (position, begun) for position, begun in decision.activated if is_new(position, begun.subscription_id)
    ]


def _leave_out_holders(
    connection: psycopg.Connection, decision: Decision, messages: Batch, places: Sequence[_Kept]
) -> None:
    """A running instance that has a discarded message is not given it twice."""
    given_before = [each for each in decision.instances if places[each[0]].sequence is not None]
    if not given_before:
        return
    parameters = {
        "host": sorted({match.host_id for _, match in given_before}),
        "instance": [match.instance_id for _, match in given_before],
        "message": [messages[position].id for position, _ in given_before],
    }
    holders = set(connection.execute(statement("list_holders"), parameters).fetchall())
    decision.instances = [
        (position, match)
        for position, match in decision.instances
        if (match.instance_id, messages[position].id) not in holders
    ]
