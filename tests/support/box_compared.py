"""A MessageBox next to its model: makes what the rules of `test_model.py` need, and compares the two."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TypeVar
from unittest.mock import ANY
from uuid import UUID

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

import settling
from box import PROPERTIES, bits_of, ids, listed
from box_drawn import HOSTS, PORTS, Document, content_of, messages_of
from box_model import Key, Model, Reference, Service, by_sequence
from box_tables import Row, Tables, empty, left_over
from crossdock.maintenance.references import CleanReferences
from crossdock.message.message import Message, message_id
from crossdock.message.property import PropertyRegistry
from crossdock.message.publication import Express, FromSource, InPlaceOf, Publication
from crossdock.messagebox import rows
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.messagebox.lifeline import INSTANCE_LOCK, Lifeline
from crossdock.messagebox.rows import Published
from crossdock.subscription.text import parse_filter
from server_clock import stop_clock
from walk import until

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
_HELD = (
    "SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database AND datname = current_database()"
    " WHERE locktype = 'advisory' AND classid = %s AND objid = %s"
)

Thing = TypeVar("Thing")


@dataclass(slots=True)
class OpenTransaction:
    """Work that is done and not committed: what the commit makes true, and the references it has locked."""

    connection: psycopg.Connection
    committed: Callable[[], None]
    locked: Sequence[Reference] = ()
    publication: Publication | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """New references in the order of their messages; what was seen before they were made has a lower number."""

    references: Sequence[Reference]
    above: int


class ComparedBox(RuleBasedStateMachine):
    """Without rules. One database serves all examples: it is emptied before each."""

    def __init__(self, database: str) -> None:
        super().__init__()
        self.database = database
        self.looking = psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock")
        empty(self.looking)
        self.agents = [Agent(database), Agent(database)]
        self.clock = BEGIN
        self.ports, self.labels = dict(PORTS), dict(HOSTS)
        self.agents[0].subscriptions.deploy(self.deployment())
        self.hosts = self.agents[0].configuration.hosts()
        self.location, self.receiving = ids(self.agents[0])
        self.services: dict[str, int] = dict(self.looking.execute("SELECT name, id FROM service").fetchall())
        services = {name: Service(self.services[name], port) for name, port in PORTS.items()}
        self.model = Model(labels=dict(HOSTS), services=services)
        self.lifelines: dict[int, Lifeline] = {}
        self.homes: dict[int, str] = {}
        self.published: list[Publication] = []
        self.tally = (0, 0)
        self.open: list[OpenTransaction] = []
        self.numbers = count()
        self.seen: dict[int, Key] = {}
        self.arrivals: list[Arrival] = []
        for host in ("Default", "Default", "Sending"):
            self.begin(host)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.finish()
        finally:
            for transaction in self.open:
                transaction.connection.close()
            for lifeline in self.lifelines.values():
                lifeline.end()
            for agent in self.agents:
                agent.close()
            self.looking.close()

    @property
    def clock(self) -> datetime:
        """The time in the MessageBox: it stands still until it is set."""
        return self._time

    @clock.setter
    def clock(self, at: datetime) -> None:
        stop_clock(self.looking, at)
        self._time = at

    # Host instances

    def begin(self, host: str) -> int:
        """A new host instance."""
        lifeline = self.agents[0].queues.lifeline(self.hosts[host])
        lifeline.hold()
        instance = lifeline.instance
        self.lifelines[instance] = lifeline
        self.homes[instance] = self.model.registered[instance] = host
        self.model.alive.add(instance)
        return instance

    def end(self, instance: int) -> None:
        """Like a crash: nobody is told. The server takes a moment to notice."""
        self.lifelines[instance].end()
        self.model.alive.remove(instance)
        until(lambda: self.looking.execute(_HELD, [INSTANCE_LOCK, instance]).fetchone() is None, 10)

    def claims(self) -> dict[int, list[Reference]]:
        """What can be settled one by one, by who holds it."""
        claims: defaultdict[int, list[Reference]] = defaultdict(list)
        locked = self.locked()
        for reference in self.model.references.values():
            if reference.holder is not None and reference.subqueue <= 0 and reference.key not in locked:
                claims[reference.holder].append(reference)
        return dict(claims)

    def subqueues(self) -> dict[tuple[int, int], list[Reference]]:
        """What is claimed of ordered subqueues, in order, by the subqueue and who holds it."""
        subqueues: defaultdict[tuple[int, int], list[Reference]] = defaultdict(list)
        for reference in sorted(self.model.all_at("claimed"), key=by_sequence):
            if reference.holder is not None and reference.subqueue > 0:
                subqueues[reference.subqueue, reference.holder].append(reference)
        return dict(subqueues)

    # Drawing

    def one_of(self, data: st.DataObject, things: Sequence[Thing], what: str) -> Thing:
        """By its number: short to print, and the same in every run."""
        return things[data.draw(st.integers(0, len(things) - 1), what)]

    def process(self, data: st.DataObject) -> Agent:
        return self.one_of(data, self.agents, "process")

    def an_instance(self, data: st.DataObject) -> tuple[int, str]:
        """With its host; now and then one that is taken for dead and does not know it."""
        dead = [each for each in self.homes if each not in self.model.alive]
        instance = self.one_of(data, [*sorted(self.model.alive) * 2, *dead[-2:]], "instance")
        return instance, self.homes[instance]

    def some_suspended(self, data: st.DataObject) -> list[UUID]:
        found = list({each.message: None for each in self.model.suspended()})
        numbers = st.lists(st.integers(0, len(found) - 1), min_size=1, unique=True)
        return [found[number] for number in data.draw(numbers, "messages")]

    # Transactions that are open

    def connect(self) -> psycopg.Connection:
        """In a transaction that stays open whatever is done in it."""
        connection = psycopg.connect(self.database, options="-csearch_path=crossdock")
        connection.execute("SELECT")
        return connection

    @property
    def publishing(self) -> bool:
        """Whoever changes subscriptions now would wait for the publisher."""
        return any(each.publication is not None for each in self.open)

    def locked(self) -> Collection[Key]:
        return {reference.key for transaction in self.open for reference in transaction.locked}

    def commit(self, transaction: OpenTransaction) -> None:
        self.open.remove(transaction)
        transaction.connection.commit()
        transaction.committed()
        transaction.connection.close()

    def roll_back(self, transaction: OpenTransaction) -> None:
        """A source that was not published after all can be published by somebody else."""
        self.open.remove(transaction)
        transaction.connection.close()
        publication, above = transaction.publication, self.latest()
        if publication is not None and isinstance(publication.cause, FromSource):
            published = self.agents[1].publish([publication])
            self.arrives(publication, self.expected(publication), published, above)

    # Deploying and publishing

    def deployment(self) -> Deployment:
        registry = PropertyRegistry(PROPERTIES)
        deployed = [
            DeployedPort(name, port.host, port.priority, parse_filter(registry, port.filter), {}, port.ordered, port.two_way)
            for name, port in self.ports.items()
        ]  # fmt: skip
        labels = {host: sorted(mine) for host, mine in self.labels.items()}
        return Deployment("orders", PROPERTIES, [DeployedLocation("orders.in", "Default", {})], deployed, labels)

    def source(self, content: Sequence[Document], failed: int) -> Publication:
        """What a new source in the ledger holds."""
        [sequence] = listed(self.agents[0], f"source {next(self.numbers)}")
        bits = bits_of(self.agents[0], sequence)
        names = (message_id(bits, sequence, position) for position in count())
        messages, failures = messages_of(content, failed, lambda: next(names), self.numbers)
        return Publication(self.receiving, messages, failures, FromSource(sequence, self.location, bits))

    def express(
        self, agent: Agent, host: str, content: Sequence[Document], failed: int, replaces: tuple[int, int] | None = None
    ) -> Publication:
        """What running code publishes."""
        messages, failures = messages_of(content, failed, agent.message_id, self.numbers)
        cause = Express() if replaces is None else InPlaceOf(*replaces, self.location)
        return Publication(self.hosts[host], messages, failures, cause)

    def expected(self, publication: Publication) -> tuple[Published, list[Reference]]:
        """What publishing it now comes to, and the references that are made."""
        host = next(name for name, number in self.hosts.items() if number == publication.host_id)
        given = [self.model.wanted(message) for message in publication.messages]
        routed = [reference for references in given for reference in references]
        lost = [_kept(m, host, "unrouted") for m, each in zip(publication.messages, given, strict=True) if not each]
        failed = [_kept(failure.message, host, "receive") for failure in publication.failures]
        queued = [reference.host for reference in routed if reference.place == "queued"]
        published = Published(
            publications=1,
            received=len(given) + len(failed),
            published=len(given) - len(lost),
            unrouted=len(lost),
            suspended=len(failed),
            references=len(queued),
            hosts=frozenset(self.hosts[each] for each in queued),
            refused={each.id: ANY for each in publication.messages if self.model.refused(each)},
        )
        return published, [*routed, *failed, *lost]

    def arrives(
        self, publication: Publication, expected: tuple[Published, list[Reference]], published: Published, above: int
    ) -> None:
        """It is published now: the answer is the expected one, and the model has the references."""
        answer, references = expected
        assert published == answer
        self.model.messages |= {each.id: each for each in publication.messages}
        self.model.messages |= {each.message.id: each.message for each in publication.failures}
        self.model.add(references)
        self.arrivals.append(Arrival(references, above))
        if isinstance(publication.cause, FromSource):
            self.tally = (self.tally[0] + answer.received, self.tally[1] + answer.published)
            self.published.append(publication)

    def latest(self) -> int:
        return max(self.seen, default=0)

    # Comparing

    def compare(self) -> None:
        tables = Tables.read(self.looking)
        found = {self._key(row): row for row in tables.references}
        assert len(found) == len(tables.references), "a reference is there twice"
        self._learn_numbers(found)
        assert found == {key: self._row(each, found.get(key)) for key, each in self.model.references.items()}
        assert tables.leases == self.model.leases
        living = {row for row in tables.references if row.subqueue > 0 and row.claimed_by in self.model.registered}
        assert {(row.subqueue, row.claimed_by) for row in living} <= self.model.leases.items()
        assert tables.messages.keys() <= self.model.messages.keys()
        tables.check()

    def compare_statistics(self) -> None:
        statistics = self.agents[1].statistics()
        places = Counter(each.kind or each.place for each in self.model.references.values())
        unrouted, queued, claimed, scheduled = (
            places.pop(each, 0) for each in ("unrouted", "queued", "claimed", "scheduled")
        )
        blocked = self.model.behind_a_failed_one(self.clock)
        assert (statistics.ready, statistics.waiting) == (queued - blocked, scheduled + blocked)
        assert statistics.claimed == claimed
        assert (statistics.suspended, statistics.unrouted) == (places.total(), unrouted)
        assert (statistics.received, statistics.published) == self.tally
        assert +Counter(statistics.ports) == self.model.delivered
        for host, number in self.hosts.items():
            assert self.agents[1].queues.idle(number) != self.model.busy(host, self.clock)

    def compare_claim(self, claimed: Sequence[rows.Reference], expected: Sequence[Reference]) -> None:
        """The same references in the same order, each with its message as it was published."""
        assert [(each.sequence, each.service_id, each.attempt, each.subqueue, each.instance) for each in claimed] == [
            (each.sequence, self.services[each.service or ""], each.attempt, each.subqueue, each.instance)
            for each in expected
        ]
        for each, reference in zip(claimed, expected, strict=True):
            assert content_of(each.message) == content_of(self.model.messages[reference.message])

    def _key(self, row: Row) -> Key:
        service = next((name for name, number in self.services.items() if number == row.service_id), None)
        return row.message_id, service, row.subscription_id if row.instance_id else None

    def _row(self, reference: Reference, found: Row | None) -> Row:
        """As it should be stored; which subscription a service had when it matched does not matter."""
        service = None if reference.service is None else self.services[reference.service]
        subscription = reference.subscription or (found.subscription_id if found else None)
        subqueue = 0 if reference.kind else reference.subqueue
        return Row(
            reference.place, self.hosts[reference.host], reference.sequence, reference.message, service, subscription,
            reference.instance, subqueue, reference.priority, reference.attempt, reference.kind, reference.holder,
            reference.due,
        )  # fmt: skip

    def _learn_numbers(self, found: dict[Key, Row]) -> None:
        """New references have new numbers, and for each service in the order of their messages."""
        for arrival in self.arrivals:
            for reference in arrival.references:
                assert reference.key in found, "a reference was not given"
                reference.sequence = found[reference.key].sequence
                assert reference.sequence > arrival.above
                assert self.seen.setdefault(reference.sequence, reference.key) == reference.key
            for service in PORTS:
                mine = [each.sequence for each in arrival.references if each.service == service and not each.instance]
                assert mine == sorted(mine)
        self.arrivals.clear()

    # The end

    def finish(self) -> None:
        """Nothing is left behind: everything can be delivered or ended, and then cleanup leaves nothing."""
        for transaction in list(self.open):
            self.commit(transaction)
        self.compare()
        self._clean_up()
        for instance in sorted(self.model.alive):
            self.end(instance)
        self.clock += timedelta(days=1)
        for host in [*HOSTS, *HOSTS]:  # a second time for what was due only after its host instance had been released
            assert self.agents[0].queues.release_dead(self.hosts[host]) == self.model.release_dead(host)
            assert self.agents[0].queues.requeue_due(self.hosts[host]) == self.model.requeue_due(host, self.clock)
        for host in HOSTS:
            self.agents[0].queues.unblock_subqueues(self.hosts[host])
            self.model.unblock_subqueues(host)
            self._deliver_everything(host)
        suspended = [each.message for each in self.model.suspended()]
        assert self.agents[0].suspended.terminate(suspended) == self.model.terminate(suspended)
        self.compare()
        self.compare_statistics()
        assert not self.model.references
        self._clean_up()
        assert left_over(self.looking) == {}

    def _clean_up(self) -> None:
        """After two rounds exactly what somebody refers to is left, and a third finds nothing to do."""
        for agent in self.agents:
            CleanReferences(agent).run_once()
        tables = Tables.read(self.looking)
        assert tables.messages.keys() == {each.message for each in self.model.references.values()}
        assert tables.parts.keys() == {part for parts in tables.messages.values() for part in parts}
        tables.check()
        assert CleanReferences(self.agents[0]).run_once() == 0

    def _deliver_everything(self, host: str) -> None:
        agent, number, instance = self.agents[1], self.hosts[host], self.begin(host)
        agent.queues._scan_starts[number].swept_at = 0.0
        claimed = agent.queues.dequeue(number, instance, limit=10_000)
        ready = self.model.ready(host, instance, None)
        self.compare_claim(claimed, ready)
        settling.complete(agent, number, instance, [each.sequence for each in claimed])
        self.model.complete(ready)
        while ready := self.model.claim_line(host, instance, 10_000, self.clock):
            claimed = agent.queues.dequeue_ordered(number, instance, limit=10_000)
            self.compare_claim(claimed, ready)
            outcome = settling.SubqueueOutcome([each.sequence for each in claimed])
            settling.settle_subqueue(agent, number, instance, ready[0].subqueue, outcome)
            self.model.complete(ready)
            self.model.leave_lease(ready[0].subqueue, instance, ())


def _kept(message: Message, host: str, kind: str) -> Reference:
    reference = Reference(message.id, host)
    reference.suspend(kind)
    return reference
