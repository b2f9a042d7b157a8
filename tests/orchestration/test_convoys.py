"""Convoys: one instance for each value, whoever publishes at once, and nothing slips between one instance and the next."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.decide import close_unused, decide, find_instances
from crossdock.messagebox.publish import publish as publish_on
from crossdock.messagebox.sought import correlation_hashes
from express import rows, unbalanced
from interleave import open_transaction, until_somebody_waits_for
from running import clean, deploy, engine, instances, message, publish, run, sent, settled

COLLECT = """
out = Port("Out")
lot = Correlation("OrderId", types=["Line"])

@orchestration(Receive("Line", initializes=lot), late="next")
async def collect(process: Process, first: Message) -> None:
    lines = [first.json()["amount"]]
    while len(lines) < 3:
        lines.append((await process.receive(lot)).json()["amount"])
    await process.send(out, process.message("Note", {"id": first["OrderId"], "lines": lines}))
"""


@pytest.fixture
def collecting(agent: Agent, folder: Path) -> Agent:
    deploy(agent, folder, COLLECT, "collect")
    return agent


@pytest.mark.parametrize("many", [3, 40])
def test_messages_of_one_batch_join_one_instance(collecting: Agent, many: int) -> None:
    messages = [message(collecting, "Line", "a", number) for number in range(many)]

    published = publish(collecting, *messages)

    assert published.references == many
    assert rows(collecting.database, "SELECT count(*), count(DISTINCT instance_id) FROM queue") == [(many, 1)]
    assert len(instances(collecting)) == 1
    assert unbalanced(collecting.database) == []


def test_convoy_collects_and_late_lines_begin_the_next_instance(collecting: Agent) -> None:
    for number in range(7):
        publish(collecting, message(collecting, "Line", "a", number))
    publish(collecting, message(collecting, "Line", "b", 100))

    run(collecting)

    assert [each["lines"] for _, each in sent(collecting)] == [[0, 1, 2], [3, 4, 5]]
    assert len(instances(collecting)) == 2
    publish(collecting, *(message(collecting, "Line", each, 9) for each in "aabb"))
    run(collecting)
    assert sorted(each["lines"] for _, each in sent(collecting)) == [[6, 9, 9], [100, 9, 9]]
    clean(collecting)


def test_late_lines_in_one_batch_begin_the_next_instance(collecting: Agent) -> None:
    publish(collecting, *(message(collecting, "Line", "a", number) for number in range(7)))

    run(collecting)

    assert [each["lines"] for _, each in sent(collecting)] == [[0, 1, 2], [3, 4, 5]]
    assert len(instances(collecting)) == 1
    assert unbalanced(collecting.database) == []


def test_of_two_publishers_of_one_new_value_the_second_waits_and_joins(collecting: Agent, database: str) -> None:
    first, second = (message(collecting, "Line", "a", number) for number in range(2))
    host = collecting.configuration.hosts()["Default"]

    with ThreadPoolExecutor(1) as aside, Agent(database) as another:
        with open_transaction(database) as connection:
            publish_on(connection, collecting.router(), [Publication(host, (first,))])
            later = aside.submit(publish, another, second)
            until_somebody_waits_for(database, connection)
        assert later.result(60).references == 1

    assert rows(database, "SELECT count(*), count(DISTINCT instance_id) FROM queue") == [(2, 1)]
    assert rows(database, "SELECT count(*) FROM convoy") == [(1,)]
    assert unbalanced(database) == []


def test_publishers_of_the_same_values_in_another_order_do_not_wait_for_each_other(
    collecting: Agent, database: str
) -> None:
    def lines(order: str) -> int:
        return publish(collecting, *(message(collecting, "Line", each) for each in order)).references

    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lines, ["abcdefghij", "jihgfedcba", "fghijabcde", "bdfhjacegi"] * 5))

    assert given == [10] * 20
    assert rows(database, "SELECT count(*) FROM instance") == [(10,)]
    assert rows(database, "SELECT count(DISTINCT instance_id) FROM queue") == [(10,)]
    assert unbalanced(database) == []


def test_nothing_is_lost_while_convoys_end_and_others_publish(collecting: Agent) -> None:
    def feed(number: int) -> None:
        publish(collecting, *(message(collecting, "Line", each, number) for each in "abc"))

    with engine(collecting), ThreadPoolExecutor(3) as pool:
        list(pool.map(feed, range(30)))
        settled(collecting)

    assert len(sent(collecting)) == 30
    assert [row.kind for row in collecting.suspended.messages()] == []
    clean(collecting)


def test_line_that_somebody_claims_while_its_convoy_ends_begins_the_next_instance(
    collecting: Agent, database: str
) -> None:
    publish(collecting, *(message(collecting, "Line", "a", number) for number in range(4)))
    claim = """
        WITH ready AS (DELETE FROM queue WHERE sequence = (SELECT max(sequence) FROM queue) RETURNING *)
        INSERT INTO claimed (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue,
                             instance_id, deaths, claimed_by, claimed_at)
        SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
               deaths, 1, clock()
          FROM ready
    """

    with ThreadPoolExecutor(1) as aside:
        with open_transaction(database) as connection:
            connection.execute(claim)
            later = aside.submit(run, collecting)
            until_somebody_waits_for(database, connection)
        later.result(60)

    assert [row.kind for row in collecting.suspended.messages()] == []
    [(instance, waiting)] = rows(
        database, "SELECT instance.id, held.message_id FROM instance LEFT JOIN held ON held.instance_id = instance.id"
    )
    assert (instance is not None, waiting is not None) == (True, True)
    assert unbalanced(database) == []


def test_convoy_that_was_opened_for_what_is_published_already_is_closed(collecting: Agent, database: str) -> None:

    batch = Batch([[message(collecting, "Line", "a")]])
    router = collecting.router()
    with open_transaction(database) as connection:
        decision = decide(router, batch)
        find_instances(connection, decision, batch, correlation_hashes(router, batch))
        close_unused(connection, decision, decision.only(np.zeros(1, np.bool_)))

    assert rows(database, "SELECT count(*) FROM convoy") == [(0,)]
