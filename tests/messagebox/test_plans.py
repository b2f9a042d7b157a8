"""EXPLAIN guards: over a large spool every statement of the hot path goes by its index, and reads no large table whole.

Planned in sessions that are set up as the agent's are. Each statement is planned with real parameters, once for their
values and once for any values: psycopg prepares what it runs often, and PostgreSQL may then keep one plan for all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

import databases
from box import deployment, ids
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.claims import CLAIM_LOCK
from crossdock.messagebox.cleanup import _SUMMING
from crossdock.messagebox.database import _CLAIMING, _configure
from crossdock.messagebox.lifeline import INSTANCE_LOCK
from crossdock.messagebox.scan_start import PRIORITIES
from crossdock.messagebox.statement import host_text, log_statement, statement
from plans import LARGE, blocks_read, explain, nodes

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
MESSAGES = 1_000_000 if SOAK else 20_000
SUSPENDED = 100_000 if SOAK else 5_000
CLAIMS = 4_000
HOST = 1
# Their ids are 1, 2 and 3.
SERVICES = ("First", "InLine", "Stopped")
INSTANCE = 1
# The claims of living host instances are few thousand at most: whoever looks for the dead may look at all of them.
# A closed log may be as long as the totals, and is then joined with all of them.
# What a dead pipeline had is looked for in all of the ledger, when one has died and once a minute.
MAY_READ_ALL = {
    ("release_dead", f"claimed_{HOST}"),
    ("busy", f"claimed_{HOST}"),
    ("sum_log", "message_ref_total"),
    ("release_intake", "intake"),
    ("release_intake", "publication"),
}
# What runs in the agent's sessions for claims.
CLAIMING = {
    "dequeue",
    "dequeue_few",
    "sweep",
    "take_lease",
    "dequeue_subqueue",
    "busy",
    "claim_intake",
    "release_intake",
}
# What runs as cleanup runs it.
SUMMING = {"sum_log", "sum_log_gently", "take_zero", "delete_messages", "delete_parts"}
# What those claims, and whatever else is always small, take up.
FEW_BLOCKS = 200


def uuid(number: int) -> UUID:
    """The id of a message as `FILL` makes it."""
    return UUID(f"{number:012x}80008000000000000000")


FILL = f"""
    CREATE FUNCTION made_id(number bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
    RETURN (lpad(to_hex(number), 12, '0') || '80008000000000000000')::uuid;

    INSERT INTO message (id, context, part_count, parts, reference_count)
    SELECT made_id(n), '{{"promoted": {{"Region": "NO", "BTS.MessageType": "Order"}}, "written": {{}}}}', 1,
           ARRAY[made_id(n)], 3
      FROM generate_series(1, {MESSAGES}) AS n;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT made_id(n), 'body', CASE WHEN n % 10 > 0 THEN decode(repeat('6f', 200), 'hex') END, 200,
           CASE WHEN n % 10 > 0 THEN 0 ELSE 10 END
      FROM generate_series(1, {MESSAGES}) AS n;
    INSERT INTO fragment (part_id, number, body)
    SELECT made_id(n * 10), number, decode(repeat('6f', 100), 'hex')
      FROM generate_series(1, {MESSAGES} / 10) AS n, generate_series(0, 9) AS number;
    INSERT INTO message_ref_total SELECT made_id(n), 3 FROM generate_series(101, {MESSAGES}) AS n;
    INSERT INTO part_ref_total SELECT made_id(n), 1 FROM generate_series(101, {MESSAGES}) AS n;
    INSERT INTO message_ref_log_1 SELECT made_id(n), -1 FROM generate_series(1, 200) AS n;

    INSERT INTO queue (host_id, priority, message_id, subscription_id, service_id, subqueue, instance_id)
    SELECT 1, 5 + n % 2, made_id(n), service, service, CASE WHEN service = 2 THEN 2 ELSE 0 END,
           CASE WHEN n % 100 = 0 THEN made_id(n) END
      FROM generate_series(1, {MESSAGES}) AS n, generate_series(1, 3) AS service;
    INSERT INTO claimed (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, claimed_by,
                         claimed_at)
    SELECT 1, nextval('reference_sequence'), 5, made_id(n), 1, 1, 0, 1 + n % 4, now()
      FROM generate_series(1, {CLAIMS}) AS n;
    INSERT INTO scheduled (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, due_at, reason,
                           instance_id)
    SELECT 1, nextval('reference_sequence'), 5, made_id(n), 1, 1, 0, now() + n * interval '1 minute',
           'down', CASE WHEN n % 100 = 0 THEN made_id(n) END
      FROM generate_series(1, {SUSPENDED}) AS n;
    INSERT INTO suspended (host_id, kind, code, message_id, subscription_id, service_id, reason)
    SELECT 1, kind, 'delivery-failed', made_id(n), 1, CASE kind WHEN 'stopped' THEN 3 WHEN 'send' THEN 1 + n % 2 END, 'why'
      FROM generate_series(1, {SUSPENDED}) AS n,
           LATERAL (SELECT (ARRAY['send', 'unrouted', 'stopped', 'send'])[1 + n % 4]) AS chosen (kind);

    INSERT INTO correlation (property) VALUES ('{{Region}}');
    INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)
    SELECT made_id(n), 1, 1, 1, made_id(n), '{{NO}}' FROM generate_series(1, {SUSPENDED}) AS n;
    INSERT INTO instance (host_id, id, service_id, version, activation, state, code, reason)
    SELECT 1, made_id(n), 1, '0', made_id(n), 'suspended', 'orchestration-failed', 'why'
      FROM generate_series(1, {SUSPENDED}) AS n;
    INSERT INTO timer (host_id, instance_id, number, due_at, asleep)
    SELECT 1, made_id(n), 1, now() - interval '1 hour', true FROM generate_series(1, {SUSPENDED}) AS n;
    INSERT INTO subqueue_lease (service_id, host_id, blocked_until) VALUES (2, 1, '9000-01-01Z');
    INSERT INTO host_instance (id, host_id, machine, process) SELECT n, 1, 'here', n FROM generate_series(1, 4) AS n;
    INSERT INTO intake (location_id, identity, size, random_bits)
    SELECT 1, convert_to('file ' || n, 'UTF8'), 100, 0 FROM generate_series(1, {MESSAGES}) AS n;
    INSERT INTO publication (intake_sequence, range_start, location_id, received, published, unrouted, suspended)
    SELECT sequence, 0, 1, 1, 1, 0, 0 FROM intake;
