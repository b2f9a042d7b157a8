"""Convoys of a stopped orchestration: what was suspended meanwhile begins one instance for each value, when it starts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

import pytest

import acting
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.decide import decide, find_instances
from crossdock.messagebox.publish import publish as publish_on
from crossdock.messagebox.sought import correlation_hashes
from express import rows, unbalanced
from interleave import open_transaction, until_somebody_waits_for
from running import clean, deploy, instances, message, publish, redeploy, run, sent

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
def stopped(agent: Agent, folder: Path) -> Agent:
    deploy(agent, folder, COLLECT, "collect")
    agent.subscriptions.stop("collect")
    return agent


def queued(agent: Agent) -> list[tuple[int, int]]:
    """(references, instances) that wait for an engine."""
    return [*rows(agent.database, "SELECT count(*), count(DISTINCT instance_id) FROM queue")]


def test_lines_that_came_while_it_was_stopped_end_in_one_instance(stopped: Agent) -> None:
    for number in range(3):
        publish(stopped, message(stopped, "Line", "a", number))

    assert stopped.subscriptions.start("collect").resumed == 3

    assert queued(stopped) == [(3, 1)]
    run(stopped)
    assert sent(stopped) == [("Note", {"id": "a", "lines": [0, 1, 2]})]
    assert [each.kind for each in stopped.suspended.messages()] == []
    clean(stopped)


def test_many_lines_of_several_values_in_one_batch_begin_an_instance_for_each_value(stopped: Agent) -> None:
    publish(stopped, *(message(stopped, "Line", f"{number % 7}", number) for number in range(70)))

    stopped.subscriptions.start("collect")

    assert queued(stopped) == [(70, 7)]
    assert len(instances(stopped)) == 7
    publish(stopped, *(message(stopped, "Line", f"{number}", 100) for number in range(7)))
    assert queued(stopped) == [(77, 7)]
    assert unbalanced(stopped.database) == []


@pytest.mark.parametrize("order", list(permutations("rst")))
def test_lines_end_in_one_instance_whatever_is_resumed_started_and_published_first(
    stopped: Agent, order: tuple[str, ...]
) -> None:
    first, second = (message(stopped, "Line", "a", number) for number in range(2))
    publish(stopped, first)
    publish(stopped, second)

    for each in order:
        if each == "r":
            stopped.suspended.resume([second.id])
        elif each == "s":
            stopped.subscriptions.start("collect")
        else:
            publish(stopped, message(stopped, "Line", "a", 2))
    run(stopped)

    [(_, note)] = sent(stopped)
    assert sorted(note["lines"]) == [0, 1, 2]
    assert [each.kind for each in stopped.suspended.messages()] == []
    clean(stopped)


def test_line_that_is_being_published_when_it_is_started_joins_the_others(stopped: Agent, database: str) -> None:
    publish(stopped, message(stopped, "Line", "a", 0))
    publish(stopped, message(stopped, "Line", "a", 1))
    third, host = message(stopped, "Line", "a", 2), stopped.configuration.hosts()["Default"]

    with ThreadPoolExecutor(1) as aside, Agent(database) as another:
        with open_transaction(database) as connection:
            publish_on(connection, stopped.router(), [Publication(host, (third,))])
            starting = aside.submit(another.subscriptions.start, "collect")
            until_somebody_waits_for(database, connection)
        assert starting.result(60).resumed == 3

    assert queued(stopped) == [(3, 1)]
    run(stopped)
    assert sent(stopped) == [("Note", {"id": "a", "lines": [0, 1, 2]})]
    clean(stopped)


def test_line_that_is_published_while_it_is_being_started_joins_the_others(stopped: Agent, database: str) -> None:
    publish(stopped, message(stopped, "Line", "a", 0))
    publish(stopped, message(stopped, "Line", "a", 1))
    third = message(stopped, "Line", "a", 2)

    with ThreadPoolExecutor(2) as aside, Agent(database) as another:
        with open_transaction(database) as connection:
            connection.execute("LOCK TABLE queue IN SHARE MODE")  # the start has everything but its references
            starting = aside.submit(another.subscriptions.start, "collect")
            until_somebody_waits_for(database, connection)
            later = aside.submit(publish, stopped, third)
        assert starting.result(60).resumed == 2
        assert later.result(60).references == 1

    assert queued(stopped) == [(3, 1)]
    assert unbalanced(database) == []


def test_start_waits_for_no_publisher_that_waits_for_it(stopped: Agent, database: str) -> None:
    """A publisher from before the stop has opened the convoy; it will hear that subscriptions have changed."""
    stopped.subscriptions.start("collect")
    router, batch = stopped.router(), Batch([[message(stopped, "Line", "a", 0)]])

    with ThreadPoolExecutor(1) as aside, Agent(database) as another:
        with open_transaction(database) as connection:
            find_instances(connection, decide(router, batch), batch, correlation_hashes(router, batch))
            another.subscriptions.stop("collect")
            publish(another, message(another, "Line", "a", 1))
            starting = aside.submit(another.subscriptions.start, "collect")
            until_somebody_waits_for(database, connection)
            connection.execute("ROLLBACK")
            connection.execute("BEGIN")
        assert starting.result(60).resumed == 1

    assert queued(stopped) == [(1, 1)]
    assert rows(database, "SELECT count(*) FROM convoy") == [(1,)]


def test_line_for_a_running_instance_is_given_to_that_alone_although_it_is_stopped(stopped: Agent) -> None:
    stopped.subscriptions.start("collect")
    publish(stopped, message(stopped, "Line", "a", 0))
    run(stopped)
    stopped.subscriptions.stop("collect")

    assert publish(stopped, message(stopped, "Line", "a", 1)).references == 1
    assert publish(stopped, message(stopped, "Line", "b", 9)).references == 0

    assert [each.kind for each in stopped.suspended.messages()] == ["stopped"]
    stopped.subscriptions.start("collect")
    publish(stopped, message(stopped, "Line", "a", 2))
    run(stopped)
    assert sent(stopped) == [("Note", {"id": "a", "lines": [0, 1, 2]})]
    assert len(instances(stopped)) == 1


def test_lines_that_are_resumed_one_by_one_join_one_instance(stopped: Agent) -> None:
    lines = [message(stopped, "Line", "a", number) for number in range(3)]
    publish(stopped, *lines)

    for each in lines:
        assert [row.result for row in acting.resume(stopped, [str(each.id)])] == ["queued again"]
        run(stopped)

    assert sent(stopped) == [("Note", {"id": "a", "lines": [0, 1, 2]})]
    clean(stopped)


def test_lines_wait_for_the_start_through_another_deployment(stopped: Agent, folder: Path) -> None:
    publish(stopped, message(stopped, "Line", "a", 0), message(stopped, "Line", "a", 1))
    (folder / "flows.py").write_text((folder / "flows.py").read_text().replace("< 3", "< 2"))
    redeploy(stopped, folder)
    assert queued(stopped) == [(0, 0)]

    stopped.subscriptions.start("collect")
    run(stopped)

    assert sent(stopped) == [("Note", {"id": "a", "lines": [0, 1]})]
    clean(stopped)
