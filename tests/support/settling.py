"""Settle references of which a test knows the sequence number: what came of them, in one call of `agent.settle` each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Reference, ServerTime
from crossdock.messagebox.settle import Complete, GiveBack, Retry, Settlement, Suspend

Claims = Mapping[int, int]
Later = tuple[int, timedelta, str]
_ANY: Claims = {}


@dataclass(frozen=True)
class SubqueueOutcome:
    """What came of a claim on an ordered service: delivered in order up to where it stopped, and the rest put back.

    `failed` is the one that has to be tried again, and for how long its subqueue is blocked. `stopped_by` is among the
    suspended, and the subqueue waits until somebody has dealt with it. `claims` say which claim of each reference is meant.
    """

    completed: Sequence[int] = ()
    suspended: Sequence[tuple[int, str]] = ()
    failed: int | None = None
    blocked_for: timedelta | None = None
    reason: str | None = None
    untried: Sequence[int] = ()
    stopped_by: int | None = None
    claims: Claims = field(default_factory=dict)


def reference(host: int, sequence: int, claims: Claims = _ANY, *, subqueue: int = 0) -> Reference:
    """What settling needs to know of a claimed reference; without a claim, whichever there is."""
    message = Message(MessageId(UUID(int=0)), Context({}), ())
    now = ServerTime(datetime.now(UTC), time.monotonic())
    return Reference(sequence, 0, 0, message, now, subqueue, claim=claims.get(sequence, 0), host_id=host)


def complete(agent: Agent, host: int, instance: int, sequences: Sequence[int]) -> None:
    agent.settle(instance, [Complete(reference(host, sequence)) for sequence in sequences])


def retry(agent: Agent, host: int, instance: int, later: Sequence[Later], *, claims: Claims = _ANY) -> None:
    """(sequence, in how long, reason) of each."""
    agent.settle(instance, [Retry(reference(host, number, claims), after, why) for number, after, why in later])


def postpone(agent: Agent, host: int, instance: int, later: Sequence[Later], *, claims: Claims = _ANY) -> None:
    """The same for what has not been tried."""
    agent.settle(
        instance, [Retry(reference(host, number, claims), after, why, tried=False) for number, after, why in later]
    )


def suspend(
    agent: Agent, host: int, instance: int, failed: Sequence[tuple[int, str]], *, claims: Claims = _ANY
) -> None:
    """(sequence, reason) of each."""
    agent.settle(instance, [Suspend(reference(host, number, claims), why) for number, why in failed])


def give_back(agent: Agent, host: int, instance: int, sequences: Sequence[int], *, claims: Claims = _ANY) -> None:
    agent.settle(instance, [GiveBack(reference(host, sequence, claims)) for sequence in sequences])


def settle_subqueue(agent: Agent, host: int, instance: int, subqueue: int, outcome: SubqueueOutcome) -> None:
    """And give up the lease."""
    claims = outcome.claims
    settled: list[Settlement] = [Complete(reference(host, number, claims)) for number in outcome.completed]
    settled += [
        Suspend(reference(host, number, claims), why, stops=number == outcome.stopped_by)
        for number, why in outcome.suspended
    ]
    if outcome.failed is not None:
        assert outcome.blocked_for is not None
        settled.append(Retry(reference(host, outcome.failed, claims), outcome.blocked_for, outcome.reason or ""))
    settled += [GiveBack(reference(host, number, claims)) for number in outcome.untried]
    first = min(claims, default=0)
    agent.settle(instance, settled, lease=reference(host, first, claims, subqueue=subqueue))
