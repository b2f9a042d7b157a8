"""A step as one unit of work: what it settles, what it publishes, who waits from then on, and which instances end.

Many steps commit together. Each has a fence of its own: the claims of the references it settles, and the number of the
steps that its instance has done. A step whose fence does not hold drops out alone, and nothing of it is done.

Everybody locks in the same order: instances, claims, subscriptions, each in the order of their numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import AdaptersMap

from crossdock.errors import UsageError
from crossdock.message.message import Message
from crossdock.message.publication import Awaited, Publication
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.instance_change import InstanceChange, list_given, lock_instances, write_changes
from crossdock.messagebox.publish import publish_within, sought_by
from crossdock.messagebox.settle import Settlement, settle
from crossdock.messagebox.statement import array_text, quick, statement
from crossdock.subscription.router import Router


@dataclass(frozen=True, slots=True)
class Step:
    """What a host instance does at once. The references in `settles` are its claims, all of them at this host.

    Who is in `subscribes` waits from the commit on. The running instances in `ends` are given nothing any more; what
    they were given and did not take is suspended as discarded. In a step of an orchestration `change` says what becomes
    of its instance.
    """

    host_id: int
    host_instance: int
    settles: Sequence[Settlement] = ()
    publishes: Sequence[Message] = ()
    subscribes: Sequence[Awaited] = ()
    ends: Sequence[UUID] = ()
    change: InstanceChange | None = None


@dataclass(frozen=True, slots=True)
class Stepped:
    """Whether a step was done, and the messages that its ended instances were given and did not take."""

    done: bool
    discarded: Sequence[UUID] = ()


# What an author may set on a connection for its own statements.
_ADAPTERS = "_adapters"
_OURS = ("row_factory", "cursor_factory", "server_cursor_factory", "prepare_threshold", _ADAPTERS)


@dataclass(slots=True)
class Work:
    """What an author does in a step. `undone`: it failed, and nothing of it is kept."""

    connection: psycopg.Connection
    undone: bool = False


class OpenedStep:
    """A step whose transaction is open. `step` may be replaced until the end, except for which claims it settles."""

    def __init__(self, connection: psycopg.Connection, step: Step) -> None:
        self._connection = connection
        self._transaction = _transaction(connection)
        self._settled = _sequences(step)
        self.step = step

    def execute(self, query: str, parameters: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement in the transaction of the step."""
        return self._connection.execute(query.encode(), parameters)

    @contextmanager
    def work(self) -> Iterator[Work]:
        """Work of others in the transaction, which is undone where it says so.

        They get the connection under a role that has no rights on our schema, where there is one. That guards against
        mistakes. It is no boundary: whoever has the connection can leave the role. What they set on the connection is
        ours again afterwards, and their session is discarded after the step.
        """
        work = Work(self._connection)
        adapters = self._connection.adapters
        ours = {name: getattr(self._connection, name) for name in _OURS}
        setattr(self._connection, _ADAPTERS, AdaptersMap(adapters))  # what is registered there is not in ours
        with self._connection.transaction() as savepoint:
            role = self._connection.execute(statement("read_role")).fetchone()
            self._connection.execute(statement("become_author"), {})
            yield work
            if self._connection.closed and not self._connection.broken:
                raise UsageError("The code in a step closed its connection. Leave that to the step.")
            for name, value in ours.items():
                setattr(self._connection, name, value)
            if work.undone:
                raise psycopg.Rollback(savepoint)
            self._connection.execute(statement("become_ourselves"), {"role": role[0] if role else "none"})

    def check(self) -> None:
        """The transaction is the one that began, and the step settles what was locked."""
        if _transaction(self._connection) != self._transaction:
            raise UsageError("The code in a step ended its transaction. Leave COMMIT and ROLLBACK to the step.")
        if _sequences(self.step) != self._settled:
            raise UsageError("An opened step cannot settle other references than those it was opened with.")


def _sequences(step: Step) -> list[int]:
    return [outcome.reference.sequence for outcome in step.settles]


def lock_fences(connection: psycopg.Connection, steps: Sequence[Step]) -> list[bool]:
    """Which steps may be done: nobody else steps their instances, or settles their claims, until the commit."""
    locked = lock_instances(connection, [(step.host_id, step.change) for step in steps if step.change is not None])
    going = []
    for step in steps:
        going.append(step.change is None or not step.change.stored or step.change.id in locked)
        if step.change is not None:
            locked.discard(step.change.id)  # given twice in one call, it is done once
    claimed = iter(_lock_claims(connection, [step for step, mine in zip(steps, going, strict=True) if mine]))
    return [mine and next(claimed) for mine in going]


