"""Two sides of a meeting: stop one at a chosen point, see that the other waits for it, and check the counts at the end.

Who waits for whom is asked of PostgreSQL. A gate stops a statement after it has taken its snapshot and before it touches
its first row, which no lock can do.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, assert_never
from uuid import UUID

import psycopg
from psycopg.conninfo import make_conninfo

from box import PROPERTIES, a_publication, deployment, ids, listed
from crossdock.message.property import PropertyRegistry
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.messagebox.lifeline import INSTANCE_LOCK, Lifeline
from crossdock.messagebox.publish import publish
from crossdock.messagebox.rows import Published
from crossdock.subscription.text import parse_filter
from walk import until

PATIENCE_SECONDS = 30
_GATE = 77
_SEARCH_PATH = "-csearch_path=crossdock"


@contextmanager
def open_transaction(database: str) -> Iterator[psycopg.Connection]:
    """A connection inside a transaction, which commits when the block ends."""
    with psycopg.connect(database, autocommit=True, options=_SEARCH_PATH) as connection, connection.transaction():
        yield connection


def until_somebody_waits_for(database: str, holder: psycopg.Connection) -> None:
    """Until a lock of this connection keeps somebody from going on."""
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND %s = ANY (pg_blocking_pids(pid))"
    with psycopg.connect(database, autocommit=True) as observer:
        until(lambda: bool(observer.execute(waiting, [holder.info.backend_pid]).rowcount), PATIENCE_SECONDS)


def waiting(database: str) -> int:
    """How many sessions wait for locks."""
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(database, autocommit=True) as observer:
        return observer.execute(query).rowcount


def until_waiting(database: str, sessions: int) -> None:
    until(lambda: waiting(database) >= sessions, PATIENCE_SECONDS)


@contextmanager
def publisher_before_its_commit(agent: Agent, database: str, publication: Publication) -> Iterator[psycopg.Connection]:
    """A publisher that has done everything; it commits when the block ends."""
    with open_transaction(database) as connection:
        publish(connection, agent.router(), [publication])
        yield connection


@contextmanager
def publisher_before_its_references(
    agent: Agent, database: str, aside: ThreadPoolExecutor, publication: Publication, *, table: str = "part"
) -> Iterator[Future[Published]]:
    """A publisher that has matched and knows the logs, and waits to write to a table before them; it goes on after."""
    with open_transaction(database) as blocker:
        blocker.execute(f"LOCK TABLE {table} IN SHARE MODE")
        publishing = aside.submit(agent.publish, [publication])
        until_somebody_waits_for(database, blocker)
        yield publishing


@contextmanager
def living(agent: Agent, host: int) -> Iterator[Lifeline]:
    """A host instance that lives until the block ends."""
    lifeline = agent.queues.lifeline(host)
    lifeline.hold()
    try:
        yield lifeline
    finally:
        lifeline.end()


def dies(database: str, life: Lifeline) -> None:
    """End an instance, and wait until the server has noticed; nobody has released anything yet."""
    life.end()
    held = (
        "SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
        " WHERE datname = current_database() AND locktype = 'advisory' AND classid = %s AND objid = %s"
    )
    with psycopg.connect(database, autocommit=True) as observer:
        until(lambda: not observer.execute(held, [INSTANCE_LOCK, life.instance]).rowcount, PATIENCE_SECONDS)


@dataclass(frozen=True, slots=True)
class Gate:
    """Closed until `open`. Only whoever connects to `database`, as it is named here, stops at it."""

    database: str
    _keeper: psycopg.Connection

    def until_reached(self) -> None:
        until_somebody_waits_for(self.database, self._keeper)

    def open(self) -> None:
        self._keeper.execute("SELECT pg_advisory_unlock_all()")


@contextmanager
def gate(database: str, event: str) -> Iterator[Gate]:
    """Close a gate at an event: `BEFORE DELETE ON claimed_1`."""
    with psycopg.connect(database, autocommit=True, options=_SEARCH_PATH) as keeper:
        keeper.execute(
            "CREATE FUNCTION stop_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF current_setting('gate.stops', true) = 'yes' THEN"
            f" PERFORM pg_advisory_xact_lock_shared({_GATE});"
            " END IF; RETURN NULL; END $$"
        )
        keeper.execute(f"CREATE TRIGGER gate {event} FOR EACH STATEMENT EXECUTE FUNCTION stop_at_the_gate()")
        keeper.execute("SELECT pg_advisory_lock(%s)", [_GATE])
        yield Gate(make_conninfo(database, options="-cgate.stops=yes"), keeper)


def a_port(agent: Agent, region: str = "NO", *, state: Literal["started", "stopped", "unenlisted"] = "started") -> int:
    """`Port` wants the messages of a region, and is in this state; gives its host."""
    agent.subscriptions.deploy(deployment(Port=f"Region = '{region}'"))
    match state:
        case "started":
            pass
        case "stopped":
            agent.subscriptions.stop("Port")
        case "unenlisted":
            agent.subscriptions.unenlist("Port")
        case _:
            assert_never(state)
    return ids(agent)[1]


def an_unrouted_message(agent: Agent) -> UUID:
    """Published when nobody wanted it; now `Port` does."""
    a_port(agent, "SE")
    agent.publish([a_message(agent)])
    [unrouted] = agent.suspended.messages()
    a_port(agent)
    return unrouted.id


def a_message(agent: Agent, source: str = "a", *, messages: int = 1) -> Publication:
    """One message, or some, of the region NO."""
    [sequence] = listed(agent, source)
    return a_publication(agent, sequence, *({"Region": "NO"} for _ in range(messages)))


def an_application(name: str, *, host: str = "Default", ordered: bool = False) -> Deployment:
    """One location at the default host, and one port for the region NO."""
    filter_ = parse_filter(PropertyRegistry(PROPERTIES), "Region = 'NO'")
    port = DeployedPort(name, host, 5, filter_, {}, ordered=ordered)
    return Deployment(name, PROPERTIES, [DeployedLocation(f"{name}.in", "Default", {})], [port])


def places(database: str) -> dict[str, int]:
    """How many references are where, once the counts were found exact."""
    assert inexact(database) == []
    with psycopg.connect(database, options=_SEARCH_PATH) as connection:
        return dict(connection.execute(_PLACES).fetchall())


def inexact(database: str) -> list[tuple[object, ...]]:
    """(what, id, counted, living) where the logs and totals do not say how many references there are.

    One statement: it locks the logs before it takes its snapshot, so that none of them is emptied in between.
    """
    with psycopg.connect(database, options=_SEARCH_PATH) as connection:
        return connection.execute(_INEXACT).fetchall()


_PLACES = """
SELECT 'queued', count(*) FROM queue HAVING count(*) > 0
 UNION ALL SELECT 'claimed', count(*) FROM claimed HAVING count(*) > 0
 UNION ALL SELECT 'scheduled', count(*) FROM scheduled HAVING count(*) > 0
 UNION ALL SELECT 'suspended ' || kind, count(*) FROM suspended GROUP BY kind
