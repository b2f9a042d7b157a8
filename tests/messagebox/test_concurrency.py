"""Everybody at once: publishers, dequeuers, changes of subscriptions and cleanup, and at the end every count is exact.

Every source is published by two threads. Dequeuers complete, retry, suspend, give back and die. Ports start, stop, come
and go, hosts are added, and instances run for a while. What must become of every message is known beforehand.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from threading import Event, Lock
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest

import settling
from box import AT_ONCE, PROPERTIES, a_publication, count, ids, source_of
from crossdock.errors import TransientError
from crossdock.maintenance.counts import FoldCounts
from crossdock.maintenance.dead_processes import ReleaseDead
from crossdock.maintenance.references import CleanReferences
from crossdock.message.property import PropertyRegistry, Value
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.rows import Reference
from crossdock.subscription.text import parse_filter
from interleave import inexact
from walk import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_grace")]

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
SECONDS = 600.0 if SOAK else 10.0
DEADLINE_SECONDS = 600.0 if SOAK else 120.0
SOURCES = 60_000 if SOAK else 1_500
PAIRS = 4
DEQUEUERS = 8
# What every source holds, and who must get which of it, whatever happens meanwhile.
MESSAGES: Sequence[Mapping[str, Value]] = (
    {"Region": "steady"},
    {"Region": "toggled", "Amount": Decimal(70)},
    {"Region": "coming and going"},
    {"Region": "ordered"},
    {"Region": "left"},
    {"Region": "right", "Amount": Decimal(70)},
)
FILTERS = {
    "Steady": "Region = 'steady' OR Region = 'left' OR Region = 'right'",
    "Large": "Amount >= 50",
    "Toggled": "Region = 'toggled'",
    "ComingAndGoing": "Region = 'coming and going'",
    "Ordered": "Region = 'ordered'",
}
WANTED = {"Steady": (0, 4, 5), "Large": (1, 5), "Toggled": (1,), "ComingAndGoing": (2,), "Ordered": (3,)}

Result = TypeVar("Result")
Delivered = tuple[str, bytes, UUID | None]


@pytest.fixture(autouse=True)
def deadlocks_end_soon(database: str) -> None:
    """Waiting a second for each would leave little time for anything else."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE \"{connection.info.dbname}\" SET deadlock_timeout = '20ms'")


