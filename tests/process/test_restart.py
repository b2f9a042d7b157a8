"""kill -9 of publishers, host instances, cleanup and PostgreSQL itself, dozens of times: nothing is lost, doubled or left.

Real processes work on one PostgreSQL. In every round something is killed at a chosen moment: in the middle of a
publication, of a claim or of cleanup. What is killed is started again; what is not, has to find PostgreSQL again itself.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import psycopg
import pytest

import settling
from box import a_publication, count, deployment, ids, listed
from crossdock.errors import TransientError
from crossdock.maintenance import references
from crossdock.maintenance.references import CleanReferences
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.publication import Publication
from crossdock.messagebox import cleanup, queues
from crossdock.messagebox import publish as publishing
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.database import Database
from crossdock.messagebox.embedded import EmbeddedServer
from crossdock.messagebox.lifeline import INSTANCE_LOCK
from crossdock.messagebox.messages import MESSAGE_GONE, Messages
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.rows import Reference
from walk import stop_postgres, until
from worker_process import DELIVERED

pytestmark = pytest.mark.process

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
KILLS = 200 if SOAK else 21
SOURCES = 20
SURVIVORS = ("publish-0", "host-0", "clean-0")
OTHERS = ("publish-1", "host-1", "clean-1")
PORTS = {"First": "Region = 'NO'", "Second": "EXISTS(Region)", "InOrder": "Region >= 'A'"}
WORKER = Path(__file__).parents[1] / "support" / "worker_process.py"

MOMENTS = {
    "publishing": "SELECT FROM pg_locks WHERE relation = 'intake'::regclass AND mode = 'RowShareLock'",
    "claiming": f"SELECT FROM claimed JOIN pg_locks ON classid = {INSTANCE_LOCK} AND objid = claimed_by::oid",
    "cleaning": f"SELECT FROM pg_locks WHERE classid = {cleanup._CLEANUP_LOCK} AND objid = {references.NUMBER}",
}
TABLES = (
    "queue", "claimed", "scheduled", "suspended", "intake", "publication", "message", "part", "fragment",
    "message_ref_total", "part_ref_total", "message_ref_log_1", "message_ref_log_2", "part_ref_log_1", "part_ref_log_2",
)  # fmt: skip
MISCOUNTED = """
    SELECT kind, id, sum(counted), sum(found)
      FROM (SELECT 'message' AS kind, message_id AS id, living AS counted, 0 AS found FROM message_ref_total
            UNION ALL SELECT 'message', message_id, delta, 0 FROM message_ref_log_1
            UNION ALL SELECT 'message', message_id, delta, 0 FROM message_ref_log_2
            UNION ALL SELECT 'message', id, reference_count, 0 FROM message WHERE id NOT IN (SELECT message_id FROM message_ref_total)
            UNION ALL SELECT 'message', message_id, 0, 1 FROM queue
            UNION ALL SELECT 'message', message_id, 0, 1 FROM claimed
            UNION ALL SELECT 'message', message_id, 0, 1 FROM scheduled
            UNION ALL SELECT 'message', message_id, 0, 1 FROM suspended
            UNION ALL SELECT 'message', message_id, 0, 1 FROM held
            UNION ALL SELECT 'part', part_id, living, 0 FROM part_ref_total
            UNION ALL SELECT 'part', part_id, delta, 0 FROM part_ref_log_1
            UNION ALL SELECT 'part', part_id, delta, 0 FROM part_ref_log_2
            UNION ALL SELECT 'part', id, reference_count, 0 FROM part WHERE id NOT IN (SELECT part_id FROM part_ref_total)
            UNION ALL SELECT 'part', unnest(parts), 0, 1 FROM message) AS reference
     GROUP BY kind, id
    HAVING sum(counted) <> sum(found)
