"""Host instances meet at an ordered line: one has it at a time, order is kept, and nobody keeps it for nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import settling
from box import ids
from crossdock.maintenance.dead_processes import ReleaseDead
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.rows import Reference
from interleave import (
    PATIENCE_SECONDS,
    a_message,
    an_application,
    dies,
    gate,
    living,
    places,
    publisher_before_its_commit,
    waiting,
)
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


def test_instance_in_the_middle_of_taking_an_ordered_line_has_it_alone_until_it_settles(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    host = ordered(agent, messages=3)
    with living(agent, host) as one, living(agent, host) as two:
        with gate(database, "AFTER UPDATE ON subqueue_lease") as closed, Agent(closed.database) as slow:
            taking = aside.submit(slow.queues.dequeue_ordered, host, one.instance, limit=2)
            closed.until_reached()
            assert line(agent, host, two) == []
            closed.open()
            first = taking.result(PATIENCE_SECONDS)
        assert line(agent, host, two) == []

        settle(agent, host, one, completed=first)
        second = line(agent, host, two)

    assert [positions(first), positions(second)] == [[0, 1], [2]]


def test_line_of_a_dead_instance_is_taken_up_in_order_and_only_after_it_was_released(
    agent: Agent, database: str
) -> None:
    host = ordered(agent, messages=4)
    with living(agent, host) as two:
        with living(agent, host) as one:
            assert positions(line(agent, host, one, limit=2)) == [0, 1]
            dies(database, one)
        assert line(agent, host, two) == []

        assert agent.queues.release_dead(host) == 2
        again = line(agent, host, two)

    assert positions(again) == [0, 1, 2, 3]
    assert [reference.deaths for reference in again] == [1, 1, 0, 0]


def test_late_settlement_of_an_instance_that_lost_its_line_changes_nothing(agent: Agent, database: str) -> None:
    host = ordered(agent, messages=2)
    with living(agent, host) as two, living(agent, host) as three:
        with living(agent, host) as one:
            lost = line(agent, host, one)
            dies(database, one)
        agent.queues.release_dead(host)
        taken = line(agent, host, two)

        settle(agent, host, one, completed=lost[:1], untried=lost[1:])

        assert line(agent, host, three) == []
        assert places(database) == {"claimed": 2}
        settle(agent, host, two, completed=taken)
    assert places(database) == {}


def test_instance_that_takes_a_line_right_after_another_left_it_sees_what_was_put_back(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    host = ordered(agent, messages=4)
    with (
        living(agent, host) as one,
        living(agent, host) as two,
        gate(database, "BEFORE UPDATE ON subqueue_lease") as closed,
        Agent(closed.database) as slow,
    ):
        taking = aside.submit(slow.queues.dequeue_ordered, host, two.instance, limit=9)
        closed.until_reached()
        first = line(agent, host, one, limit=3)
        settle(agent, host, one, completed=first[:1], untried=first[1:])
        closed.open()
        second = taking.result(PATIENCE_SECONDS)

    assert positions(second) == [1, 2, 3]


def test_instance_that_takes_a_line_right_after_another_emptied_it_does_not_keep_it(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    host = ordered(agent, messages=1)
    with living(agent, host) as one, living(agent, host) as two:
        with gate(database, "BEFORE UPDATE ON subqueue_lease") as closed, Agent(closed.database) as slow:
            taking = aside.submit(slow.queues.dequeue_ordered, host, two.instance, limit=9)
            closed.until_reached()
            settle(agent, host, one, completed=line(agent, host, one))
            closed.open()
            assert taking.result(PATIENCE_SECONDS) == []

        agent.publish([a_message(agent, "next")])
        assert len(line(agent, host, one)) == 1


def test_two_who_release_the_dead_at_once_do_not_free_the_line_that_a_new_instance_took_in_between(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    host = ordered(agent, messages=2)
    with living(agent, host) as one:
        line(agent, host, one)
        dies(database, one)
    with gate(database, f"BEFORE DELETE ON claimed_{host}") as closed, Agent(closed.database) as slow:
        releasing = aside.submit(slow.queues.release_dead, host)
        closed.until_reached()
        assert agent.queues.release_dead(host) == 2
        with living(agent, host) as two, living(agent, host) as three:
            assert positions(line(agent, host, two, limit=1)) == [0]
            closed.open()
            releasing.result(PATIENCE_SECONDS)

            assert line(agent, host, three) == []


def test_reference_with_a_low_number_that_comes_late_to_an_ordered_line_is_still_delivered(
    agent: Agent, database: str
) -> None:
    host = ordered(agent, messages=0)
    with living(agent, host) as life:
        with publisher_before_its_commit(agent, database, a_message(agent, "slow")):
            agent.publish([a_message(agent, "fast")])
            settle(agent, host, life, completed=line(agent, host, life))

        assert len(line(agent, host, life)) == 1


def test_ordered_port_that_moves_to_another_host_leaves_nothing_behind(agent: Agent, database: str) -> None:
    old = ordered(agent, messages=2)
    agent.subscriptions.deploy(an_application("Line", host="Other", ordered=True))
    agent.publish([a_message(agent, "after")])

    for host in (old, agent.configuration.hosts()["Other"]):
        with living(agent, host) as life:
            settle(agent, host, life, completed=line(agent, host, life))

    assert places(database) == {}


def test_what_is_put_back_after_its_ordered_port_moved_to_another_host_is_not_left_behind(agent: Agent) -> None:
    old = ordered(agent, messages=3)
    with living(agent, old) as life:
        claimed = line(agent, old, life)
        agent.subscriptions.deploy(an_application("Line", host="Other", ordered=True))
        settle(agent, old, life, completed=claimed[:1], untried=claimed[1:])

    assert positions(found_anywhere(agent)) == [1, 2]


def test_what_a_dead_instance_had_claimed_before_its_ordered_port_moved_is_not_left_behind(
    agent: Agent, database: str
) -> None:
    old = ordered(agent, messages=2)
    with living(agent, old) as life:
        line(agent, old, life)
        agent.subscriptions.deploy(an_application("Line", host="Other", ordered=True))
        dies(database, life)

    assert positions(found_anywhere(agent)) == [0, 1]


def test_what_is_being_put_back_while_its_ordered_port_moves_is_not_left_behind(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    old = ordered(agent, messages=2)
    with living(agent, old) as life:
        claimed = line(agent, old, life)
        with gate(database, "AFTER INSERT ON queue") as closed, Agent(closed.database) as slow:
            settling = aside.submit(settle, slow, old, life, completed=claimed[:1], untried=claimed[1:])
            closed.until_reached()
            moving = aside.submit(agent.subscriptions.deploy, an_application("Line", host="Other", ordered=True))
            until(lambda: moving.done() or waiting(database) == 2, PATIENCE_SECONDS)
            closed.open()
            settling.result(PATIENCE_SECONDS)
        assert moving.result(PATIENCE_SECONDS)

    assert positions(found_anywhere(agent)) == [1]


def test_what_is_being_released_while_its_ordered_port_moves_is_not_left_behind(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    old = ordered(agent, messages=2)
    with living(agent, old) as life:
        line(agent, old, life)
        dies(database, life)
    with gate(database, "AFTER INSERT ON queue") as closed, Agent(closed.database) as slow:
        releasing = aside.submit(slow.queues.release_dead, old)
        closed.until_reached()
        moving = aside.submit(agent.subscriptions.deploy, an_application("Line", host="Other", ordered=True))
        until(lambda: moving.done() or waiting(database) == 2, PATIENCE_SECONDS)
        closed.open()
        releasing.result(PATIENCE_SECONDS)
    assert moving.result(PATIENCE_SECONDS)

    assert positions(found_anywhere(agent)) == [0, 1]


def found_anywhere(agent: Agent) -> list[Reference]:
    """What instances of all hosts find, once the dead are released."""
    ReleaseDead(agent).run_once()
    found = []
    for host in agent.configuration.hosts().values():
        with living(agent, host) as life:
            found += line(agent, host, life)
    return found


def ordered(agent: Agent, *, messages: int) -> int:
    """Messages on the line of an ordered port; gives the host."""
    agent.subscriptions.deploy(an_application("Line", ordered=True))
    agent.publish([a_message(agent, messages=messages)])
    return ids(agent)[1]


def line(agent: Agent, host: int, life: Lifeline, *, limit: int = 100) -> list[Reference]:
    return agent.queues.dequeue_ordered(host, life.instance, limit=limit)


def settle(
    agent: Agent, host: int, life: Lifeline, *, completed: list[Reference], untried: list[Reference] | None = None
) -> None:
    """Give up the only ordered line."""
    [service] = [service for service, _, _ in agent.configuration.services()]
    back = [reference.sequence for reference in untried or []]
    outcome = settling.SubqueueOutcome([reference.sequence for reference in completed], untried=back)
    settling.settle_subqueue(agent, host, life.instance, service, outcome)


def positions(references: list[Reference]) -> list[int]:
    """The place of each message in its source."""
    return [int(reference.message.body.split(b"/")[1]) for reference in references]
