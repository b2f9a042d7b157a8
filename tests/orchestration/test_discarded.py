"""What an instance ended without taking is routed again when it is resumed, and nobody is given it twice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import acting
from crossdock.message.message import Message
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedPort, Deployment
from crossdock.subscription.text import parse_filter
from express import at_ports, rows, unbalanced
from running import clean, deploy, instances, message, publish, run, sent
from server_clock import shift_clock

FLOW = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])


@orchestration(Receive("Order", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    if order["Amount"] == 0:
        await process.delay(timedelta(hours=1))
        return
    for _ in range(order["Amount"]):
        paid = await process.receive(case)
        await process.send(out, process.message("Note", {"id": order["OrderId"], "amount": paid["Amount"]}))
"""
LOT = """
out = Port("Out")
lot = Correlation("OrderId", types=["Line"])


@orchestration(Receive("Line", initializes=lot))
async def collect(process: Process, first: Message) -> None:
    second = await process.receive(lot)
    await process.send(out, process.message("Note", {"id": first["OrderId"], "amount": second["Amount"]}))
"""


@pytest.fixture
def shop(agent: Agent, folder: Path) -> Agent:
    deploy(agent, folder, FLOW, "fulfil")
    return agent


def discarded(agent: Agent, *, order: str = "a") -> Message:
    """A second payment, which came before the instance ended with the first."""
    publish(agent, message(agent, "Order", order))
    first, second = message(agent, "Payment", order, 1), message(agent, "Payment", order, 2)
    publish(agent, first)
    publish(agent, second)
    run(agent)
    assert sent(agent) == [("Note", {"id": order, "amount": 1})]
    assert [(row.id, row.kind) for row in agent.suspended.messages()] == [(second.id, "discarded")]
    return second


def results(agent: Agent, *messages: Message) -> list[str]:
    return [row.result for row in acting.resume(agent, [str(each.id) for each in messages], everything=True)]


def deploy_port(agent: Agent, name: str, filter_: str) -> None:
    """Another application, whose port wants messages too."""
    port = DeployedPort(name, "Default", 5, parse_filter(PropertyRegistry([]), filter_), {})
    agent.subscriptions.deploy(Deployment(name, {}, [], [port]))


def test_discarded_message_is_given_to_the_next_instance_when_it_is_resumed(shop: Agent) -> None:
    payment = discarded(shop)
    publish(shop, message(shop, "Order", "a"))

    assert results(shop, payment) == ["routed"]

    run(shop)
    assert sent(shop) == [("Note", {"id": "a", "amount": 2})]
    assert shop.suspended.messages() == []
    clean(shop)


def test_discarded_message_that_nobody_wants_stays_and_says_so(shop: Agent) -> None:
    payment = discarded(shop)

    assert results(shop, payment) == ["still nobody wants it"]

    assert [(row.id, row.kind) for row in shop.suspended.messages()] == [(payment.id, "discarded")]
    assert unbalanced(shop.database) == []


def test_discarded_message_goes_to_who_was_enlisted_since_and_not_again_to_who_was_given_it(shop: Agent) -> None:
    deploy_port(shop, "Archive", "MessageType = 'Payment'")
    payment = discarded_and_archived(shop)
    assert results(shop, payment) == ["still nobody wants it"]
    deploy_port(shop, "Late", "MessageType = 'Payment'")
    shop.subscriptions.stop("Archive")
    shop.subscriptions.start("Archive")

    assert results(shop, payment) == ["routed"]

    assert at_ports(shop) == {"Late": 1}
    assert shop.suspended.messages() == []
    assert unbalanced(shop.database) == []


def discarded_and_archived(agent: Agent) -> Message:
    payment = discarded(agent)  # `sent` settles what the archive was given
    assert at_ports(agent) == {}
    return payment


def test_instance_that_has_a_message_is_not_given_it_again(shop: Agent, database: str) -> None:
    publish(shop, message(shop, "Order", "a", 0), message(shop, "Order", "a", 2))
    run(shop)
    payment = message(shop, "Payment", "a", 7)
    assert publish(shop, payment).references == 2
    run(shop)
    shift_clock(database, timedelta(hours=2))
    run(shop)
    assert [row.kind for row in shop.suspended.messages()] == ["discarded"]

    assert results(shop, payment) == ["still nobody wants it"]

    assert instances(shop) == [("fulfil", "running", 2)]
    assert sent(shop) == [("Note", {"id": "a", "amount": 7})]


def test_message_that_two_instances_discarded_is_given_to_the_next_one_once(shop: Agent, database: str) -> None:
    publish(shop, message(shop, "Order", "a", 0), message(shop, "Order", "a", 0))
    run(shop)
    payment = message(shop, "Payment", "a", 7)
    publish(shop, payment)
    run(shop)
    shift_clock(database, timedelta(hours=2))
    run(shop)
    assert [row.kind for row in shop.suspended.messages()] == ["discarded", "discarded"]
    publish(shop, message(shop, "Order", "a", 1))

    assert results(shop, payment) == ["routed", "routed"]

    assert unbalanced(database) == []
    run(shop)
    assert sent(shop) == [("Note", {"id": "a", "amount": 7})]
    assert shop.suspended.messages() == []
    clean(shop)


def test_order_of_an_instance_that_was_terminated_before_it_began_begins_another(shop: Agent) -> None:
    order = message(shop, "Order", "a")
    publish(shop, order)
    [row] = shop.instances.list()
    shop.instances.terminate([row.id])
    assert [(row.id, row.kind) for row in shop.suspended.messages()] == [(order.id, "discarded")]

    assert results(shop, order) == ["routed"]

    publish(shop, message(shop, "Payment", "a", 3))
    run(shop)
    assert sent(shop) == [("Note", {"id": "a", "amount": 3})]
    clean(shop)


def test_line_that_came_too_late_for_its_convoy_begins_the_next_one(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, LOT, "collect")
    lines = [message(agent, "Line", "a", number) for number in range(3)]
    publish(agent, *lines)
    run(agent)
    assert sent(agent) == [("Note", {"id": "a", "amount": 1})]

    assert results(agent, lines[2]) == ["routed"]

    publish(agent, message(agent, "Line", "a", 5))
    run(agent)
    assert sent(agent) == [("Note", {"id": "a", "amount": 5})]
    assert rows(agent.database, "SELECT count(*) FROM suspended") == [(0,)]
    clean(agent)
