"""The Message Agent: the only door to the MessageBox. Publishing is here; the other verbs are in its parts.

Each verb runs the statement of its name. An agent is safe to share between threads. It reconnects by itself; what fails
because PostgreSQL is away is a TransientError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Self
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from crossdock.errors import EpochMovedError, StepLostError
from crossdock.message.message import MessageId, message_id, random_bits
from crossdock.message.publication import Publication
from crossdock.messagebox.access import Access
from crossdock.messagebox.audit import Act, Audit, record_acts
from crossdock.messagebox.box import Box
from crossdock.messagebox.caching import EpochWatch
from crossdock.messagebox.cleanup import Cleanup
from crossdock.messagebox.configuration import Configuration
from crossdock.messagebox.console import Console
from crossdock.messagebox.database import Actor, Database
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.instances import Instances
from crossdock.messagebox.ledger import Ledger
from crossdock.messagebox.load import load_filters, load_router
from crossdock.messagebox.messages import Messages
from crossdock.messagebox.outage import Outage
from crossdock.messagebox.paged import Paged
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK, notify, publish
from crossdock.messagebox.pulse import Pulse
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.reroute import reroute
from crossdock.messagebox.rows import Published, Reference, Statistics
from crossdock.messagebox.samples import Samples
from crossdock.messagebox.settle import Settlement
from crossdock.messagebox.statement import statement
from crossdock.messagebox.step import OpenedStep, Step, Stepped, carry_out, lock_fences
from crossdock.messagebox.subscriptions import Subscriptions
from crossdock.messagebox.suspended import Suspended
from crossdock.messagebox.track import Track
from crossdock.messagebox.troubles import Troubles
from crossdock.messagebox.whereabouts import Whereabouts
from crossdock.subscription.predicate import Filter
from crossdock.subscription.router import Epoch, Router
from crossdock.tracing import Tracer

_COUNTED = ("ready", "claimed", "waiting", "suspended", "unrouted", "instances")


class Agent:
    """Opens connections when they are needed. Close it, or use it in a `with`."""

    def __init__(
        self, database: str, *, connections: int = 8, index_folder: Path | None = None, actor: Actor | None = None
    ) -> None:
        """`index_folder`: where processes of one machine share the files of the subscription index.

        `actor`: for whom it acts, as the audit says.
        """
        self._index_folder = index_folder
        self._router: Router | None = None
        self._loading = Lock()
        self.troubles = Troubles()
        self.tracer = Tracer()
        self._make_parts(Database(database, connections=connections, actor=actor or Actor()))
        self._ids = _MessageIds(self._database)
        self._database.remember(self._forget)

    def _make_parts(self, database: Database) -> None:
        self._database = database
        self.box = Box(self._database)
        self.configuration = Configuration(self._database)
        self.messages = Messages(self._database)
        self.ledger = Ledger(self._database)
        self.queues = Queues(self._database, self.messages)
        self.subscriptions = Subscriptions(self._database)
        self.instances = Instances(self._database, self.messages, self.queues)
        self.suspended = Suspended(self._database, self.queues)
        self.cleanup = Cleanup(self._database)
        self.track = Track(self._database)
        self.whereabouts = Whereabouts(self._database)
        self.audit = Audit(self._database)
        self.access = Access(self._database)
        self.samples = Samples(self._database)
        self.paged = Paged(self._database)
        self.console = Console(self._database)

    def acting_for(self, actor: Actor) -> Agent:
        """The same agent, with the same connections, acting for somebody else. Close the first one only."""
        other = copy(self)
        other._make_parts(self._database.acting_for(actor))
        return other

    def _forget(self) -> None:
        self._router = None
        self._ids.forget()

    @property
    def database(self) -> str:
        """The connection string."""
        return self._database.address

    @property
    def outage(self) -> Outage:
        """Says once for the whole process that PostgreSQL is away, and that it is back."""
        return self._database.outage

    @property
    def times_elsewhere(self) -> int:
        """How often a connection led to another MessageBox, or back in time."""
        return self._database.times_elsewhere

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def epoch(self) -> Epoch:
        """Moves with every change of subscriptions or configuration."""
        number, token, position = self._database.row("read_epoch")
        self._database.history.reached(position)
        return Epoch(number, token)

    def location_epoch(self) -> UUID:
        """Changes with every change of receive locations."""
        token: UUID = self._database.value("read_location_token")
        return token

    def watch_epoch(self) -> EpochWatch:
        """Hears of a new epoch as soon as it is there."""
        interval, _ = self.queues.service_classes()["caching"]
        return EpochWatch(self._database.connect, interval.total_seconds())

    def pulse(self) -> Pulse:
        """Feels whether the MessageBox is there."""
        return Pulse(self._database)

    # Publishing

    def message_id(self) -> MessageId:
        """A new id, for a message that running code publishes."""
        return self._ids.next()

    def publish(self, publications: Sequence[Publication], *, location_epoch: UUID | None = None) -> Published:
        """Publish each publication exactly once; those published before are skipped.

        An all-or-nothing publication that cannot be routed whole is an UnroutedError, and then nothing is published. If
        the subscriptions change meanwhile they are matched again. If `location_epoch` is given and the receive
        locations have changed since, EpochMovedError asks the caller to read the publications again.
        """
        if not publications:
            return Published()
        try:
            router, by_copy = self._router or self.router(), self._database.may_copy
            with self._database.connection() as connection:
                published = publish(connection, router, publications, by_copy=by_copy, location_epoch=location_epoch)
        except EpochMovedError:
            published = self._publish_alone(publications, location_epoch)
        self.troubles.published(publications, published)
        return published

    def _publish_alone(self, publications: Sequence[Publication], location_epoch: UUID | None) -> Published:
        """The second attempt: subscriptions stay as they are until it is done, so that there is no third."""
        by_copy = self._database.may_copy
        with self._subscriptions_held_still() as connection:
            router = self._load(connection)
            return publish(connection, router, publications, by_copy=by_copy, location_epoch=location_epoch)

    def publish_by_hand(self, publications: Sequence[Publication], act: Act) -> Published:
        """Publish for a person. In the same transaction the act is recorded with the counts, if anything is published.

        Nobody changes subscriptions meanwhile.
        """
        self._database.refuse_limited("publish")
        by_copy = self._database.may_copy
        with self._subscriptions_held_still() as connection:
            router = self._load(connection)
            with connection.transaction():
                published = publish(connection, router, publications, by_copy=by_copy)
                if published.publications:
                    counts = {name: getattr(published, name) for name in ("published", "unrouted", "suspended")}
                    record_acts(connection, [replace(act, after={**(act.after or {}), **counts})])
        return published

    def route_again(self, ids: Sequence[UUID]) -> dict[UUID, bool]:
        """Route unrouted and discarded messages again; for each of these, whether somebody wants it now."""
        self._database.refuse_limited("publish")
        with self._subscriptions_held_still() as connection:
            routed, hosts = reroute(connection, self._load(connection), ids, self.messages.on)
        self.queues.notify(hosts)
        return routed

    @contextmanager
    def _subscriptions_held_still(self) -> Iterator[psycopg.Connection]:
        """Nobody changes subscriptions meanwhile; the transactions are up to the caller."""
        with self._database.connection() as connection:
            connection.execute(statement("hold_lock_shared"), {"lock": SUBSCRIPTION_LOCK})
            try:
                yield connection
            finally:
                # If the session is gone, so is the lock; what was committed must not look as if it had failed.
                with suppress(psycopg.Error):
                    connection.execute(statement("let_go_shared"), {"lock": SUBSCRIPTION_LOCK})

    def router(self) -> Router:
        """The router of the current epoch, kept until the epoch moves."""
        if self._router is None or self._router.epoch != self.epoch():
            with self._database.connection() as connection:
                return self._load(connection)
        return self._router

    def _load(self, connection: psycopg.Connection) -> Router:
        with self._loading:
            self._router = load_router(connection, self._router, self._index_folder)
            return self._router

    def filters(self) -> dict[int, Filter]:
        """The filters of all subscriptions, as objects."""
        with self._database.connection() as connection:
            return load_filters(connection)

    # Settling

    def settle(self, host_instance: int, outcomes: Sequence[Settlement], *, lease: Reference | None = None) -> None:
        """Record what came of claimed references, in one transaction; what this instance no longer has is left alone.

        `lease` is a reference of an ordered service: the lease under which it was claimed is given up as well.
        """
        self.queues.settle(host_instance, outcomes, lease=lease)
        self.troubles.settled(outcomes)

    # Steps

    def step(self, steps: Sequence[Step]) -> list[Stepped]:
        """Do each step whose fence holds, all in one transaction; the others are not done."""
        self._correlate(steps)
        by_copy = self._database.may_copy
        with self._database.connection() as connection:
            with connection.transaction():
                held = lock_fences(connection, steps)
                going = [step for step, mine in zip(steps, held, strict=True) if mine]
                done, hosts = self._carry_out(connection, going, by_copy=by_copy)
            notify(connection, hosts)
        for step in going:
            self.queues.look_again(step.settles)
        self.troubles.stepped(going, done)
        each = iter(done)
        return [next(each) if mine else Stepped(False) for mine in held]

    @contextmanager
    def open_step(self, step: Step) -> Iterator[OpenedStep]:
        """Run code in the transaction of a step: rolled back if it raises. StepLostError if the claims are not ours."""
        by_copy = self._database.may_copy
        with self._database.lent() as connection:
            with connection.transaction():
                if not all(lock_fences(connection, [step])):
                    raise StepLostError("Somebody else has what this step settles, or has settled it: it is not done.")
                opened = OpenedStep(connection, step)
                yield opened
                opened.check()
                self._correlate([opened.step])
                [done], hosts = self._carry_out(connection, [opened.step], by_copy=by_copy)
                if not done.done:
                    raise StepLostError("A message for this instance goes first: the step is not done.")
            notify(connection, hosts)
        self.queues.look_again(step.settles)
        self.troubles.stepped([opened.step], [done])

    def _carry_out(
        self, connection: psycopg.Connection, steps: Sequence[Step], *, by_copy: bool
    ) -> tuple[list[Stepped], frozenset[int]]:
        """From here to the commit nobody changes subscriptions, and they are matched as they are now."""
        connection.execute(statement("lock_shared"), {"lock": SUBSCRIPTION_LOCK})
        row = connection.execute(statement("read_epoch")).fetchone()
        router = self._router
        if router is None or row is None or router.epoch.token != row[1]:
            with closing(self._database.connect()) as another:
                router = self._load(another)
        return carry_out(connection, router, steps, by_copy=by_copy)

    def _correlate(self, steps: Sequence[Step]) -> None:
        """Make known by what the steps' instances wait, where that is new."""
        wanted = {tuple(sorted(each.values)) for step in steps for each in step.subscribes if each.name is None}
        if wanted:
            router = self._router or self.router()
            for properties in wanted:
                if router.correlation(properties) is None:
                    self.subscriptions.correlate(properties)

    # Questions

    def statistics(self) -> Statistics:
        """What is here now, and what has gone through since the MessageBox was created."""
        with self._database.connection() as connection, connection.cursor(row_factory=class_row(Statistics)) as cursor:
            statistics = cursor.execute(statement("statistics")).fetchone()
            ports = connection.execute(statement("delivered")).fetchall()
        assert statistics is not None
        return replace(statistics, ports={name: int(count) for name, count in ports})

    def host_statistics(self, hosts: Iterable[int]) -> Statistics:
        """The same for these hosts, as far as their roles may ask: nothing about receiving."""
        parts = [self._of_host(host_id) for host_id in hosts]
        counts = {name: sum(getattr(each, name) for each in parts) for name in _COUNTED}
        return Statistics(**counts, ports={name: count for each in parts for name, count in each.ports.items()})

    def _of_host(self, host_id: int) -> Statistics:
        with self._database.connection() as connection:
            query, parameters = host_statement("host_statistics", host_id), {"host": host_id}
            with connection.cursor(row_factory=class_row(Statistics)) as cursor:
                statistics = cursor.execute(query, parameters).fetchone()
            ports = connection.execute(statement("list_delivered"), parameters).fetchall()
        assert statistics is not None
        return replace(statistics, ports=dict(ports))


class _MessageIds:
    """Ids of this process: one number from the ledger's sequence, positions counted here, and random bits for each.

    Nobody who has seen an id can tell the next one, and take it before us.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._number: int | None = None
        self._position = 0

    def next(self) -> MessageId:
        with self._lock:
            if (number := self._number) is None:
                [(drawn, _)] = self._database.rows("draw_number", {})
                self._number = number = int(drawn)
            self._position += 1
            return message_id(random_bits(), number, self._position)

    def forget(self) -> None:
        """Draw anew. Without the lock, which whoever draws holds while it connects."""
        self._number = None