"""


class Delivery(NamedTuple):
    """A line of the file to which the hosts deliver."""

    message: str
    service: int
    source: int
    position: int


@dataclass
class Crew:
    """Worker processes on a PostgreSQL of their own; the log of each is the file of its name."""

    server: EmbeddedServer
    agent: Agent
    folder: Path
    sizes: list[int] = field(default_factory=list)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def list_sources(self, count: int) -> None:
        """New sources in the ledger, of one to five messages each."""
        location, _ = ids(self.agent)
        first = len(self.sizes)
        sizes = [1 + (first + n) % 5 for n in range(count)]
        listed = self.agent.ledger.enter([(location, f"{first + n}".encode(), size) for n, size in enumerate(sizes)])
        assert listed == count
        self.sizes += sizes

    def reconnected(self) -> bool:
        """The agent of the test itself meets a killed server too, and is told to try again."""
        try:
            self.agent.configuration.locations()
        except TransientError:
            return False
        return True

    def start(self, *names: str) -> None:
        for name in names:
            command = [sys.executable, str(WORKER), name.split("-")[0], self.server.database, str(self.folder)]
            with (self.folder / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, *names: str) -> None:
        for name in names:
            self.processes[name].kill()
        for name in names:
            self.processes.pop(name).wait()

    def end(self, *names: str) -> list[int]:
        """Ask them to finish; gives their exit codes."""
        for name in names:
            self.processes[name].terminate()
        return [self.processes.pop(name).wait(60) for name in names]

    def hit_postgres(self, how: signal.Signals) -> None:
        stop_postgres(self.server, how)
        self.server.acquire()
        until(self.reconnected, 30)

    def hit_backend(self) -> None:
        """One session dies, at best one that is at work: PostgreSQL throws out all others and recovers by itself."""
        [(pid,)] = self.rows(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            " ORDER BY state = 'idle', random() LIMIT 1"
        )
        os.kill(pid, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pid), 30)
        self.server.acquire()
        until(self.reconnected, 30)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return rows(self.server.database, query)

    def left(self) -> dict[str, int]:
        """How many rows there are in each table that must be empty at the end."""
        [counts] = self.rows("SELECT " + ", ".join(f"(SELECT count(*) FROM {table})" for table in TABLES))
        return {table: count for table, count in zip(TABLES, counts, strict=True) if count}

    def finish(self) -> None:
        """Wait until nothing is left."""
        with suppress(AssertionError):
            until(lambda: not self.left() or self.ended() != [], 60)
        assert (self.ended(), self.left()) == ([], {})

    def ended(self) -> list[str]:
        """Who is gone that nobody killed."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def delivered(self) -> list[Delivery]:
        lines = [line.split() for line in (self.folder / DELIVERED).read_text().splitlines()]
        return [Delivery(message, int(service), int(source), int(at)) for message, service, source, at in lines]

    def tracebacks(self) -> list[str]:
        """The logs in which something unforeseen was reported."""
        return [log.name for log in sorted(self.folder.glob("*.log")) if "Traceback" in log.read_text()]


@pytest.fixture
def crew(folder: Path) -> Iterator[Crew]:
    server = EmbeddedServer(folder)
    with Agent(server.acquire()) as agent:
        agent.box.create()
        plan = deployment(**PORTS)
        agent.subscriptions.deploy(
            replace(plan, ports=[replace(port, ordered=port.name == "InOrder") for port in plan.ports])
        )
        made = Crew(server, agent, folder)
        yield made
        made.kill(*made.processes)
    server.release()


Victim = Callable[[Crew], None]


def rows(database: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database, options="-csearch_path=crossdock", autocommit=True) as connection:
        return connection.execute(query).fetchall()


def others(*names: str) -> Victim:
    def kill(crew: Crew) -> None:
        crew.kill(*names)
        crew.start(*names)

    return kill


def everything(crew: Crew) -> None:
    crew.kill(*OTHERS)
    crew.hit_postgres(signal.SIGKILL)
    crew.start(*OTHERS)


VICTIMS: dict[str, Victim] = {
    "publisher": others("publish-1"),
    "host": others("host-1"),
    "cleanup": others("clean-1"),
    "all others": others(*OTHERS),
    "postgres": lambda crew: crew.hit_postgres(signal.SIGQUIT),
    "session": Crew.hit_backend,
    "everything": everything,
}


def test_killed_and_restarted_at_every_moment_everything_is_published_once_and_settled_once(crew: Crew) -> None:
    crew.list_sources(SOURCES)
    crew.start(*SURVIVORS, *OTHERS)
    missed = 0

    for moment, victim in plan(KILLS):
        crew.list_sources(SOURCES)
        missed += not wait_for(crew, MOMENTS[moment])
        VICTIMS[victim](crew)
        assert crew.ended() == []
        assert crew.rows(MISCOUNTED) == []
    crew.kill(*OTHERS)
    crew.list_sources(SOURCES)
    crew.finish()

    assert crew.end(*SURVIVORS) == [0, 0, 0]
    assert missed < KILLS / 4
    assert crew.tracebacks() == []
    assert_exact(crew)


def test_host_instance_that_slept_through_a_restart_goes_on_and_settles_nothing_that_is_no_longer_its_own(
    crew: Crew,
) -> None:
    crew.list_sources(SOURCES)
    crew.start(*SURVIVORS)
    while not wait_for(crew, MOMENTS["claiming"]):  # they were too quick for us
        crew.list_sources(SOURCES)
    sleeper = crew.processes["host-0"]
    sleeper.send_signal(signal.SIGSTOP)

    crew.start("host-1")
    crew.hit_postgres(signal.SIGQUIT)
    crew.finish()
    sleeper.send_signal(signal.SIGCONT)
    crew.kill("host-1")
    crew.list_sources(SOURCES)
    crew.finish()

    assert crew.end(*SURVIVORS) == [0, 0, 0]
    assert crew.tracebacks() == []
    assert_exact(crew)


def test_ids_of_a_process_differ_from_those_of_sources_also_where_the_server_lost_what_it_had_not_written(
    crew: Crew,
) -> None:
    location, _ = ids(crew.agent)
    with psycopg.connect(crew.server.database, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "INSERT INTO intake (location_id, identity, size, random_bits) VALUES (%s, 'never', 1, 0)", [location]
        )
        mine = crew.agent.message_id()
        crew.hit_postgres(signal.SIGQUIT)
        with pytest.raises(psycopg.OperationalError):
            connection.commit()

    sources = listed(crew.agent, *"abcdefgh")

    assert mine.int >> 80 not in sources