def test_nothing_is_lost_doubled_or_left_behind_when_everybody_works_at_once(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(application(moving="Region = 'left'"))
    publications = listed_publications(agent)
    floor = Floor(agent, ids(agent)[1], names_of_services(database))

    with everybody(floor, publications) as publishers:
        everyone: list[Future[Any]] = [*publishers, *floor.workers]
        wait(everyone, SECONDS, FIRST_EXCEPTION)
        floor.closing.set()
        received = sum(publisher.result(DEADLINE_SECONDS) for publisher in publishers)
        until(lambda: drained(floor), DEADLINE_SECONDS)

    published = [publication for publication in publications if source_of(publication).sequence in floor.published]
    assert received == agent.statistics().received == len(published) * len(MESSAGES)
    assert floor.doubled == []
    assert_everybody_got_what_they_wanted(floor, published)
    for pair in range(PAIRS):
        assert_order_was_kept(
            floor, [each for each in publications[pair::PAIRS] if source_of(each).sequence in floor.published]
        )
    assert agent.statistics().ports == Counter(port for port, _, _ in floor.delivered.elements())
    assert_spool_is_empty(floor)


@dataclass(slots=True)
class Floor:
    """What the threads share: who has which reference in hand, and what was delivered how often, in which order."""

    agent: Agent
    host: int
    services: Mapping[int, str]
    closing: Event = field(default_factory=Event)
    done: Event = field(default_factory=Event)
    published: set[int] = field(default_factory=set)
    delivered: Counter[Delivered] = field(default_factory=Counter)
    in_order: list[bytes] = field(default_factory=list)
    doubled: list[object] = field(default_factory=list)
    workers: list[Future[None]] = field(default_factory=list)
    _in_hand: set[object] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def take(self, references: Iterable[Reference]) -> None:
        """From here until they are put down nobody else may be given these, nor anything of their line."""
        with self._lock:
            for thing in _things(references):
                if thing in self._in_hand:
                    self.doubled.append(thing)
                self._in_hand.add(thing)

    def put_down(self, references: Sequence[Reference], *, delivered: Sequence[Reference] = ()) -> None:
        """Before they are settled: right after it somebody else may have them."""
        with self._lock:
            self._in_hand.difference_update(_things(references))
            for reference in delivered:
                self.delivered[self.services[reference.service_id], reference.message.body, reference.instance] += 1
            self.in_order += [reference.message.body for reference in delivered if reference.subqueue > 0]


def _things(references: Iterable[Reference]) -> set[object]:
    references = list(references)
    lines = {("line", reference.subqueue) for reference in references if reference.subqueue > 0}
    return {reference.sequence for reference in references} | lines


@contextmanager
def everybody(floor: Floor, publications: Sequence[Publication]) -> Iterator[list[Future[int]]]:
    """All threads at work; gives the publishers. The others work until the floor is done, and must not have failed."""
    database = floor.agent.database
    with (
        Agent(database, connections=12) as publishing,
        Agent(database, connections=6) as one,
        Agent(database, connections=6) as other,
        Agent(database) as cleaning,
        ThreadPoolExecutor(2 * PAIRS + DEQUEUERS + 3) as pool,
    ):
        floor.workers += [pool.submit(Dequeuer(floor, (one, other)[n % 2], Random(n)).run) for n in range(DEQUEUERS)]
        floor.workers += [pool.submit(change_subscriptions, floor, Random(99)), pool.submit(clean, floor, cleaning)]
        floor.workers += [pool.submit(check, floor)]
        try:
            yield [pool.submit(publish, floor, publishing, publications[n % PAIRS :: PAIRS]) for n in range(2 * PAIRS)]
        finally:
            floor.closing.set()
            floor.done.set()
        for worker in floor.workers:
            worker.result(DEADLINE_SECONDS)


def patiently(act: Callable[[], Result]) -> Result:
    """PostgreSQL ends one of two who wait for each other; that one tries again. Nothing else may go wrong."""
    while True:
        try:
            return act()
        except TransientError as error:
            if not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                raise


def publish(floor: Floor, agent: Agent, publications: Sequence[Publication]) -> int:
    """One after the other, as another thread does with the same ones; gives how many messages this thread published."""
    received = 0
    for publication in publications:
        if floor.closing.is_set():
            break
        received += patiently(lambda: agent.publish([publication]).received)  # noqa: B023
        floor.published.add(source_of(publication).sequence)
        agent.ledger.forget([source_of(publication).sequence])
    return received


@dataclass(slots=True)
class Dequeuer:
    """A host instance that does not always succeed, until the floor closes; from then on it completes everything."""

    floor: Floor
    agent: Agent
    random: Random

    def run(self) -> None:
        life = self.agent.queues.lifeline(self.floor.host)
        while not self.floor.done.is_set():
            life.hold()
            claimed = self._shared(life)
            life.hold()
            claimed += self._line(life)
            if not claimed:
                self.floor.done.wait(0.01)
            if self._happens(0.03):
                life.end()
        life.end()

    def _happens(self, chance: float) -> bool:
        return not self.floor.closing.is_set() and self.random.random() < chance

    def _work(self) -> None:
        """Delivering takes a while, in which somebody else could be given the same."""
        self.floor.done.wait(self.random.uniform(0, 0.01))

    def _shared(self, life: Lifeline) -> int:
        host, instance, agent = self.floor.host, life.instance, self.agent
        references = patiently(lambda: agent.queues.dequeue(host, instance, limit=self.random.randint(1, 40)))
        self.floor.take(references)
        self._work()
        if self._happens(0.03):
            self.floor.put_down(references)
            life.end()
            return len(references)
        fates: defaultdict[str, list[Reference]] = defaultdict(list)
        for reference in references:
            fates[self._fate(reference)].append(reference)
        self.floor.put_down(references, delivered=fates["complete"])
        retried = [(each.sequence, AT_ONCE, "down") for each in fates["retry"]]
        suspended = [(each.sequence, "refused") for each in fates["suspend"]]
        patiently(lambda: settling.complete(agent, host, instance, sequences(fates["complete"])))
        patiently(lambda: settling.retry(agent, host, instance, retried))
        patiently(lambda: settling.suspend(agent, host, instance, suspended))
        patiently(lambda: settling.give_back(agent, host, instance, sequences(fates["give back"])))
        return len(references)

    def _fate(self, reference: Reference) -> str:
        if self._happens(0.8) or reference.attempt > 5 or self.floor.closing.is_set():
            return "complete"
        return self.random.choice(["retry", "suspend", "give back"])

    def _line(self, life: Lifeline) -> int:
        """In order, up to one that fails, or up to where the instance dies."""
        host, instance, agent = self.floor.host, life.instance, self.agent
        references = patiently(lambda: agent.queues.dequeue_ordered(host, instance, limit=10))
        if not references:
            return 0
        self.floor.take(references)
        self._work()
        if self._happens(0.1):
            self.floor.put_down(references)
            life.end()
            return len(references)
        end = self.random.randint(0, len(references)) if self._happens(0.5) else len(references)
        done, rest = references[:end], sequences(references[end:])
        failed = rest.pop(0) if rest and self._happens(0.5) else None
        blocked = None if failed is None else AT_ONCE
        outcome = settling.SubqueueOutcome(
            sequences(done), failed=failed, blocked_for=blocked, reason="down", untried=rest
        )
        self.floor.put_down(references, delivered=done)
        patiently(lambda: settling.settle_subqueue(agent, host, instance, references[0].service_id, outcome))
        return len(references)


def sequences(references: Iterable[Reference]) -> list[int]:
    return [reference.sequence for reference in references]


def change_subscriptions(floor: Floor, random: Random) -> None:
    """Start, stop, enlist, unenlist, deploy, run instances, and bring back what was suspended."""
    agent = floor.agent
    running: list[UUID] = []

    def begin_or_end_an_instance() -> None:
        if len(running) > 2:
            agent.subscriptions.end_instance(running.pop(0))
        else:
            running.append(uuid4())
            agent.subscriptions.subscribe_instance("Steady", running[-1], {"Region": "steady"})

    changes: list[Callable[[], object]] = [
        lambda: agent.subscriptions.stop("Toggled"),
        lambda: agent.subscriptions.start("Toggled"),
        lambda: agent.subscriptions.unenlist("ComingAndGoing"),
        lambda: (agent.subscriptions.unenlist("ComingAndGoing"), agent.subscriptions.enlist("ComingAndGoing")),
        lambda: agent.subscriptions.start("ComingAndGoing"),
        lambda: agent.subscriptions.deploy(application(moving=f"Region = '{random.choice(['left', 'right'])}'")),
        lambda: agent.subscriptions.deploy(Deployment("more", {}, [], [], {f"Host {random.randint(1, 4)}": ()})),
        begin_or_end_an_instance,
        begin_or_end_an_instance,
        lambda: bring_back(agent, limit=50),
    ]
    while not floor.closing.wait(0.1):
        patiently(random.choice(changes))
    for instance in running:
        patiently(lambda: agent.subscriptions.end_instance(instance))  # noqa: B023


def bring_back(agent: Agent, *, limit: int | None = None) -> None:
    """Route again what nobody wanted, deliver again what was refused."""
    suspended = agent.suspended.messages(limit=limit)
    patiently(lambda: agent.route_again([row.id for row in suspended if row.kind == "unrouted"]))
    patiently(lambda: agent.suspended.resume([row.id for row in suspended if row.kind == "send"]))


def clean(floor: Floor, agent: Agent) -> None:
    """Cleanup and upkeep, over and over."""
    while not floor.done.wait(0.05):
        for job in (CleanReferences(agent), FoldCounts(agent), ReleaseDead(agent)):
            patiently(job.run_once)
        patiently(lambda: agent.queues.requeue_due(floor.host))


def check(floor: Floor) -> None:
    """The counts are exact at every moment, not only at the end."""
    while not floor.done.wait(0.2):
        assert inexact(floor.agent.database) == []


def drained(floor: Floor) -> bool:
    """Whether everything is delivered, now that all ports are started; what came too late for an instance stays."""
    for worker in floor.workers:
        if worker.done():
            worker.result()
    for port in ("Toggled", "ComingAndGoing"):
        patiently(lambda: floor.agent.subscriptions.start(port))  # noqa: B023
    bring_back(floor.agent)
    now = floor.agent.statistics()
    left = {row.kind for row in floor.agent.suspended.messages()} - {"discarded"}
    return not (now.ready or now.claimed or now.waiting or left)


def assert_everybody_got_what_they_wanted(floor: Floor, publications: Sequence[Publication]) -> None:
    bodies = [[message.body for message in publication.messages] for publication in publications]
    wanted: Counter[Delivered] = Counter(
        (port, each[n], None) for port, places in WANTED.items() for n in places for each in bodies
    )
    lost, more = wanted - floor.delivered, floor.delivered - wanted
    assert lost == Counter()
    assert {port for port, _, instance in more if instance is None} <= {"Moving"}
    assert set(more.values()) <= {1}


def assert_order_was_kept(floor: Floor, publications: Sequence[Publication]) -> None:
    """Whoever published one of these had seen the one before committed."""
    ordered = [publication.messages[3].body for publication in publications]
    mine = set(ordered)
    assert [body for body in floor.in_order if body in mine] == ordered


def assert_spool_is_empty(floor: Floor) -> None:
    agent = floor.agent
    agent.suspended.terminate([row.id for row in agent.suspended.messages()])
    assert inexact(agent.database) == []
    for _ in range(3):
        CleanReferences(agent).run_once()
    tables = ["message", "part"]
    tables += [f"{kind}_ref_{table}" for kind in ("message", "part") for table in ("log_1", "log_2", "total")]
    assert {table: count(agent.database, table) for table in tables} == dict.fromkeys(tables, 0)


def application(*, moving: str) -> Deployment:
    registry = PropertyRegistry(PROPERTIES)
    ports = [
        DeployedPort(name, "Default", 5, parse_filter(registry, text), {}, ordered=name == "Ordered")
        for name, text in {**FILTERS, "Moving": moving}.items()
    ]
    return Deployment("orders", PROPERTIES, [DeployedLocation("orders.in", "Default", {})], ports)


def listed_publications(agent: Agent) -> list[Publication]:
    location, _ = ids(agent)
    agent.ledger.enter([(location, str(number).encode(), 10) for number in range(SOURCES)])
    return [a_publication(agent, item.sequence, *MESSAGES) for item in agent.ledger.read(0, 2**62)]


def names_of_services(database: str) -> dict[int, str]:
    with psycopg.connect(database) as connection:
        return dict(connection.execute("SELECT id, name FROM crossdock.service").fetchall())
