"""Timers: those of suspended instances are not looked at, and those that a dead process had in hand are tried alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from crossdock.messagebox.agent import Agent
from express import living, rows
from interleave import dies, gate
from running import clean, deploy, instances, message, publish, run, sent
from server_clock import shift_clock
from walk import until

FLOW = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])


@orchestration(Receive("Order", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    paid = await process.receive(case, timeout=timedelta(hours=1))
    if paid is not None and paid["Amount"] < 0:
        raise ValueError("a mistake")
    await process.send(out, process.message("Note", {"id": order["OrderId"], "amount": 0 if paid is None else 1}))
"""


@pytest.fixture
def waiting(agent: Agent, folder: Path) -> Agent:
    """Two instances that wait for an hour."""
    deploy(agent, folder, FLOW, "fulfil")
    publish(agent, message(agent, "Order", "a"), message(agent, "Order", "b"))
    run(agent)
    return agent


def host(agent: Agent) -> int:
    return agent.configuration.hosts()["Default"]


def instance_of(agent: Agent, order: str) -> UUID:
    [found] = [each.id for each in agent.instances.list() if each.promoted["OrderId"] == order]
    return found


def test_timer_of_a_suspended_instance_is_not_looked_at_until_it_is_resumed(waiting: Agent, database: str) -> None:
    publish(waiting, message(waiting, "Payment", "a", -1))
    run(waiting)
    assert sorted(instances(waiting)) == [("fulfil", "running", 1), ("fulfil", "suspended", 1)]
    shift_clock(database, timedelta(hours=2))

    due = [each.instance for each in waiting.instances.due(host(waiting), limit=10)]

    assert due == [instance_of(waiting, "b")]
    waiting.instances.terminate(due)
    assert waiting.instances.next_due(host(waiting)) is None
    [row] = waiting.instances.list()
    assert waiting.instances.resume([row.id]) == [row.id]
    assert sorted(each.number for each in waiting.instances.due(host(waiting), limit=10)) == [0, 1]


def test_suspended_instance_that_is_cancelled_is_woken(waiting: Agent) -> None:
    publish(waiting, message(waiting, "Payment", "a", -1), message(waiting, "Payment", "b", 1))
    run(waiting)
    [row] = waiting.instances.list()

    waiting.instances.cancel([row.id])
    run(waiting)

    assert sent(waiting) == [("Note", {"id": "b", "amount": 1})]
    assert [each.kind for each in waiting.suspended.messages()] == ["discarded"]
    clean(waiting)


def died(agent: Agent, *noted: UUID, alone: UUID | None = None) -> None:
    """A host instance has timers of these instances in hand, or tries one alone, and dies."""
    with living(agent) as life:
        tried = [] if alone is None else [alone]
        assert agent.queues.note_steps(host(agent), life.instance, [*noted, *tried], alone=tried)

    def released() -> bool:
        agent.queues.release_dead(host(agent))
        return rows(agent.database, "SELECT FROM host_instance") == []

    until(released, 20)


@pytest.mark.usefixtures("no_grace")
def test_timer_that_was_only_in_hand_counts_one_death_however_many_processes_die(waiting: Agent, database: str) -> None:
    shift_clock(database, timedelta(hours=2))
    guilty, innocent = instance_of(waiting, "a"), instance_of(waiting, "b")

    for _ in range(3):
        died(waiting, guilty, innocent)
    for _ in range(3):
        died(waiting, innocent, alone=guilty)

    found = {each.instance: each.deaths for each in waiting.instances.due(host(waiting), limit=10)}
    assert found == {guilty: 4, innocent: 1}
    run(waiting)
    assert [(each.id, each.code) for each in waiting.instances.list()] == [(guilty, "too-many-deaths")]
    assert sent(waiting) == [("Note", {"id": "b", "amount": 0})]
    waiting.instances.resume([guilty])
    run(waiting)
    assert sent(waiting) == [("Note", {"id": "a", "amount": 0})]
    clean(waiting)


@pytest.mark.usefixtures("no_grace")
def test_death_is_counted_once_by_two_who_release_the_dead_at_once(waiting: Agent, database: str) -> None:
    shift_clock(database, timedelta(hours=2))
    guilty = instance_of(waiting, "a")
    died(waiting, alone=guilty)
    life = waiting.queues.lifeline(host(waiting))
    life.hold()
    assert waiting.queues.note_steps(host(waiting), life.instance, [guilty], alone=[guilty])
    dies(database, life)

    with (
        gate(database, f"BEFORE DELETE ON claimed_{host(waiting)}") as closed,
        Agent(closed.database) as slow,
        ThreadPoolExecutor() as aside,
    ):
        releasing = aside.submit(slow.queues.release_dead, host(waiting))
        closed.until_reached()
        waiting.queues.release_dead(host(waiting))
        closed.open()
        releasing.result(20)

    assert {each.instance: each.deaths for each in waiting.instances.due(host(waiting), limit=10)}[guilty] == 2


@pytest.mark.usefixtures("no_grace")
def test_timer_of_which_nothing_was_noted_counts_no_death(waiting: Agent, database: str) -> None:
    shift_clock(database, timedelta(hours=2))

    died(waiting)

    assert {each.deaths for each in waiting.instances.due(host(waiting), limit=10)} == {0}
