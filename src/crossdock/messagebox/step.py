"""A step as one unit of work: what it settles, what it publishes, who waits from then on, and which instances end.

Many steps commit together. Each has a fence of its own: the claims of the references it settles. A step whose claims
are no longer ours drops out alone, and nothing of it is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from crossdock.errors import UsageError
from crossdock.message.message import Message
from crossdock.message.publication import Awaited, Publication
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.publish import publish_within, sought_by
from crossdock.messagebox.settle import Settlement, settle
from crossdock.messagebox.statement import array_text, statement
from crossdock.subscription.router import Router


@dataclass(frozen=True, slots=True)
class Step:
    """What a host instance does at once. The references in `settles` are its claims, all of them at this host.

    Who is in `subscribes` waits from the commit on. The running instances in `ends` are given nothing any more; what
    they were given and did not take is suspended as discarded.
    """

    host_id: int
    host_instance: int
    settles: Sequence[Settlement] = ()
    publishes: Sequence[Message] = ()
    subscribes: Sequence[Awaited] = ()
    ends: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class Stepped:
    """Whether a step was done, and the messages that its ended instances were given and did not take."""

    done: bool
    discarded: Sequence[UUID] = ()


class OpenedStep:
    """A step whose transaction is open. `step` may be replaced until the end, except for what it settles."""

    def __init__(self, connection: psycopg.Connection, step: Step) -> None:
        self._connection = connection
        self._transaction = _transaction(connection)
        self._settles = step.settles
        self.step = step

    def execute(self, query: str, parameters: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement in the transaction of the step."""
        return self._connection.execute(query.encode(), parameters)

    def check(self) -> None:
        """The transaction is the one that began, and the step settles what was locked."""
        if _transaction(self._connection) != self._transaction:
            raise UsageError("The code in a step ended its transaction. Leave COMMIT and ROLLBACK to the step.")
        if self.step.settles is not self._settles:
            raise UsageError("An opened step cannot settle other references than those it was opened with.")


def lock_claims(connection: psycopg.Connection, steps: Sequence[Step]) -> list[bool]:
    """Which steps have all their claims; nobody else settles or frees those until the commit."""
    wanted: defaultdict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for step in steps:
        for outcome in step.settles:
            wanted[step.host_id, step.host_instance][outcome.reference.sequence] = outcome.reference.claim
    living = {
        (host_instance, sequence)
        for (host, host_instance), claims in wanted.items()
        for sequence in _locked(connection, host, host_instance, claims)
    }
    held = []
    for step in steps:
        mine = {(step.host_instance, outcome.reference.sequence) for outcome in step.settles}
        held.append(mine <= living)
        if held[-1]:
            living -= mine  # given twice in one call, it is done once
    return held


def _locked(connection: psycopg.Connection, host: int, host_instance: int, claims: dict[int, int]) -> Iterable[int]:
    parameters = {
        "host": host,
        "host_instance": host_instance,
        "sequence": array_text(claims),
        "claim": array_text(claims.values()),
    }
    return [sequence for (sequence,) in connection.execute(host_statement("lock_claimed", host), parameters)]


def carry_out(
    connection: psycopg.Connection, router: Router, steps: Sequence[Step], *, by_copy: bool
) -> tuple[list[Sequence[UUID]], frozenset[int]]:
    """Do steps whose claims are locked, in the caller's transaction, in which subscriptions are held still.

    Gives what each has discarded, and the hosts that have new references.
    """
    settled: defaultdict[int, list[Settlement]] = defaultdict(list)
    for step in steps:
        settled[step.host_instance] += step.settles
    for host_instance, outcomes in settled.items():
        settle(connection, host_instance, outcomes)
    publications = [Publication(step.host_id, step.publishes) for step in steps if step.publishes]
    waiting = [each for step in steps for each in step.subscribes]
    ended = [instance for step in steps for instance in step.ends]
    if ended:
        # In one pass: two steps that end themselves and publish to each other would wait for each other otherwise.
        parameters = {"hash": list(sought_by(router, publications)), "instance": ended}
        connection.execute(statement("lock_subscriptions"), parameters)
        connection.execute(statement("end_instance"), {"instance": ended})
    hosts: frozenset[int] = frozenset()
    if publications or waiting:
        hosts = publish_within(connection, router, publications, waiting, by_copy=by_copy).hosts
    return _discarded(connection, steps), hosts


def _discarded(connection: psycopg.Connection, steps: Sequence[Step]) -> list[Sequence[UUID]]:
    """After the subscriptions are gone: what a publisher that held them gave meanwhile is seen."""
    found: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for host in {step.host_id for step in steps if step.ends}:
        ended = [instance for step in steps if step.host_id == host for instance in step.ends]
        row = connection.execute(host_statement("discard", host), {"instance": ended}).fetchone()
        assert row is not None
        for message, instance in zip(row[0] or (), row[1] or (), strict=True):
            found[instance].append(message)
    return [[message for instance in step.ends for message in found[instance]] for step in steps]


def _transaction(connection: psycopg.Connection) -> int:
    row = connection.execute(statement("read_transaction")).fetchone()
    assert row is not None
    return int(row[0])