def _lock_claims(connection: psycopg.Connection, steps: Sequence[Step]) -> list[bool]:
    """Which steps have all their claims."""
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
) -> tuple[list[Stepped], frozenset[int]]:
    """Do steps whose fences are locked, in the caller's transaction, in which subscriptions are held still.

    Gives what came of each, and the hosts that have new references.
    """
    going = _lock_subscriptions(connection, router, steps)
    settled: defaultdict[int, list[Settlement]] = defaultdict(list)
    for step in going:
        settled[step.host_instance] += step.settles
    for host_instance, outcomes in settled.items():
        settle(connection, host_instance, outcomes)
    _close(connection, going)
    publications = [_publication(step) for step in going if step.publishes]
    waiting = [each for step in going for each in step.subscribes]
    hosts: frozenset[int] = frozenset()
    if publications or waiting:
        hosts = publish_within(connection, router, publications, waiting, by_copy=by_copy).hosts
    changes: defaultdict[int, list[InstanceChange]] = defaultdict(list)
    for step in going:
        if step.change is not None:
            changes[step.host_id].append(step.change)
    for host, mine in changes.items():
        if write_changes(connection, host, mine):
            hosts |= {host}
    discarded = iter(_discarded(connection, going))
    done = set(map(id, going))
    return [Stepped(True, next(discarded)) if id(step) in done else Stepped(False) for step in steps], hosts


def _publication(step: Step) -> Publication:
    settled = tuple(_sequences(step))
    if step.change is None:
        return Publication(step.host_id, step.publishes, settled=settled)
    service, instance = step.change.service_id, step.change.id
    return Publication(step.host_id, step.publishes, service_id=service, instance=instance, settled=settled)


def _lock_subscriptions(connection: psycopg.Connection, router: Router, steps: Sequence[Step]) -> Sequence[Step]:
    """Those of instances that end, and where a timer fired: a message that is there goes first, so its step drops out.

    In one pass: two steps that end themselves and publish to each other would wait for each other otherwise.
    """
    timed = [step for step in steps if step.change is not None and step.change.timed]
    ending = [instance for step in steps for instance in _ending(step)]
    if not ending and not timed:
        return steps
    publications = [Publication(step.host_id, step.publishes) for step in steps if step.publishes]
    ours = ending + [step.change.id for step in timed if step.change is not None]
    parameters = {"hash": list(sought_by(router, publications)), "instance": list(set(ours))}
    connection.execute(statement("lock_subscriptions"), quick(parameters))
    given: set[UUID] = set()
    for host in {step.host_id for step in timed}:
        given |= list_given(connection, host, [step for step in timed if step.host_id == host])
    return [step for step in steps if step.change is None or not step.change.timed or step.change.id not in given]


def _ending(step: Step) -> Sequence[UUID]:
    """The instances that a step ends, orchestrations too. Nobody knows one that ends in its first step."""
    change = step.change
    return [*step.ends, change.id] if change is not None and change.ends and change.stored else step.ends


def _close(connection: psycopg.Connection, steps: Sequence[Step]) -> None:
    """Nothing that is published from now on finds what ends here. A convoy that has a successor passes it on later."""
    ended = [
        instance
        for step in steps
        for instance in _ending(step)
        if step.change is None or step.change.id != instance or step.change.successor is None
    ]
    if ended:
        at = sorted({step.host_id for step in steps})
        connection.execute(statement("end_instance"), {"instance": ended, "at": at})
    for host in {step.host_id for step in steps if step.change is not None and step.change.ends and step.change.stored}:
        connection.execute(host_statement("close_instances", host), {"host": host, "instance": ended})


def _discarded(connection: psycopg.Connection, steps: Sequence[Step]) -> list[Sequence[UUID]]:
    """After the subscriptions are gone: what a publisher that held them gave meanwhile is seen."""
    found: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for host in {step.host_id for step in steps if _ending(step)}:
        ended = [instance for step in steps if step.host_id == host for instance in _ending(step)]
        row = connection.execute(host_statement("discard", host), {"instance": ended}).fetchone()
        assert row is not None
        for message, instance in zip(row[0] or (), row[1] or (), strict=True):
            found[instance].append(message)
    return [[message for instance in _ending(step) for message in found[instance]] for step in steps]


def _transaction(connection: psycopg.Connection) -> int:
    row = connection.execute(statement("read_transaction")).fetchone()
    assert row is not None
    return int(row[0])