"""

_INEXACT = """
WITH reference AS MATERIALIZED (
    SELECT message_id FROM queue
     UNION ALL SELECT message_id FROM claimed
     UNION ALL SELECT message_id FROM scheduled
     UNION ALL SELECT message_id FROM suspended
     UNION ALL SELECT message_id FROM held
), message_count AS (
    SELECT message_id AS id, delta AS counted, 0 AS living FROM message_ref_log_1
     UNION ALL SELECT message_id, delta, 0 FROM message_ref_log_2
     UNION ALL SELECT message_id, living, 0 FROM message_ref_total
     UNION ALL SELECT id, reference_count, 0 FROM message WHERE id NOT IN (SELECT message_id FROM message_ref_total)
     UNION ALL SELECT message_id, 0, 1 FROM reference
), part_count AS (
    SELECT part_id AS id, delta AS counted, 0 AS living FROM part_ref_log_1
     UNION ALL SELECT part_id, delta, 0 FROM part_ref_log_2
     UNION ALL SELECT part_id, living, 0 FROM part_ref_total
     UNION ALL SELECT id, reference_count, 0 FROM part WHERE id NOT IN (SELECT part_id FROM part_ref_total)
     UNION ALL SELECT unnest(parts), 0, 1 FROM message
)
SELECT 'message', id, sum(counted), sum(living)
  FROM message_count
 GROUP BY id
HAVING sum(counted) <> sum(living)
 UNION ALL
SELECT 'part', id, sum(counted), sum(living)
  FROM part_count
 GROUP BY id
HAVING sum(counted) <> sum(living)
 UNION ALL
SELECT 'reference to a message that is gone', message_id, 0, count(*)
  FROM reference
 WHERE NOT EXISTS (SELECT FROM message WHERE message.id = reference.message_id)
 GROUP BY message_id
 UNION ALL
SELECT 'message whose part is gone', message.id, 0, count(*)
  FROM message, unnest(message.parts) AS needed (part_id)
 WHERE NOT EXISTS (SELECT FROM part WHERE part.id = needed.part_id)
 GROUP BY message.id
"""