"""
# As cleanup makes it, with a few that are spread over everything.
UNREFERENCED = f"""
    CREATE TEMPORARY TABLE unreferenced (id uuid) ON COMMIT DELETE ROWS;
    INSERT INTO unreferenced SELECT made_id(n) FROM generate_series(1, {MESSAGES}, {MESSAGES} / 20) AS n
"""

CLAIMED = [3 * MESSAGES + n for n in range(1, 501)]
FIRST_SUSPENDED = 3 * MESSAGES + CLAIMS + SUSPENDED + 1
SOURCES = list(range(1, 51))
IDS = [uuid(n) for n in range(1, 21)]
CLAIM = {"host": HOST, "host_instance": INSTANCE, "limit": 500}
SETTLEMENT = {"host": HOST, "host_instance": INSTANCE, "sequence": CLAIMED, "claim": [0] * len(CLAIMED)}
OUTCOMES = {
    "becomes": [("delivered", "scheduled", "suspended", "queued")[n % 4] for n in range(len(CLAIMED))],
    "after": [timedelta(0)] * len(CLAIMED),
    "tried": [True] * len(CLAIMED),
    "kind": ["send"] * len(CLAIMED),
    "code": ["failed"] * len(CLAIMED),
    "reason": ["why"] * len(CLAIMED),
}
ALL_SERVICES = {"services": [], "only": False}
STARTS = {
    "subqueue": [-INSTANCE, 0] * len(PRIORITIES),
    "priority": [priority for priority in PRIORITIES for _ in range(2)],
    "mark": [start for _ in PRIORITIES for start in (0, MESSAGES)],
    **ALL_SERVICES,
}
PUBLICATIONS = {
    "sequence": SOURCES,
    "range_start": [0] * len(SOURCES),
    "location": [1] * len(SOURCES),
    **{column: [1] * len(SOURCES) for column in ("received", "published")},
    **{column: [0] * len(SOURCES) for column in ("unrouted", "suspended")},
    "range_end": [None] * len(SOURCES),
    "last": [True] * len(SOURCES),
}
DELIVERIES = {"hosts": [HOST] * 3, "sequences": [FIRST_SUSPENDED + n for n in range(3)]}
LISTED = {
    "after": FIRST_SUSPENDED,
    "limit": 100,
    **dict.fromkeys(("message", "port", "code", "since", "age")),
}
DEAD = {"host": HOST, "grace": timedelta(0), "lock": INSTANCE_LOCK}

STATEMENTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "dequeue": (host_text("dequeue", HOST), CLAIM | STARTS),
    "dequeue_few": (host_text("dequeue_few", HOST), CLAIM | STARTS | {"held": 65536, "limit": 20}),
    "sweep": (host_text("sweep", HOST), {"host": HOST, "priority": list(PRIORITIES), "shared": 0, **ALL_SERVICES}),
    "take_lease": (host_text("take_lease", HOST), CLAIM | {"excluding": []}),
    "dequeue_subqueue": (host_text("dequeue_subqueue", HOST), CLAIM | {"subqueue": 2}),
    "complete": (host_text("complete", HOST), SETTLEMENT),
    "settle": (host_text("settle", HOST), SETTLEMENT | OUTCOMES),
    "unblock_subqueues": (host_text("unblock_subqueues", HOST), {"host": HOST}),
    "requeue_due": (host_text("requeue_due", HOST), {"host": HOST}),
    "release_dead": (host_text("release_dead", HOST), DEAD),
    "note_deliveries": (statement("note_deliveries"), {"host_instance": INSTANCE, "sequence": CLAIMED}),
    "note_steps": (
        host_text("note_steps", HOST),
        {"host": HOST, "host_instance": INSTANCE, "instance": IDS, "alone": []},
    ),
    "suspend_orphans": (host_text("suspend_orphans", HOST), {"host": HOST}),
    "list_due": (host_text("list_due", HOST), {"host": HOST, "limit": 200}),
    "next_due": (host_text("next_due", HOST), {"host": HOST}),
    "pause_timers": (host_text("pause_timers", HOST), {"host": HOST, "instance": IDS}),
    "busy": (host_text("busy", HOST), {"host": HOST}),
    "load_messages": (statement("load_messages"), {"message": IDS, "limit": 65536}),
    "load_fragment": (statement("load_fragment"), {"part": uuid(10), "number": 1}),
    "load_part": (statement("load_part"), {"part": uuid(1)}),
    "claim_intake": (statement("claim_intake"), {"host": HOST, "items": 500, "bytes": 10**6, "after": 0, "number": 1}),
    "release_intake": (statement("release_intake"), {"lock": CLAIM_LOCK}),
    "postpone_intake": (
        statement("postpone_intake"),
        {"sequence": SOURCES[0], "reason": "why", "first": timedelta(0), "longest": timedelta(0)},
    ),
    "read_intake": (statement("read_intake"), {"start": MESSAGES - 100, "end": MESSAGES}),
    "settled_intake": (statement("settled_intake"), {"after": MESSAGES - 100, "limit": 1000}),
    "forget_intake": (statement("forget_intake"), {"sequence": SOURCES}),
    "abandon_intake": (statement("abandon_intake"), {"sequence": SOURCES}),
    "lock_intake": (statement("lock_intake"), {"sequence": SOURCES}),
    "try_intake": (statement("try_intake"), {"sequence": SOURCES[0], "afresh": False, "change": 1}),
    "intake_progress": (statement("intake_progress"), {"sequence": SOURCES[0]}),
    "claim_publication": (statement("claim_publication"), PUBLICATIONS),
    "find_instances": (statement("find_instances"), {"hash": IDS}),
    "end_instance": (statement("end_instance"), {"instance": [uuid(100)], "at": [HOST]}),
    "discard": (host_text("discard", None), {"instance": [uuid(100)]}),
    "replace_suspended": (statement("replace_suspended"), {"host": HOST, "sequence": FIRST_SUSPENDED}),
    "list_suspended": (statement("list_suspended"), LISTED),
    "resume_deliveries": (statement("resume_deliveries"), DELIVERIES),
    "resume_stopped": (statement("resume_stopped"), {"service": 3}),
    "terminate_deliveries": (statement("terminate_deliveries"), DELIVERIES),
    "lock_reroutable": (statement("lock_reroutable"), {"message": IDS}),
    "forget_suspended": (statement("forget_suspended"), {"message": IDS}),
    "list_holders": (statement("list_holders"), {"host": [HOST], "instance": IDS, "message": IDS}),
    "list_stopped": (statement("list_stopped"), {"service": 3}),
    "list_resumable": (statement("list_resumable"), DELIVERIES),
    "list_contexts": (statement("list_contexts"), DELIVERIES),
    "list_unreported": (statement("list_unreported"), {"limit": 200}),
    "report_failures": (statement("report_failures"), {"message": IDS, "report": ["[]"] * len(IDS)}),
    "sum_log": (log_statement("sum_log", "message", 1), {}),
    "sum_log_gently": (log_statement("sum_log_gently", "message", 1), {}),
    "add_references": (statement("add_references"), {"message": IDS, "delta": [1] * len(IDS)}),
    "take_zero": (log_statement("take_zero", "message", 1), {}),
    "delete_messages": (statement("delete_messages"), {}),
    "delete_parts": (statement("delete_parts"), {}),
}


def settings_of(verb: str) -> Mapping[str, str]:
    """How the sessions differ in which it runs."""
    return _CLAIMING if verb in CLAIMING else _SUMMING if verb in SUMMING else {}


@pytest.fixture(scope="module")
def filled(server: str, template: str) -> Iterator[psycopg.Connection]:
    """A session on a MessageBox that holds a lot; nothing it does is kept."""
    with empty_messagebox(server, template, f"crossdock_plans_{os.getpid()}") as connection:
        connection.execute(FILL)
        report_all(connection.info.dsn)
        connection.execute("VACUUM ANALYZE")
        with connection.transaction(force_rollback=True):
            connection.execute(UNREFERENCED)
            yield connection


@contextmanager
def empty_messagebox(server: str, template: str, name: str) -> Iterator[psycopg.Connection]:
    """A session on a MessageBox of its own."""
    database = databases.create(server, name, template)
    with Agent(database) as agent:
        agent.subscriptions.deploy(deployment(**dict.fromkeys(SERVICES, "EXISTS(Region)")))
        assert ids(agent) == (1, HOST)
    with psycopg.connect(database, autocommit=True) as connection:
        _configure(connection)
        yield connection
    databases.drop(server, name)


@pytest.fixture(scope="module")
def emptied(server: str, template: str) -> Iterator[psycopg.Connection]:
    """A session on a MessageBox from which everything has gone, as PostgreSQL knows."""
    with empty_messagebox(server, template, f"crossdock_empty_{os.getpid()}") as connection:
        connection.execute("VACUUM ANALYZE")
        yield connection


def report_all(database: str) -> None:
    """Of every unrouted message it is known how nearly it was wanted."""
    with Agent(database) as agent:
        while found := agent.suspended.unreported(limit=1000):
            agent.suspended.report_failures({message: [] for message, _ in found})


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("verb", STATEMENTS)
def test_statement_goes_by_its_indexes(filled: psycopg.Connection, verb: str, mode: str) -> None:
    text, parameters = STATEMENTS[verb]

    plan = explain(filled, text, parameters, mode, settings_of(verb))

    whole = [str(node) for node in nodes(filled, plan) if node.reads_all and (verb, node.table) not in MAY_READ_ALL]
    assert whole == [], f"{verb} reads all of a large table: {', '.join(whole)}"


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("verb", [verb for verb in STATEMENTS if verb not in SUMMING])
def test_statement_goes_by_its_indexes_where_it_was_planned_for_empty_tables(
    emptied: psycopg.Connection, verb: str, mode: str
) -> None:
    """To read an empty table costs nothing; a plan for that is kept when messages come."""
    text, parameters = STATEMENTS[verb]

    plan = explain(emptied, text, parameters, mode, settings_of(verb))

    whole = [str(node) for node in nodes(emptied, plan) if node.reads_all and (verb, node.table) not in MAY_READ_ALL]
    assert whole == [], f"{verb} reads all of a large table: {', '.join(whole)}"


@pytest.mark.parametrize(
    "verb",
    [
        *("sweep", "requeue_due", "release_dead", "suspend_orphans", "take_lease", "take_zero", "list_unreported"),
        *("list_due", "next_due"),
    ],
)
def test_looking_in_vain_costs_the_same_however_much_waits(filled: psycopg.Connection, verb: str) -> None:
    text, parameters = STATEMENTS[verb]
    vain = {**parameters, "grace": timedelta(days=36_500)}

    blocks = blocks_read(filled, text, {name: value for name, value in vain.items() if f"%({name})s" in text})

    assert blocks < FEW_BLOCKS, f"{verb} reads {blocks} blocks to find nothing"


@pytest.mark.parametrize("verb", STATEMENTS)
def test_statement_does_not_do_much_more_where_everything_seems_empty(filled: psycopg.Connection, verb: str) -> None:
    """PostgreSQL counts the rows of a table when it cleans up, which may be just when all have been delivered."""
    text, parameters = STATEMENTS[verb]
    settings = settings_of(verb)
    before = blocks_read(filled, text, parameters, settings)
    with filled.transaction(force_rollback=True):
        filled.execute("UPDATE pg_class SET reltuples = 0 WHERE relname ~ %s AND relkind = 'r'", [LARGE.pattern])

        blocks = blocks_read(filled, text, parameters, settings)

    assert blocks < 5 * before + FEW_BLOCKS


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("verb", ["dequeue", "dequeue_few", "dequeue_subqueue", "sweep", "busy"])
def test_queue_that_was_empty_when_it_was_analysed_is_still_read_in_order(
    agent: Agent, database: str, verb: str, mode: str
) -> None:
    agent.subscriptions.deploy(deployment(**dict.fromkeys(SERVICES, "EXISTS(Region)")))
    text, parameters = STATEMENTS[verb]
    fill = (
        "INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id)"
        f" SELECT {HOST}, n % 2, 5, gen_random_uuid(), 1, 1 FROM generate_series(1, 20000) AS n"
    )
    with gone_but_kept(database, f"queue_{HOST}", fill), agent._database.claiming() as mine:
        plan = explain(mine, text, parameters, mode)
        kinds = [node.kind for node in nodes(mine, plan) if node.index == f"queue_{HOST}_pkey"]

    assert set(kinds) <= {"Index Scan", "Index Only Scan"}, kinds


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("verb", ["complete", "settle"])
def test_claims_that_are_gone_are_not_read_to_settle_others(agent: Agent, database: str, verb: str, mode: str) -> None:
    agent.subscriptions.deploy(deployment(**dict.fromkeys(SERVICES, "EXISTS(Region)")))
    text, parameters = STATEMENTS[verb]
    fill = (
        "INSERT INTO claimed (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, claimed_by,"
        f" claimed_at) SELECT {HOST}, n, 5, gen_random_uuid(), 1, 1, 0, 1, now() FROM generate_series(1, 20000) AS n"
    )
    with gone_but_kept(database, f"claimed_{HOST}", fill), agent._database.connection() as mine:
        plan = explain(mine, text, parameters, mode)
        whole = [str(node) for node in nodes(mine, plan) if node.reads_all]

    assert whole == []


def test_cleanup_reads_the_logs_once_where_the_totals_seemed_to_be_none(database: str) -> None:
    made = "SELECT gen_random_uuid(), 3 FROM generate_series(1, 20000)"
    with gone_but_kept(database, "message_ref_total", f"INSERT INTO message_ref_total {made}"):
        pass
    with psycopg.connect(database, autocommit=True) as connection:
        _configure(connection)
        connection.execute(f"INSERT INTO message_ref_total {made}")
        connection.execute("INSERT INTO message_ref_log_1 SELECT message_id, -1 FROM message_ref_total")
        connection.execute("CREATE TEMPORARY TABLE unreferenced (id uuid)")

        blocks = blocks_read(connection, log_statement("take_zero", "message", 1), {}, _SUMMING)

    assert blocks < 20_000 / 10


@contextmanager
def gone_but_kept(database: str, table: str, fill: str) -> Iterator[None]:
    """A table that was filled and emptied, and found empty, while a reader keeps its rows from being cleaned away."""
    with psycopg.connect(database, options="-csearch_path=crossdock", autocommit=True) as connection:
        connection.execute(fill)
        connection.execute(f"ANALYZE {table}")
        with psycopg.connect(database, options="-csearch_path=crossdock") as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute(f"SELECT count(*) FROM {table}")
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"VACUUM ANALYZE {table}")
            yield
