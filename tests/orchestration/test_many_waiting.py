"""Many instances that wait for the same value: what one publication may cost is bounded, and the rest goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.errors import TooManyMessagesError
from crossdock.messagebox.agent import Agent
from express import rows, unbalanced
from running import deploy, message, publish

WAITS = """
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def wait(process: Process, order: Message) -> None:
    await process.receive(case)
"""


@pytest.fixture
def waiting(agent: Agent, folder: Path) -> Agent:
    deploy(agent, folder, WAITS, "wait", bind="{}")
    return agent


def test_body_of_orders_and_payments_that_all_have_one_value_is_refused(waiting: Agent) -> None:
    hostile = [message(waiting, type_, "a") for type_ in ("Order", "Payment") for _ in range(600)]

    with pytest.raises(TooManyMessagesError, match="send them in parts"):
        publish(waiting, *hostile)

    assert rows(waiting.database, "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM instance)") == [(0, 0)]
    assert publish(waiting, *hostile[590:610]).references == 10 + 10 * 10
    assert unbalanced(waiting.database) == []


def test_messages_for_which_very_many_instances_wait_are_given_in_parts_only(waiting: Agent) -> None:
    publish(waiting, *(message(waiting, "Order", "a") for _ in range(600)))
    payments = [message(waiting, "Payment", "a") for _ in range(600)]

    with pytest.raises(TooManyMessagesError):
        publish(waiting, *payments)

    assert publish(waiting, *payments[:3]).references == 3 * 600
    assert unbalanced(waiting.database) == []


def test_many_messages_for_one_instance_and_one_message_for_many_are_given(waiting: Agent) -> None:
    publish(waiting, *(message(waiting, "Order", "a") for _ in range(1_000)), message(waiting, "Order", "b"))

    many = publish(waiting, *(message(waiting, "Payment", "b") for _ in range(1_000)))
    one = publish(waiting, message(waiting, "Payment", "a"))

    assert (many.references, one.references) == (1_000, 1_000)
