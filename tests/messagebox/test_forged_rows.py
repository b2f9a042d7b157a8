"""Rows that nobody wrote in good faith: the role of a host may insert them, and they must stop nobody for good."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

import settling
from crossdock.maintenance.references import CleanReferences
from crossdock.messagebox.agent import Agent
from express import deploy, living, port, publish, rows

FORGED = UUID(int=1)


def forge(database: str, statement: str, *values: object) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path TO crossdock")
        connection.execute(statement, values)


def test_attempts_beyond_all_numbers_are_settled_all_the_same(agent: Agent, database: str) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    host = agent.configuration.hosts()["Default"]
    for settled in ("retry", "suspend", "give_back"):
        publish(agent, {"Region": "NO"})
        forge(database, "UPDATE queue SET attempt = 32767")
        with living(agent) as life:
            [claimed] = agent.queues.dequeue(host, life.instance, limit=10)
            if settled == "retry":
                settling.retry(agent, host, life.instance, [(claimed.sequence, timedelta(days=1), "down")])
            elif settled == "suspend":
                settling.suspend(agent, host, life.instance, [(claimed.sequence, "refused")])
            else:
                settling.give_back(agent, host, life.instance, [claimed.sequence])

    assert rows(database, "SELECT count(*) FROM claimed") == [(0,)]


@pytest.mark.parametrize("labels", ["5", '{"a": 1}', "null", '"secret"'])
def test_labels_that_are_no_list_do_not_stop_what_moves(agent: Agent, database: str, labels: str) -> None:
    deploy(agent, port("Out", "Region = 'NO'"), hosts={"Default": ["secret"]})
    publish(agent, {"Region": "NO"})
    forge(database, "UPDATE message SET context = %s", f'{{"promoted": {{}}, "written": {{}}, "labels": {labels}}}')
    forge(database, "INSERT INTO scheduled SELECT host_id, sequence, priority, message_id, subscription_id, service_id,"
                    " attempt, '1970-01-01Z', 'forged', subqueue, instance_id FROM queue")  # fmt: skip
    forge(database, "DELETE FROM queue")

    assert agent.queues.requeue_due(agent.configuration.hosts()["Default"]) == 1


def test_part_without_an_id_does_not_stop_cleanup(agent: Agent, database: str) -> None:
    forge(
        database,
        "INSERT INTO message (id, context, part_count, parts, reference_count) VALUES (%s, '{}', 1, '{NULL}', 2)",
        FORGED,
    )
    for log in (1, 2):
        forge(database, f"INSERT INTO message_ref_log_{log} VALUES (%s, -1)", FORGED)

    for _ in range(3):
        CleanReferences(agent).run_once()

    assert rows(database, "SELECT FROM message") == []