class Preempted(Agent):
    """Between its claim and the loading of the messages something happens."""

    def __init__(self, database: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(database)
        self.queues = Queues(self._database, LateMessages(self._database, meanwhile))


class LateMessages(Messages):
    def __init__(self, database: Database, meanwhile: Callable[[], None]) -> None:
        super().__init__(database)
        self._meanwhile = meanwhile

    def references(self, host_id: int, rows: list[tuple[Any, ...]]) -> list[Reference]:
        self._meanwhile()
        return super().references(host_id, rows)


@pytest.mark.usefixtures("no_grace")
def test_claim_that_was_taken_over_settled_and_cleaned_away_before_its_messages_were_loaded_changes_nothing(
    agent: Agent, database: str
) -> None:
    agent.subscriptions.deploy(deployment(All="EXISTS(Region)"))
    _, host = ids(agent)
    [sequence] = listed(agent, "a")
    agent.publish([a_publication(agent, sequence, {"Region": "NO"})])

    def taken_over() -> None:
        """Nobody holds the lock of the instance that claimed: it counts as dead."""
        agent.queues.release_dead(host)
        [reference] = agent.queues.dequeue(host, 2, limit=1)
        settling.complete(agent, host, 2, [reference.sequence])
        CleanReferences(agent).run_once()

    with Preempted(database, taken_over) as late:
        [claimed] = late.queues.dequeue(host, 1, limit=queues.FEW + 1)  # fewer come with their messages
        assert str(claimed.undeliverable) == MESSAGE_GONE
        settling.suspend(late, host, 1, [(claimed.sequence, MESSAGE_GONE)], claims={claimed.sequence: claimed.claim})

    assert (count(database, "message"), count(database, "suspended"), count(database, "claimed")) == (0, 0, 0)


def test_publication_that_was_committed_is_not_taken_for_a_failure_where_nobody_could_be_woken(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify = publishing.notify

    def after_a_stop(connection: psycopg.Connection, hosts: Iterable[int]) -> None:
        """PostgreSQL stops as soon as the publication is committed, before anybody is told."""
        stop_postgres(crew.server, signal.SIGQUIT)
        notify(connection, hosts)

    monkeypatch.setattr(publishing, "notify", after_a_stop)
    _, host = ids(crew.agent)
    message = Message(crew.agent.message_id(), Context({"Region": "NO"}), (Part("body", b"x"),))

    with Agent(crew.server.database) as agent:
        published = agent.publish([Publication(host, (message,))])
    crew.server.acquire()

    assert published.references == len(PORTS)
    assert crew.left() == {"queue": 3, "message": 1, "part": 1}


def test_session_that_was_ended_for_sleeping_inside_a_transaction_is_a_reason_to_try_again(
    agent: Agent, database: str
) -> None:
    def oversleep() -> None:
        with agent._database.connection() as connection, connection.transaction():
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = '1ms'")
            until(
                lambda: not rows(database, f"SELECT FROM pg_stat_activity WHERE pid = {connection.info.backend_pid}"),
                10,
            )
            connection.execute("SELECT 1")

    with pytest.raises(TransientError):
        oversleep()


def plan(kills: int) -> Sequence[tuple[str, str]]:
    """Every victim at every moment, and again in another order; the same in every run."""
    randomness = random.Random(7)
    pairs = list(product(MOMENTS, VICTIMS))
    return [pair for _ in range(0, kills, len(pairs)) for pair in randomness.sample(pairs, len(pairs))][:kills]


def wait_for(crew: Crew, moment: str) -> bool:
    """Until it is the moment; False if there is nothing left to do first."""
    seen = False

    def now() -> bool:
        nonlocal seen
        seen = bool(crew.rows(moment))
        return seen or not crew.rows("SELECT FROM intake UNION ALL SELECT FROM queue UNION ALL SELECT FROM claimed")

    until(now, 60)
    return seen


def assert_exact(crew: Crew) -> None:
    messages = sum(crew.sizes)
    assert crew.left() == {}
    assert crew.rows(MISCOUNTED) == []
    assert crew.rows("SELECT received, published, unrouted, suspended FROM publication_total") == [
        (messages, messages, 0, 0)
    ]
    assert crew.agent.statistics().ports == dict.fromkeys(PORTS, messages)
    for service, deliveries in by_service(crew.delivered()).items():
        sources = defaultdict(list)
        for delivery in dict.fromkeys(deliveries):
            sources[delivery.source].append(delivery.position)
        assert Counter(map(len, sources.values())) == Counter(crew.sizes), service
        assert all(sorted(positions) == list(range(len(positions))) for positions in sources.values()), service
        if service == "InOrder":
            assert all(positions == sorted(positions) for positions in sources.values())


def by_service(deliveries: Sequence[Delivery]) -> dict[str, list[Delivery]]:
    return {name: [each for each in deliveries if each.service == number] for number, name in enumerate(PORTS, 1)}
