"""A port that becomes ordered while messages wait for it: they keep their order, after what is in flight."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

import pytest

import settling
from box import PROPERTIES
from crossdock.host.outcome import Complete, Outcome
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.settle import Suspend
from express import a_message, deploy, living, port, publish, rows, unbalanced
from server_clock import shift_clock
from service import Partner, publish_named, running
from walk import until


@pytest.fixture
def life(agent: Agent) -> Iterator[Lifeline]:
    unordered(agent)
    with living(agent) as made:
        yield made


def unordered(agent: Agent) -> None:
    deploy(agent, port("Out", "Region = 'NO'"), port("Other", "Region = 'SE'"))


def ordered(agent: Agent) -> None:
    deploy(agent, port("Out", "Region = 'NO'", ordered=True), port("Other", "Region = 'SE'"))


def host(agent: Agent) -> int:
    return agent.configuration.hosts()["Default"]


def claimed(agent: Agent, life: Lifeline, limit: int = 100) -> dict[str, int]:
    """What is claimed from the shared queue: names with their sequences."""
    found = agent.queues.dequeue(host(agent), life.instance, limit=limit)
    return {each.message.body.decode(): each.sequence for each in found}


def in_line(agent: Agent, life: Lifeline) -> list[str]:
    agent.queues.unblock_subqueues(host(agent))
    found = agent.queues.dequeue_ordered(host(agent), life.instance, limit=100)
    return [each.message.body.decode() for each in found]


def test_what_waits_goes_into_the_line_and_the_line_waits_for_what_is_claimed(
    agent: Agent, database: str, life: Lifeline
) -> None:
    publish_named(agent, *(f"{n:02}" for n in range(1, 11)))
    first = claimed(agent, life, limit=4)
    ordered(agent)
    publish_named(agent, "11", "12")

    assert (list(first), claimed(agent, life), in_line(agent, life)) == (["01", "02", "03", "04"], {}, [])

    settling.complete(agent, host(agent), life.instance, [first["01"]])
    settling.retry(agent, host(agent), life.instance, [(first["02"], timedelta(minutes=5), "down")])
    settling.give_back(agent, host(agent), life.instance, [first["03"]])
    settling.suspend(agent, host(agent), life.instance, [(first["04"], "refused")])

    # One is still to be tried again, and comes before the others.
    assert in_line(agent, life) == []
    assert agent.queues.requeue_due(host(agent)) == 0
    shift_clock(database, timedelta(minutes=6))
    assert agent.queues.requeue_due(host(agent)) == 1
    assert (claimed(agent, life), in_line(agent, life)) == ({}, [f"{n:02}" for n in (2, 3, *range(5, 13))])
    [failed] = agent.suspended.messages()
    agent.suspended.resume([failed.id])
    assert claimed(agent, life) == {}


@pytest.mark.usefixtures("no_grace")
def test_what_a_dead_instance_had_claimed_goes_into_the_line_too(agent: Agent, life: Lifeline) -> None:
    publish_named(agent, "1", "2", "3")
    with living(agent) as other:
        assert list(claimed(agent, other, limit=2)) == ["1", "2"]
        ordered(agent)
        assert in_line(agent, life) == []

    until(lambda: agent.queues.release_dead(host(agent)) == 2)

    assert (claimed(agent, life), in_line(agent, life)) == ({}, ["1", "2", "3"])


def test_line_that_nobody_has_anything_of_in_hand_goes_on_at_once(agent: Agent, life: Lifeline) -> None:
    publish_named(agent, "1", "2")

    ordered(agent)

    found = agent.queues.dequeue_ordered(host(agent), life.instance, limit=100)
    assert [each.message.body.decode() for each in found] == ["1", "2"]


def test_ports_in_groups_share_the_line_of_their_port(agent: Agent) -> None:
    def grouped(*, is_ordered: bool) -> None:
        member = port("G/Out", "Region = 'NO'", ordered=is_ordered, group="G", port="Out")
        ports = [port("Out", "Region = 'NO'", ordered=is_ordered), member]
        agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], ports, {"Default": ()}, ("G",)))
        agent.subscriptions.start("G")

    grouped(is_ordered=False)
    publish_named(agent, "1", "2")
    with living(agent) as life:
        claims = agent.queues.dequeue(host(agent), life.instance, limit=1)
        grouped(is_ordered=True)
        assert in_line(agent, life) == []

        settling.complete(agent, host(agent), life.instance, [each.sequence for each in claims])
        assert (claimed(agent, life), in_line(agent, life)) == ({}, ["1", "2", "2"])


def test_claims_made_while_a_port_becomes_ordered_are_made_once_and_before_its_line(
    agent: Agent, database: str, life: Lifeline
) -> None:
    names = [f"{n:04}" for n in range(600)]
    publish_named(agent, *names)
    begun, stop = Event(), Event()

    def claim_some() -> dict[str, int]:
        mine: dict[str, int] = {}
        with Agent(database, connections=1) as other:
            while not stop.is_set():
                mine |= claimed(other, life, limit=3)
                begun.set()
        return mine

    with ThreadPoolExecutor(2) as pool:
        claims = [pool.submit(claim_some) for _ in range(2)]
        assert begun.wait(30)
        ordered(agent)
        stop.set()
        taken = {**claims[0].result(), **claims[1].result()}
    before = in_line(agent, life)
    settling.complete(agent, host(agent), life.instance, list(taken.values()))
    after = in_line(agent, life)

    assert claimed(agent, life) == {}
    assert (before, after) == ([], [name for name in names if name not in taken][:100])
    assert unbalanced(database) == []


def test_host_delivers_what_it_has_in_hand_and_then_the_line_in_its_order(agent: Agent, database: str) -> None:
    held = Event()

    def answer(name: str, _: int) -> Outcome:
        if name in ("1", "2"):
            assert held.wait(60)
        return Complete()

    unordered(agent)
    publish_named(agent, "1", "2")
    partner = Partner(answer)
    with running(agent, partner, workers=8):
        until(lambda: agent.statistics().claimed == 2)
        ordered(agent)
        publish_named(agent, *(str(n) for n in range(3, 10)))
        assert rows(database, "SELECT blocked_by FROM subqueue_lease") == [(0,)]
        held.set()
        until(lambda: len(partner.got) == 9)

    assert (set(partner.got[:2]), partner.got[2:]) == ({"1", "2"}, [str(n) for n in range(3, 10)])


def test_port_that_becomes_ordered_at_another_host_waits_for_what_the_old_one_has_in_hand(
    agent: Agent, life: Lifeline
) -> None:
    publish_named(agent, "1", "2")
    first = claimed(agent, life, limit=1)

    deploy(agent, port("Out", "Region = 'NO'", host="Elsewhere", ordered=True), port("Other", "Region = 'SE'"))

    with living(agent, "Elsewhere") as there:
        elsewhere = agent.configuration.hosts()["Elsewhere"]
        agent.queues.unblock_subqueues(elsewhere)
        assert agent.queues.dequeue_ordered(elsewhere, there.instance, limit=100) == []

        settling.complete(agent, host(agent), life.instance, list(first.values()))
        agent.queues.unblock_subqueues(elsewhere)
        found = agent.queues.dequeue_ordered(elsewhere, there.instance, limit=100)
        assert [each.message.body.decode() for each in found] == ["2"]


def test_stopped_line_that_moves_to_a_host_without_the_label_stays_stopped(agent: Agent) -> None:
    labels = {"Default": ["secret"], "Elsewhere": ()}
    deploy(agent, port("Out", "Region = 'NO'", ordered=True), hosts=labels)
    publish(agent, a_message(agent, {"Region": "NO"}, labels=["secret"]))
    publish(agent, {"Region": "NO"})
    with living(agent) as life:
        [failed] = agent.queues.dequeue_ordered(host(agent), life.instance, limit=1)
        outcome = settling.SubqueueOutcome(suspended=[(failed.sequence, "refused")], stopped_by=failed.sequence)
        settling.settle_subqueue(agent, host(agent), life.instance, failed.service_id, outcome)

    deploy(agent, port("Out", "Region = 'NO'", host="Elsewhere", ordered=True), hosts=labels)

    with living(agent, "Elsewhere") as there:
        elsewhere = agent.configuration.hosts()["Elsewhere"]
        agent.queues.unblock_subqueues(elsewhere)
        assert agent.queues.dequeue_ordered(elsewhere, there.instance, limit=100) == []
        agent.suspended.terminate([failed.message.id])
        agent.queues.unblock_subqueues(elsewhere)
        assert len(agent.queues.dequeue_ordered(elsewhere, there.instance, limit=100)) == 1


def test_line_that_a_failure_has_stopped_waits_for_what_began_out_of_order_too(agent: Agent, life: Lifeline) -> None:
    ordered(agent)
    publish(agent, {"Region": "NO"})
    [failed] = agent.queues.dequeue_ordered(host(agent), life.instance, limit=1)
    agent.settle(life.instance, [Suspend(failed, "refused", stops=True)], lease=failed)
    unordered(agent)
    publish(agent, {"Region": "NO"})
    [begun] = agent.queues.dequeue(host(agent), life.instance, limit=9)
    ordered(agent)
    publish(agent, {"Region": "NO"})

    agent.suspended.terminate([failed.message.id])
    agent.queues.unblock_subqueues(host(agent))
    assert agent.queues.dequeue_ordered(host(agent), life.instance, limit=9) == []

    settling.complete(agent, host(agent), life.instance, [begun.sequence])
    agent.queues.unblock_subqueues(host(agent))
    assert len(agent.queues.dequeue_ordered(host(agent), life.instance, limit=9)) == 1


def test_what_a_former_member_of_a_group_was_given_goes_into_the_line_of_its_port(agent: Agent) -> None:
    member = port("G/Out", "Region = 'NO'", group="G", port="Out")
    hosts = {"Default": ()}
    agent.subscriptions.deploy(
        Deployment("orders", PROPERTIES, [], [port("Out", "Region = 'NO'"), member], hosts, ("G",))
    )
    publish(agent, {"Region": "NO"}, {"Region": "NO"})
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], [port("Out", "Region = 'NO'")], hosts))
    agent.subscriptions.deploy(
        Deployment("orders", PROPERTIES, [], [port("Out", "Region = 'NO'", ordered=True)], hosts)
    )

    with living(agent) as life:
        assert agent.queues.dequeue(host(agent), life.instance, limit=9) == []
        line = agent.queues.dequeue_ordered(host(agent), life.instance, limit=9)

    assert [reference.sequence for reference in line] == [1, 2, 3, 4]
