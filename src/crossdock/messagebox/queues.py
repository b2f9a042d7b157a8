"""The queues of a host: claim references under lock, settle what came of them, bring back what is due or was left."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import repeat
from typing import Any
from uuid import UUID

import psycopg

from crossdock.errors import TransientError
from crossdock.messagebox.database import Database
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.lifeline import GIVEN_UP_CHANNEL, INSTANCE_LOCK, Lifeline
from crossdock.messagebox.messages import HELD_BYTES, Messages
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK
from crossdock.messagebox.publish import notify as notify_hosts
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.scan_start import CORRELATED, PRIORITIES, ScanStart
from crossdock.messagebox.settle import Complete, GiveBack, Settlement, completed, leave_lease, settle
from crossdock.messagebox.statement import array_text, statement

logger = logging.getLogger(__name__)

_DEAD_GRACE = timedelta(seconds=5)
_BLOCK = ("blocked_for", "blocked_by", "reason")
# Where the references of orchestrations wait, at each host.
ORCHESTRATIONS = -(2**31)
# So few references are claimed together with their messages.
FEW = 20
_EVERYTHING = {"services": "{}", "only": False}


class Queues:
    """`agent.queues`: the verbs for host instances."""

    def __init__(self, database: Database, messages: Messages) -> None:
        self._database = database
        self._messages = messages
        database.remember(self._forget)
        self._scan_starts: defaultdict[int, ScanStart] = defaultdict(ScanStart)
        self._scan_starts_of: defaultdict[tuple[int, frozenset[int]], ScanStart] = defaultdict(ScanStart)

    def _forget(self) -> None:
        self._scan_starts.clear()
        self._scan_starts_of.clear()

    def lifeline(self, host_id: int, class_: str = "messaging") -> Lifeline:
        """The life of a new host instance, of this service class."""
        return Lifeline(self._database.connect, host_id, class_)

    def notify(self, hosts: Iterable[int]) -> None:
        """Wake the hosts, now that something is committed."""
        try:
            with self._database.connection() as connection:
                notify_hosts(connection, hosts)
        except TransientError as error:
            logger.debug("The hosts were not woken, and will look by themselves: %s", error)

    def tell_given_up(self, waiting: Collection[str]) -> None:
        """Those who know themselves by these wait for a response that will not come.

        Whoever does not hear of it waits for its whole time.
        """
        try:
            with self._database.connection() as connection:
                for each in waiting:
                    told = {"channel": GIVEN_UP_CHANNEL, "who": each}
                    connection.execute(statement("tell"), told)
        except (TransientError, psycopg.Error) as error:
            logger.debug("Who waits for a response was not told that there is none: %s", error)

    def dequeue(
        self,
        host_id: int,
        host_instance: int,
        *,
        limit: int,
        excluding: Collection[int] = (),
        only: Collection[int] = (),
        hurry: bool = False,
        subqueue: int = 0,
    ) -> list[Reference]:
        """Claim up to `limit` references, in order of priority, with their messages; first what instances wait for.

        Without the services in `excluding`, or of those in `only`: a caller that leaves some has to ask for them as
        well. In a `hurry` the scan start is tended by the next claim that finds nothing. `subqueue` is where
        orchestrations have theirs.
        """
        apart = frozenset(only) if not subqueue else frozenset({subqueue})
        start = self._scan_starts_of[host_id, apart] if apart else self._scan_starts[host_id]
        which = {"services": array_text(only or excluding), "only": bool(only), "shared": subqueue}
        if start.sweep_due(idle=False, hurry=hurry):
            self._sweep(host_id, start, which)
        elif start.settle_due(hurry=hurry):
            self._settle_start(start)
        rows = self._claim(host_id, host_instance, start, limit, which)
        if not rows and any(start.positions) and start.sweep_due(idle=True):
            self._sweep(host_id, start, which)
            rows = self._claim(host_id, host_instance, start, limit, which)
        elif not rows and start.settle_due():
            self._settle_start(start)
        return self._messages.references(host_id, sorted(rows, key=lambda row: row[:2]))

    def dequeue_correlated(
        self, host_id: int, host_instance: int, *, limit: int, excluding: Collection[int] = ()
    ) -> list[Reference]:
        """The same, of what running instances wait for and nothing else."""
        which = {"services": array_text(excluding), "only": False}
        start = self._scan_starts[host_id]
        rows = self._claim(host_id, host_instance, start, limit, which, priorities=(CORRELATED,))
        return self._messages.references(host_id, rows)

    def dequeue_responses(self, host_id: int, host_instance: int, *, limit: int) -> list[Reference]:
        """Claim what only this instance may take, and nothing else."""
        parameters = {
            "host": host_id,
            "host_instance": host_instance,
            "limit": limit,
            **_starts([(-host_instance, CORRELATED, 0)]),
            **_EVERYTHING,
        }
        return self._messages.references(
            host_id, self._database.claiming_rows("dequeue_few", {**parameters, "held": HELD_BYTES})
        )

    def _claim(
        self,
        host_id: int,
        host_instance: int,
        start: ScanStart,
        limit: int,
        which: Mapping[str, Any],
        priorities: Sequence[int] = PRIORITIES,
    ) -> list[tuple[Any, ...]]:
        """From the subqueue that is this instance's own and from the shared one, the most urgent first."""
        began, settled = start.positions, start.settled
        shared = zip(repeat(which.get("shared", 0)), priorities, began)  # positions are in the order of the priorities
        parameters = {
            "host": host_id,
            "host_instance": host_instance,
            "limit": limit,
            **_starts([(-host_instance, CORRELATED, 0), *shared]),
            **which,
        }
        rows = self._database.claiming_rows(
            "dequeue_few" if limit <= FEW else "dequeue", {**parameters, "held": HELD_BYTES}
        )
        highest: dict[int, int] = {}
        for priority, sequence, _, _, _, _, subqueue, *_ in rows:
            if subqueue == which.get("shared", 0):
                highest[priority] = max(sequence, highest.get(priority, 0))
        start.claimed(began, highest, settled=settled)
        return rows

    def _sweep(self, host_id: int, start: ScanStart, which: Mapping[str, Any]) -> None:
        """Find the lowest living references."""
        if not start.sweeping.acquire(blocking=False):
            return  # another thread is at it
        try:
            self._settle_start_alone(start)
            parameters = {"host": host_id, "priority": list(PRIORITIES), "shared": 0, **which}
            with self._database.claiming() as connection:
                resets, began = start.resets, time.monotonic()
                row = connection.execute(host_statement("sweep", host_id), parameters, binary=True).fetchone()
                seconds = time.monotonic() - began
            assert row is not None
            start.swept(row[0], seconds=seconds, resets=resets)
        finally:
            start.sweeping.release()

    def _settle_start(self, start: ScanStart) -> None:
        """Find how far the scan start may go."""
        if start.sweeping.acquire(blocking=False):
            try:
                self._settle_start_alone(start)
            finally:
                start.sweeping.release()

    def _settle_start_alone(self, start: ScanStart) -> None:
        with self._database.connection() as connection:
            # First the number, then a transaction: whoever drew a number so far is older than that transaction.
            drawn = connection.execute(statement("read_last_drawn")).fetchone()
            row = connection.execute(statement("draw_transaction")).fetchone()
        assert drawn is not None
        assert row is not None
        start.settle(drawn[0], row[0], row[1])

    def has_subqueues(self, host_id: int) -> bool:
        """Whether any service of the host is ordered, or was: only then there is something to take in order."""
        return bool(self._database.rows("has_subqueues", {"host": host_id}))

    def dequeue_ordered(
        self,
        host_id: int,
        host_instance: int,
        *,
        limit: int | Callable[[int], int],
        excluding: Collection[int] = (),
    ) -> list[Reference]:
        """Take the lease of one ordered service and claim its first references; nothing if there is none to take.

        It is the one that was taken least recently, and `limit` may depend on it. They are to be delivered one after
        the other; `settle` gives the lease up. Its answer may be lost: not to take a subqueue anew before it has come,
        the caller leaves out (`excluding`) the subqueues it has in hand.
        """
        with self._database.claiming() as connection, connection.transaction():
            parameters = {"host": host_id, "host_instance": host_instance, "excluding": array_text(excluding)}
            row = connection.execute(host_statement("take_lease", host_id), parameters).fetchone()
            if row is None:
                return []
            [subqueue] = row
            parameters |= {"subqueue": subqueue, "limit": limit if isinstance(limit, int) else limit(subqueue)}
            rows = connection.execute(host_statement("dequeue_subqueue", host_id), parameters).fetchall()
            if not rows:  # the holder before took the last of them
                freed = {"service": subqueue, "host_instance": host_instance, "claim": 0, **dict.fromkeys(_BLOCK)}
                connection.execute(statement("leave_lease"), freed)
        return self._messages.references(host_id, sorted(rows, key=lambda row: row[1]))

    def settle(self, host_instance: int, outcomes: Sequence[Settlement], *, lease: Reference | None = None) -> None:
        """Record what came of claimed references, in one transaction; what this instance no longer has is left alone.

        `lease` is a reference of an ordered service: the lease under which it was claimed is given up. It is blocked as
        long as one of these has to wait, or until somebody has dealt with one that stops it.
        """
        if lease is None and all(isinstance(each, Complete) for each in outcomes):
            if outcomes:
                parameters = completed(host_instance, [each.reference for each in outcomes])
                self._database.host_run("complete", parameters)
            return
        with self.services_held_still() as connection:
            settle(connection, host_instance, outcomes)
            if lease is not None:
                leave_lease(connection, host_instance, lease, outcomes)
        self.look_again(outcomes)

    def look_again(self, outcomes: Iterable[Settlement]) -> None:
        """What was given back has a number that claims of this process may have passed."""
        if back := [each.reference for each in outcomes if isinstance(each, GiveBack)]:
            self._lower_scan_starts(back[0].host_id, min(each.sequence for each in back))

    def idle(self, host_id: int) -> bool:
        """Whether nothing of the host is ready or claimed; what is blocked behind a failed one is not ready."""
        [(busy,)] = self._database.claiming_rows("busy", {"host": host_id})
        return not busy

    def unblock_subqueues(self, host_id: int) -> None:
        """Let subqueues go on that a failure stopped, where somebody has dealt with it."""
        self._database.host_run("unblock_subqueues", {"host": host_id})

    def requeue_due(self, host_id: int) -> int:
        """Bring back the deliveries whose next attempt is due; gives how many."""
        return self._brought_back(host_id, "requeue_due", {"host": host_id})

    def release_dead(self, host_id: int) -> int:
        """Free what host instances that no longer live had claimed; gives how many references."""
        parameters = {"host": host_id, "grace": _DEAD_GRACE, "lock": INSTANCE_LOCK}
        freed = self._brought_back(host_id, "release_dead", parameters)
        self._database.host_run("suspend_orphans", {"host": host_id})
        return freed

    def note_deliveries(self, host_instance: int, sequences: Sequence[int]) -> bool:
        """Of the references that dead instances had in hand this one delivers these now; False if it is dead itself."""
        parameters = {"host_instance": host_instance, "sequence": array_text(sequences)}
        with self._database.claiming() as connection:  # it has to outlive this process, not the server
            return connection.execute(statement("note_deliveries"), parameters).fetchone() is not None

    def note_steps(
        self, host_id: int, host_instance: int, instances: Collection[UUID], *, alone: Collection[UUID] = ()
    ) -> bool:
        """This one has timers of these instances in hand, and tries some `alone`; False if it is dead itself."""
        noted = {"host": host_id, "host_instance": host_instance, "instance": list(instances), "alone": list(alone)}
        return bool(self._database.claiming_rows("note_steps", noted))

    def any_dead(self, host_id: int) -> bool:
        """Whether a host instance died and nobody has freed what it had. Cheap, unlike `release_dead`."""
        [(dead,)] = self._database.rows("any_dead", {"host": host_id, "grace": _DEAD_GRACE, "lock": INSTANCE_LOCK})
        return bool(dead)

    def _brought_back(self, host_id: int, verb: str, parameters: dict[str, Any]) -> int:
        with self.services_held_still() as connection:
            row = connection.execute(host_statement(verb, host_id), parameters).fetchone()
        count, lowest = (0, None) if row is None else row[:2]
        if lowest is not None:
            self._lower_scan_starts(host_id, lowest)
        return int(count)

    def _lower_scan_starts(self, host_id: int, sequence: int) -> None:
        """Rows with numbers from this one on have come back."""
        for start in self._all_scan_starts(host_id):
            start.lower(sequence)

    def reset_scan_starts(self, host_id: int) -> None:
        """Rows with old numbers have come back."""
        for start in self._all_scan_starts(host_id):
            start.reset()

    def _all_scan_starts(self, host_id: int) -> list[ScanStart]:
        return [
            self._scan_starts[host_id],
            *(start for (host, _), start in list(self._scan_starts_of.items()) if host == host_id),
        ]

    @contextmanager
    def services_held_still(self) -> Iterator[psycopg.Connection]:
        """A transaction in which no service moves to another host, so that what goes back to it finds it there."""
        with self._database.connection() as connection, connection.transaction():
            # A statement of its own: the next one sees where a deployment that we waited for has put the service.
            connection.execute(statement("lock_shared"), {"lock": SUBSCRIPTION_LOCK})
            yield connection

    def service_classes(self) -> dict[str, tuple[timedelta, int]]:
        """(polling interval, dequeue threads) of each service class."""
        rows = self._database.rows("list_service_classes")
        return {name: (interval, threads) for name, interval, threads in rows}


def _starts(starts: Iterable[tuple[int, int, int]]) -> dict[str, str]:
    """Where a claim begins to look: (subqueue, priority, sequence), the most urgent first."""
    return dict(zip(("subqueue", "priority", "mark"), map(array_text, zip(*starts, strict=True)), strict=True))
