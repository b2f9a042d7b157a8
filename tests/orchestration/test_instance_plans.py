"""EXPLAIN guards: among many instances every statement of a step goes by its index, and reads no large table whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest

import databases
from box import deployment, ids
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.database import _configure
from crossdock.messagebox.statement import host_text, statement
from plans import blocks_read, explain, nodes

INSTANCES = 10_000
HOST = 1
SUBQUEUE = -(2**31)
FEW_BLOCKS = 200


def uuid(number: int) -> UUID:
    """The id of an instance, and of the message that began it, as `FILL` makes it."""
    return UUID(f"{number:012x}80008000000000000000")


FILL = f"""
    CREATE FUNCTION made_id(number bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
    RETURN (lpad(to_hex(number), 12, '0') || '80008000000000000000')::uuid;
    SELECT create_host('Other');
    UPDATE service SET class = 'orchestration', version = 'v', versions = '{{v}}' WHERE id = 1;

    INSERT INTO message (id, context, part_count, parts, reference_count)
    SELECT made_id(n), '{{"promoted": {{}}, "written": {{}}}}', 1, ARRAY[made_id(n)], 3 FROM generate_series(1, {INSTANCES}) AS n;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT made_id(n), 'body', 'x', 1, 0 FROM generate_series(1, {INSTANCES}) AS n;
    INSERT INTO instance (host_id, id, service_id, version, activation, step)
    SELECT host, made_id(n + (host - 1) * {INSTANCES}), 1, 'v', made_id(n), 3
      FROM generate_series(1, 2) AS host, generate_series(1, {INSTANCES}) AS n;
    INSERT INTO history (host_id, instance_id, step, record)
    SELECT 1, made_id(n), step, 'x' FROM generate_series(1, {INSTANCES}) AS n, generate_series(1, 3) AS step;
    INSERT INTO held (host_id, instance_id, sequence, message_id, step, subscription_id)
    SELECT 1, made_id(n), nextval('reference_sequence'), made_id(n), CASE WHEN n % 10 > 0 THEN step END, 1
      FROM generate_series(1, {INSTANCES}) AS n, generate_series(1, 2) AS step;
    INSERT INTO timer (host_id, instance_id, number, due_at)
    SELECT 1, made_id(n), 1, clock() + (n - 20) * interval '1 second' FROM generate_series(1, {INSTANCES}) AS n;
    INSERT INTO correlation (property, service_id, name, types) VALUES ('{{Region}}', 1, 'lot', '{{Line}}');
    INSERT INTO convoy (hash, instance_id, host_id)
    SELECT made_id(n), made_id(n), 1 FROM generate_series(1, {INSTANCES}) AS n;
    INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)
    SELECT made_id(n), 1, 1, 1, made_id(n), '{{NO}}' FROM generate_series(1, {INSTANCES}) AS n;
    INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id, instance_id)
    SELECT 1, {SUBQUEUE}, 0, made_id(n), 1, 1, made_id(n) FROM generate_series(1, {INSTANCES}, 2) AS n;
    INSERT INTO claimed (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, claimed_by,
                         claimed_at, subqueue, instance_id)
    SELECT 1, 10000000 + n, 0, made_id(n), 1, 1, 0, 1, clock(), {SUBQUEUE}, made_id(n)
      FROM generate_series(1, {INSTANCES}) AS n;
    INSERT INTO scheduled (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, due_at, reason,
                           instance_id)
    SELECT 1, 20000000 + n, 0, made_id(n), 1, 1, 0, clock() + interval '1 hour', 'later', made_id(n)
      FROM generate_series(1, {INSTANCES}) AS n;
