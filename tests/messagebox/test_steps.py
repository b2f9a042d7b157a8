"""Steps: what they settle, publish, subscribe and end commits together, and one that lost its claims drops out alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import DivisionByZero

from crossdock.errors import StepLostError, UsageError
from crossdock.message.message import Message
from crossdock.message.publication import Awaited
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.settle import Complete, GiveBack, Suspend
from crossdock.messagebox.step import OpenedStep, Step
from express import a_message, at_ports, claim, deploy, kinds, living, port, publish, rows, unbalanced
from interleave import dies
from walk import until

NORWAY, SWEDEN = {"Region": "NO"}, {"Region": "SE"}


@pytest.fixture
def life(agent: Agent) -> Iterator[Lifeline]:
    deploy(agent, port("Process", "Region = 'NO'"), port("Out", "Region = 'SE'"))
    with living(agent) as made:
        yield made


def host(agent: Agent) -> int:
    return agent.configuration.hosts()["Default"]


def taken(agent: Agent, life: Lifeline, count: int = 1) -> list[Reference]:
    publish(agent, *[NORWAY] * count)
    return claim(agent, life)


def a_step(agent: Agent, life: Lifeline, *references: Reference, publishes: int = 1) -> Step:
    """Completes these references and publishes to the port Out."""
    messages = [a_message(agent, SWEDEN) for _ in range(publishes)]
    return Step(host(agent), life.instance, [Complete(each) for each in references], messages)


def waits(agent: Agent, instance: UUID, amount: int) -> Awaited:
    [service] = [row[0] for row in rows(agent.database, "SELECT id FROM service WHERE name = 'Process'")]
    return Awaited(instance, service, host(agent), {"Amount": amount})


def for_instance(agent: Agent, amount: int) -> Message:
    return a_message(agent, {"Amount": amount})


def test_steps_commit_what_they_settle_and_publish(agent: Agent, database: str, life: Lifeline) -> None:
    first, second, third = taken(agent, life, 3)

    stepped = agent.step(
        [
            a_step(agent, life, first, second),
            Step(host(agent), life.instance, [Suspend(third, "refused")], [a_message(agent, SWEDEN)]),
        ]
    )

    assert [each.done for each in stepped] == [True, True]
    assert at_ports(agent) == {"Out": 2}
    assert (agent.statistics().ports, kinds(agent)) == ({"Process": 2, "Out": 0}, [("send", "Process")])
    assert unbalanced(database) == []


@pytest.mark.usefixtures("no_grace")
def test_step_that_lost_a_claim_drops_out_alone(agent: Agent, database: str, life: Lifeline) -> None:
    [kept] = taken(agent, life)
    with living(agent) as other:
        lost, whole = taken(agent, other, 2)
        dies(database, other)
        agent.queues.release_dead(host(agent))
        half = Step(host(agent), life.instance, [Complete(lost)], [a_message(agent, SWEDEN)])

        stepped = agent.step([a_step(agent, other, lost, whole), a_step(agent, life, kept), half])

    assert [each.done for each in stepped] == [False, True, False]
    assert at_ports(agent) == {"Process": 2, "Out": 1}
    assert unbalanced(database) == []


def test_step_of_a_reference_that_was_claimed_anew_is_not_done(agent: Agent, database: str, life: Lifeline) -> None:
    [before] = taken(agent, life)
    agent.settle(life.instance, [GiveBack(before)])
    [now] = claim(agent, life)

    assert [each.done for each in agent.step([a_step(agent, life, before)])] == [False]
    assert [each.done for each in agent.step([a_step(agent, life, now)])] == [True]
    assert at_ports(agent) == {"Out": 1}
    assert unbalanced(database) == []


def test_step_that_is_done_again_does_nothing(agent: Agent, database: str, life: Lifeline) -> None:
    [reference] = taken(agent, life)
    step = a_step(agent, life, reference)

    in_one_call = [each.done for each in agent.step([step, a_step(agent, life, reference)])]
    again = [each.done for each in agent.step([step])]

    assert (in_one_call, again) == ([True, False], [False])
    assert at_ports(agent) == {"Out": 1}
    assert unbalanced(database) == []


def test_of_two_at_once_one_is_done(agent: Agent, database: str, life: Lifeline) -> None:
    [reference] = taken(agent, life)
    steps = [a_step(agent, life, reference) for _ in range(2)]

    with Agent(database) as another, ThreadPoolExecutor(1) as aside, agent.open_step(steps[0]) as opened:
        later = aside.submit(another.step, [steps[1]])
        until_somebody_waits_in(opened)

    assert [each.done for each in later.result(60)] == [False]
    assert at_ports(agent) == {"Out": 1}
    assert unbalanced(database) == []


def until_somebody_waits_in(opened: OpenedStep) -> None:
    """Until somebody waits for the transaction of the step."""
    waiting = "SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"

    def waits() -> bool:
        opened.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees the same all the time
        return bool(opened.execute(waiting).rowcount)

    until(waits, 30)


def test_instance_that_a_step_subscribes_is_given_what_follows_and_not_what_the_step_publishes(
    agent: Agent, database: str, life: Lifeline
) -> None:
    [reference] = taken(agent, life)
    instance = uuid4()
    step = Step(
        host(agent), life.instance, [Complete(reference)], [for_instance(agent, 7)], [waits(agent, instance, 7)]
    )

    [stepped] = agent.step([step])
    publish(agent, for_instance(agent, 7))

    assert stepped.done
    assert [each.instance for each in claim(agent, life)] == [instance]
    assert kinds(agent) == [("unrouted", None)]
    assert unbalanced(database) == []


def test_step_that_ends_an_instance_collects_what_it_was_given(agent: Agent, database: str, life: Lifeline) -> None:
    [reference] = taken(agent, life)
    instance, message = uuid4(), for_instance(agent, 7)
    agent.step([Step(host(agent), life.instance, subscribes=[waits(agent, instance, 7)])])
    publish(agent, message)

    [stepped] = agent.step([Step(host(agent), life.instance, [Complete(reference)], ends=[instance])])
    publish(agent, for_instance(agent, 7))

    assert (stepped.done, stepped.discarded) == (True, [message.id])
    assert kinds(agent) == [("discarded", "Process"), ("unrouted", None)]
    assert rows(database, "SELECT FROM instance_subscription") == []
    assert unbalanced(database) == []


def test_instance_of_a_step_that_lost_its_claims_goes_on(agent: Agent, life: Lifeline) -> None:
    [reference] = taken(agent, life)
    instance = uuid4()
    agent.step([Step(host(agent), life.instance, subscribes=[waits(agent, instance, 7)])])
    agent.settle(life.instance, [Complete(reference)])

    [stepped] = agent.step([Step(host(agent), life.instance, [Complete(reference)], ends=[instance])])

    assert not stepped.done
    assert publish(agent, for_instance(agent, 7)).references == 1


def test_steps_that_end_themselves_and_publish_to_each_other_do_not_wait_for_each_other(
    agent: Agent, database: str, life: Lifeline
) -> None:
    """Each gives the other its last message, or ends before it: whoever is the second finds nobody."""
    for _ in range(20):
        one, other = uuid4(), uuid4()
        agent.step([Step(host(agent), life.instance, subscribes=[waits(agent, one, 1), waits(agent, other, 2)])])
        both = [
            Step(host(agent), life.instance, publishes=[for_instance(agent, 2)], ends=[one]),
            Step(host(agent), life.instance, publishes=[for_instance(agent, 1)], ends=[other]),
        ]

        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda step: agent.step([step])[0].done, both))

        assert done == [True, True]
    assert len(kinds(agent)) == 40
    assert unbalanced(database) == []


def test_code_in_a_step_commits_with_it_or_not_at_all(agent: Agent, database: str, life: Lifeline) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE public.charge (card text)")
    first, second = taken(agent, life, 2)

    with agent.open_step(a_step(agent, life, first)) as opened:
        opened.execute("INSERT INTO public.charge VALUES (%s)", ["kept"])
    with pytest.raises(DivisionByZero), agent.open_step(a_step(agent, life, second)) as opened:
        opened.execute("INSERT INTO public.charge VALUES ('undone'); SELECT 1 / 0")

    assert rows(database, "SELECT card FROM public.charge") == [("kept",)]
    assert rows(database, "SELECT sequence FROM claimed") == [(second.sequence,)]
    assert at_ports(agent) == {"Process": 1, "Out": 1}
    assert unbalanced(database) == []


def test_step_cannot_be_opened_without_its_claims(agent: Agent, life: Lifeline) -> None:
    [reference] = taken(agent, life)
    agent.settle(life.instance, [Complete(reference)])

    with pytest.raises(StepLostError), agent.open_step(a_step(agent, life, reference)):
        pytest.fail("it was opened")

    assert at_ports(agent) == {}


def test_opened_step_publishes_what_its_code_made(agent: Agent, database: str, life: Lifeline) -> None:
    [reference] = taken(agent, life)
    with agent.open_step(a_step(agent, life, reference, publishes=0)) as opened:
        [(amount,)] = opened.execute("SELECT 3")
        opened.step = replace(opened.step, publishes=[a_message(agent, SWEDEN) for _ in range(amount)])

    assert at_ports(agent) == {"Out": 3}
    assert unbalanced(database) == []


def test_code_that_ends_the_transaction_of_its_step_is_refused(agent: Agent, database: str, life: Lifeline) -> None:
    [reference] = taken(agent, life)

    with (
        pytest.raises(UsageError, match="ended its transaction"),
        agent.open_step(a_step(agent, life, reference)) as opened,
    ):
        opened.execute("COMMIT; BEGIN")

    assert at_ports(agent) == {"Process": 1}
    assert rows(database, "SELECT sequence FROM claimed") == [(reference.sequence,)]


def test_step_is_matched_by_the_subscriptions_at_its_end_and_its_code_runs_once(
    agent: Agent, database: str, life: Lifeline
) -> None:
    [reference] = taken(agent, life)
    runs = 0

    with Agent(database) as another, agent.open_step(a_step(agent, life, reference)) as opened:
        another.subscriptions.stop("Out")
        runs += 1
        opened.execute("SELECT 1")

    assert (runs, at_ports(agent), kinds(agent)) == (1, {}, [("stopped", "Out")])
    assert unbalanced(database) == []
