"""The queues of a host: claim references under lock, settle what came of them, bring back what is due or was left."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, TypeVar

import psycopg

from crossdock.errors import TransientError
from crossdock.messagebox.lifeline import INSTANCE_LOCK, Lifeline
from crossdock.messagebox.marks import CORRELATED, PRIORITIES, Marks
from crossdock.messagebox.messages import HELD_BYTES, Messages
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK, notify
from crossdock.messagebox.rows import LineOutcome, Reference, storable
from crossdock.messagebox.statement import array_text, host_statement, statement

logger = logging.getLogger(__name__)

_DEAD_GRACE = timedelta(seconds=5)
_BLOCK = ("blocked_until", "blocked_by", "reason")
_FOR_GOOD = datetime.max.replace(tzinfo=UTC)
# So few references are claimed together with their messages.
FEW = 20
_EVERYTHING = {"services": "{}", "only": False}
_Claims = Mapping[int, int]
_ANY: _Claims = {}
_Later = tuple[int, datetime, str]
_Outcome = TypeVar("_Outcome", _Later, tuple[int, str])


class Queues(Messages):
    """The agent's verbs for host instances."""

    def __init__(self, database: str, *, connections: int) -> None:
        super().__init__(database, connections=connections)
        self._marks: defaultdict[int, Marks] = defaultdict(Marks)
        self._marks_of: defaultdict[tuple[int, frozenset[int]], Marks] = defaultdict(Marks)

    def lifeline(self, host_id: int, class_: str = "messaging") -> Lifeline:
        """The life of a new host instance, of this service class."""
        return Lifeline(self._connect, host_id, class_)

    def _notify(self, hosts: Iterable[int]) -> None:
        """Wake the hosts, now that something is committed."""
        try:
            with self._connection() as connection:
                notify(connection, hosts)
        except TransientError as error:
            logger.debug("The hosts were not woken, and will look by themselves: %s", error)

    def dequeue(
        self,
        host_id: int,
        instance: int,
        *,
        limit: int,
        now: datetime,
        but: Collection[int] = (),
        only: Collection[int] = (),
        hurry: bool = False,
    ) -> list[Reference]:
        """Claim up to `limit` references, in order of priority, with their messages; first what instances wait for.

        All `but` those for these services, or `only` those: a caller that leaves some has to ask for them as well. In a
        `hurry` the marks are tended by the next claim that finds nothing.
        """
        marks = self._marks_of[host_id, frozenset(only)] if only else self._marks[host_id]
        which = {"services": array_text(only or but), "only": bool(only)}
        if marks.sweep_due(idle=False, hurry=hurry):
            self._sweep(host_id, marks, which)
        elif marks.settle_due(hurry=hurry):
            self._settle_marks(marks)
        rows = self._claim(host_id, instance, marks, limit, now, which)
        if not rows and any(marks.positions) and marks.sweep_due(idle=True):
            self._sweep(host_id, marks, which)
            rows = self._claim(host_id, instance, marks, limit, now, which)
        elif not rows and marks.settle_due():
            self._settle_marks(marks)
        return self._references(sorted(rows, key=lambda row: row[:2]))

    def dequeue_correlated(
        self, host_id: int, instance: int, *, limit: int, now: datetime, but: Collection[int] = ()
    ) -> list[Reference]:
        """The same, of what running instances wait for and nothing else."""
        which = {"services": array_text(but), "only": False}
        return self._references(
            self._claim(host_id, instance, self._marks[host_id], limit, now, which, priorities=(CORRELATED,))
        )

    def dequeue_responses(self, host_id: int, instance: int, *, limit: int, now: datetime) -> list[Reference]:
        """Claim what only this instance may take, and nothing else."""
        parameters = {
            "host": host_id,
            "instance": instance,
            "limit": limit,
            "now": now,
            **_starts([(-instance, CORRELATED, 0)]),
            **_EVERYTHING,
        }
        return self._references(self._claiming_rows("dequeue_few", {**parameters, "held": HELD_BYTES}))

    def _claim(
        self,
        host_id: int,
        instance: int,
        marks: Marks,
        limit: int,
        now: datetime,
        which: Mapping[str, Any],
        priorities: Sequence[int] = PRIORITIES,
    ) -> list[tuple[Any, ...]]:
        """From the line that is this instance's own and from the shared one, the most urgent first."""
        began, settled = marks.positions, marks.settled
        shared = zip(repeat(0), priorities, began)  # the marks are in the order of the priorities
        parameters = {
            "host": host_id,
            "instance": instance,
            "limit": limit,
            "now": now,
            **_starts([(-instance, CORRELATED, 0), *shared]),
            **which,
        }
        rows = self._claiming_rows("dequeue_few" if limit <= FEW else "dequeue", {**parameters, "held": HELD_BYTES})
        highest: dict[int, int] = {}
        for priority, sequence, _, _, _, _, line, *_ in rows:
            if line == 0:
                highest[priority] = max(sequence, highest.get(priority, 0))
        marks.claimed(began, highest, settled=settled)
        return rows

    def _sweep(self, host_id: int, marks: Marks, which: Mapping[str, Any]) -> None:
        """Find the lowest living references."""
        if not marks.sweeping.acquire(blocking=False):
            return  # another thread is at it
        try:
            self._settle_marks_alone(marks)
            parameters = {"host": host_id, "priority": list(PRIORITIES), **which}
            with self._claiming() as connection:
                resets, began = marks.resets, time.monotonic()
                row = connection.execute(host_statement("sweep", host_id), parameters, binary=True).fetchone()
                seconds = time.monotonic() - began
            assert row is not None
            marks.swept(row[0], seconds=seconds, resets=resets)
        finally:
            marks.sweeping.release()

    def _settle_marks(self, marks: Marks) -> None:
        """Find how far the marks may go."""
        if marks.sweeping.acquire(blocking=False):
            try:
                self._settle_marks_alone(marks)
            finally:
                marks.sweeping.release()

    def _settle_marks_alone(self, marks: Marks) -> None:
        with self._connection() as connection:
            # First the number, then a transaction: whoever drew a number so far is older than that transaction.
            drawn = connection.execute(
                "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM reference_sequence"
            ).fetchone()
            row = connection.execute(
                "SELECT pg_current_xact_id()::text::bigint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
            ).fetchone()
        assert drawn is not None
        assert row is not None
        marks.settle(drawn[0], row[0], row[1])

    def has_lines(self, host_id: int) -> bool:
        """Whether any service of the host is ordered, or was: only then there is something to take in order."""
        return bool(self._query(f"SELECT FROM ordered_line WHERE host_id = {host_id:d} LIMIT 1"))

    def dequeue_ordered(
        self,
        host_id: int,
        instance: int,
        *,
        limit: int | Callable[[int], int],
        now: datetime,
        but: Collection[int] = (),
    ) -> list[Reference]:
        """Take the lease of one ordered service and claim its first references; nothing if there is none to take.

        It is the one that was taken least recently, and `limit` may depend on it. They are to be delivered one after
        the other; `settle_line` gives the lease up. Its answer may be lost: not to take a line anew before it has come,
        the caller leaves out (`but`) the lines it has in hand.
        """
        with self._claiming() as connection, connection.transaction():
            parameters = {"host": host_id, "instance": instance, "now": now, "but": array_text(but)}
            row = connection.execute(host_statement("take_line", host_id), parameters).fetchone()
            if row is None:
                return []
            [line] = row
            parameters |= {"line": line, "limit": limit if isinstance(limit, int) else limit(line)}
            rows = connection.execute(host_statement("dequeue_line", host_id), parameters).fetchall()
            if not rows:  # the holder before took the last of them
                freed = {"service": line, "instance": instance, **dict.fromkeys(_BLOCK)}
                connection.execute(statement("leave_line"), freed)
        return self._references(sorted(rows, key=lambda row: row[1]))

    def settle_line(self, host_id: int, instance: int, service: int, outcome: LineOutcome, *, now: datetime) -> None:
        """Settle a claim on an ordered line and give up its lease, in one transaction."""
        back = [*outcome.untried, *(() if outcome.failed is None else (outcome.failed,))]
        with self._services_held_still() as connection:
            parameters: dict[str, Any] = {"host": host_id, "instance": instance, "now": now, "service": service}
            if outcome.claims:
                mine = _settlement(host_id, instance, list(outcome.claims), now, outcome.claims)
                row = connection.execute(host_statement("still_claimed", host_id), mine).fetchone()
                if row is None or not row[0]:  # done before, and the line may have been taken again since
                    return
            _settle(connection, "complete", parameters, outcome.completed)
            reasons = [storable(reason) for _, reason in outcome.suspended]
            refused = [sequence for sequence, _ in outcome.suspended]
            _settle(connection, "suspend", parameters | {"reason": reasons, "kind": "send"}, refused)
            _settle(connection, "give_back", parameters | {"tried": outcome.failed if outcome.tried else None}, back)
            reason = None if outcome.reason is None else storable(outcome.reason)
            until = _FOR_GOOD if outcome.stopped_by is not None else outcome.blocked_until
            parameters |= {"blocked_until": until, "blocked_by": outcome.stopped_by, "reason": reason}
            connection.execute(statement("leave_line"), parameters)

    def complete(self, host_id: int, instance: int, sequences: Sequence[int], *, now: datetime) -> None:
        if sequences:
            self._host_run("complete", _settlement(host_id, instance, sequences, now))

    def retry(
        self, host_id: int, instance: int, outcomes: Sequence[_Later], *, now: datetime, claims: _Claims = _ANY
    ) -> None:
        """Try these again later: (sequence, due, reason). Where `claims` says which claim is meant, only if it is."""
        self._put_aside(host_id, instance, outcomes, now, claims, tried=True)

    def postpone(
        self, host_id: int, instance: int, outcomes: Sequence[_Later], *, now: datetime, claims: _Claims = _ANY
    ) -> None:
        """The same for what has not been tried: it keeps the count of its attempts."""
        self._put_aside(host_id, instance, outcomes, now, claims, tried=False)

    def _put_aside(
        self, host_id: int, instance: int, outcomes: Sequence[_Later], now: datetime, claims: _Claims, *, tried: bool
    ) -> None:
        if outcomes:
            outcomes = _once_each(outcomes)
            parameters = _settlement(host_id, instance, [sequence for sequence, _, _ in outcomes], now, claims)
            parameters |= {
                "due_at": [due for _, due, _ in outcomes],
                "reason": [storable(why) for _, _, why in outcomes],
                "tried": tried,
            }
            with self._services_held_still() as connection:
                connection.execute(host_statement("retry", host_id), parameters)

    def suspend(
        self,
        host_id: int,
        instance: int,
        outcomes: Sequence[tuple[int, str]],
        *,
        now: datetime,
        kind: str = "send",
        claims: _Claims = _ANY,
    ) -> None:
        """Suspend these: (sequence, reason). `kind` is `response` for one that nobody waits for any more."""
        if outcomes:
            outcomes = _once_each(outcomes)
            parameters = _settlement(host_id, instance, [sequence for sequence, _ in outcomes], now, claims)
            parameters |= {"reason": [storable(why) for _, why in outcomes], "kind": kind}
            self._host_run("suspend", parameters)

    def idle(self, host_id: int, *, now: datetime) -> bool:
        """Whether nothing of the host is ready or claimed; what is blocked behind a failed one is not ready."""
        [(busy,)] = self._claiming_rows("busy", {"host": host_id, "now": now})
        return not busy

    def give_back(self, host_id: int, instance: int, sequences: Sequence[int], *, claims: _Claims = _ANY) -> None:
        """Put claimed references back as they were: they have not been tried."""
        if sequences:
            parameters = _settlement(host_id, instance, sequences, None, claims) | {"tried": None}
            with self._services_held_still() as connection:
                connection.execute(host_statement("give_back", host_id), parameters)
            self._lower_marks(host_id, min(sequences))

    def unblock_lines(self, host_id: int) -> None:
        """Let lines go on that a failure stopped, where somebody has dealt with it."""
        self._host_run("unblock_lines", {"host": host_id})

    def requeue_due(self, host_id: int, *, now: datetime) -> int:
        """Bring back the deliveries whose next attempt is due; gives how many."""
        return self._brought_back(host_id, "requeue_due", {"host": host_id, "now": now})

    def release_dead(self, host_id: int) -> int:
        """Free what host instances that no longer live had claimed; gives how many references."""
        parameters = {"host": host_id, "grace": _DEAD_GRACE, "lock": INSTANCE_LOCK}
        freed = self._brought_back(host_id, "release_dead", parameters)
        self._host_run("suspend_orphans", {"host": host_id})
        return freed

    def note_deliveries(self, instance: int, sequences: Sequence[int]) -> bool:
        """Of the references that dead instances had in hand this one delivers these now; False if it is dead itself."""
        parameters = {"instance": instance, "sequence": array_text(sequences)}
        with self._claiming() as connection:  # it has to outlive this process, not the server
            return connection.execute(statement("note_deliveries"), parameters).fetchone() is not None

    def any_dead(self, host_id: int) -> bool:
        """Whether a host instance died and nobody has freed what it had. Cheap, unlike `release_dead`."""
        [(dead,)] = self._rows("any_dead", {"host": host_id, "grace": _DEAD_GRACE, "lock": INSTANCE_LOCK})
        return bool(dead)

    def _brought_back(self, host_id: int, verb: str, parameters: dict[str, Any]) -> int:
        with self._services_held_still() as connection:
            row = connection.execute(host_statement(verb, host_id), parameters).fetchone()
        count, lowest = (0, None) if row is None else row
        if lowest is not None:
            self._lower_marks(host_id, lowest)
        return int(count)

    def _lower_marks(self, host_id: int, sequence: int) -> None:
        """Rows with numbers from this one on have come back."""
        for marks in self._all_marks(host_id):
            marks.lower(sequence)

    def _reset_marks(self, host_id: int) -> None:
        """Rows with old numbers have come back."""
        for marks in self._all_marks(host_id):
            marks.reset()

    def _all_marks(self, host_id: int) -> list[Marks]:
        return [self._marks[host_id], *(marks for (host, _), marks in list(self._marks_of.items()) if host == host_id)]

    @contextmanager
    def _services_held_still(self) -> Iterator[psycopg.Connection]:
        """A transaction in which no service moves to another host, so that what goes back to it finds it there."""
        with self._connection() as connection, connection.transaction():
            # A statement of its own: the next one sees where a deployment that we waited for has put the service.
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [SUBSCRIPTION_LOCK])
            yield connection

    def service_classes(self) -> dict[str, tuple[timedelta, int]]:
        """(polling interval, dequeue threads) of each service class."""
        rows = self._query("SELECT name, polling_interval, dequeue_threads FROM service_class")
        return {name: (interval, threads) for name, interval, threads in rows}


def _starts(starts: Iterable[tuple[int, int, int]]) -> dict[str, str]:
    """Where a claim begins to look: (line, priority, sequence), the most urgent first."""
    return dict(zip(("line", "priority", "mark"), map(array_text, zip(*starts, strict=True)), strict=True))


def _once_each(outcomes: Sequence[_Outcome]) -> list[_Outcome]:
    """The last of each sequence: a claim that a killed server forgot may have been made again, and both delivered."""
    return list({outcome[0]: outcome for outcome in outcomes}.values())


def _settlement(
    host_id: int, instance: int, sequences: Sequence[int], now: datetime | None, claims: _Claims = _ANY
) -> dict[str, Any]:
    claim = array_text(claims.get(sequence, 0) for sequence in sequences)
    return {"host": host_id, "instance": instance, "sequence": array_text(sequences), "claim": claim, "now": now}


def _settle(connection: psycopg.Connection, verb: str, parameters: dict[str, Any], sequences: Sequence[int]) -> None:
    if sequences:
        settled = _settlement(parameters["host"], parameters["instance"], sequences, parameters["now"])
        connection.execute(host_statement(verb, parameters["host"]), parameters | settled)