"""

MINE = [uuid(n) for n in range(1, 101)]
ONES = [1] * len(MINE)
CLAIMED = [10_000_000 + n for n in range(1, 101)]
TEXTS = ["x"] * len(MINE)
NOTHING = [None] * len(MINE)
WRITTEN = {
    "id": MINE,
    "service": ONES,
    "version": ["v"] * len(MINE),
    "activation": MINE,
    "step": ONES,
    "state": ["running"] * len(MINE),
    "waiting_for": TEXTS,
    "line": TEXTS,
    "code": NOTHING,
    "reason": NOTHING,
    "traceback": NOTHING,
}
LEFT = {"left_instance": MINE[:10], "left_message": MINE[:10]}
PER_HOST: dict[str, Mapping[str, Any]] = {
    "lock_instances": {"id": MINE, "step": ONES, "parks": [False] * len(MINE)},
    "list_given": {"instance": MINE, "sequence": CLAIMED},
    "hold": {"host_instance": 1, "sequence": CLAIMED, "claim": [0] * len(MINE), "instance": MINE, "step": ONES},
    "write_instances": WRITTEN,
    "write_history": {"instance": MINE, "step": [9] * len(MINE), "record": [b"x"] * len(MINE)},
    "give_held": {"instance": MINE, "sequence": CLAIMED, "step": ONES},
    "close_instances": {"instance": MINE},
    "pass_on": {"ending": MINE, "successor": [uuid(n) for n in range(900_001, 900_101)], **LEFT},
    "list_unpassed": {"instance": MINE},
    "end_instances": {"instance": MINE, **LEFT},
    "restart_instances": {"instance": MINE, "kept_instance": MINE[:10], "kept_message": MINE[:10]},
    "load_instances": {"id": MINE},
    "load_history": {"id": MINE},
    "load_parked": {"id": MINE},
    "load_held": {"instance": MINE, "limit": 1000},
    "load_held_piece": {"instance": MINE, "message": MINE[0], "part": MINE[0], "number": None},
    "list_due": {"limit": 200},
    "next_due": {},
}
SHARED: dict[str, Mapping[str, Any]] = {
    "open_convoys": {"hash": [uuid(n) for n in range(900_001, 900_101)], "instance": MINE},
    "close_convoys": {"hash": MINE},
    "find_instances": {"hash": MINE},
    "end_instance": {"instance": MINE, "at": [HOST]},
    "list_subscribed_by": {"id": list(range(1, 101))},
}
STATEMENTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    **{verb: (host_text(verb, HOST), {"host": HOST, **given}) for verb, given in PER_HOST.items()},
    **{verb: (statement(verb), given) for verb, given in SHARED.items()},
}


@pytest.fixture(scope="module")
def filled(server: str, template: str) -> Iterator[psycopg.Connection]:
    """A session on a MessageBox with many instances."""
    with messagebox(server, template, f"crossdock_instances_{os.getpid()}") as connection:
        connection.execute(FILL)
        connection.execute("VACUUM ANALYZE")
        yield connection


@pytest.fixture(scope="module")
def emptied(server: str, template: str) -> Iterator[psycopg.Connection]:
    """A session on a MessageBox from which everything has gone, as PostgreSQL knows."""
    with messagebox(server, template, f"crossdock_no_instances_{os.getpid()}") as connection:
        connection.execute("VACUUM ANALYZE")
        yield connection


@contextmanager
def messagebox(server: str, template: str, name: str) -> Iterator[psycopg.Connection]:
    database = databases.create(server, name, template)
    with Agent(database) as agent:
        agent.subscriptions.deploy(deployment(First="EXISTS(Region)"))
        assert ids(agent) == (1, HOST)
    with psycopg.connect(database, autocommit=True) as connection:
        _configure(connection)
        yield connection
    databases.drop(server, name)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("known", ["filled", "emptied"])
@pytest.mark.parametrize("verb", STATEMENTS)
def test_statement_about_instances_goes_by_its_indexes(
    request: pytest.FixtureRequest, known: str, verb: str, mode: str
) -> None:
    connection: psycopg.Connection = request.getfixturevalue(known)
    text, parameters = STATEMENTS[verb]

    plan = explain(connection, text, parameters, mode)

    whole = [str(node) for node in nodes(connection, plan) if node.reads_all]
    assert whole == [], f"{verb} reads all of a large table: {', '.join(whole)}"


@pytest.mark.parametrize("verb", ["list_records", "list_held", "list_timers"])
def test_one_instance_is_described_by_its_indexes(filled: psycopg.Connection, verb: str) -> None:
    blocks = blocks_read(filled, statement(verb), {"host": HOST, "id": MINE[0]})

    assert blocks < FEW_BLOCKS, f"{verb} reads {blocks} blocks to describe one instance"


@pytest.mark.parametrize("verb", ["list_due", "next_due", "list_given", "load_held", "pass_on"])
def test_looking_in_vain_costs_the_same_however_many_instances_wait(filled: psycopg.Connection, verb: str) -> None:
    text, parameters = STATEMENTS[verb]
    nobody = [uuid(n) for n in range(800_001, 800_006)]
    vain = {
        name: nobody if name in ("instance", "ending", "successor") else value for name, value in parameters.items()
    }

    blocks = blocks_read(filled, text, vain)

    assert blocks < FEW_BLOCKS, f"{verb} reads {blocks} blocks to find nothing"
