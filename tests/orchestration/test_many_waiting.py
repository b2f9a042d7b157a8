"""Many instances that wait for the same value: what one publication may cost is bounded, and the rest goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import acting
from crossdock.errors import TooManyMessagesError
from crossdock.messagebox import decide
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


@pytest.mark.parametrize(("most", "result"), [(50, "routed"), (20, "still suspended: so many running instances")])
def test_messages_for_which_many_instances_wait_now_are_resumed_in_parts_or_stay(
    waiting: Agent, monkeypatch: pytest.MonkeyPatch, most: int, result: str
) -> None:
    unrouted = [message(waiting, "Payment", "a") for _ in range(3)]
    publish(waiting, *unrouted, message(waiting, "Payment", "b"))
    publish(waiting, *(message(waiting, "Order", "a") for _ in range(30)))
    monkeypatch.setattr(decide, "_FOLLOWING_IN_ANY_CASE", most)
    monkeypatch.setattr(decide, "_FOLLOWING_FOR_EACH", 0)

    resumed = acting.resume(waiting, [], everything=True)

    results = {each.id: each.result for each in resumed}
    assert all(results[str(each.id)].startswith(result) for each in unrouted)
    assert list(results.values()).count("still nobody wants it") == 1
    assert unbalanced(waiting.database) == []


def test_many_messages_for_one_instance_and_one_message_for_many_are_given(waiting: Agent) -> None:
    publish(waiting, *(message(waiting, "Order", "a") for _ in range(1_000)), message(waiting, "Order", "b"))

    many = publish(waiting, *(message(waiting, "Payment", "b") for _ in range(1_000)))
    one = publish(waiting, message(waiting, "Payment", "a"))

    assert (many.references, one.references) == (1_000, 1_000)
