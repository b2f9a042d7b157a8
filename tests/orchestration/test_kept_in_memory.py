"""What a host keeps of running instances in memory: no more than they need, and no more than there is room for."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.messagebox.agent import Agent
from crossdock.orchestration import runs
from crossdock.orchestration.engine import Engine
from crossdock.orchestration.task import Live
from running import clean, deploy, engine, message, publish, sent, settled

WATCH = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def watch(process: Process, order: Message, seen: int = 0) -> None:
    payment = await process.receive(case)
    if payment["Amount"] == 0:
        await process.send(out, process.message("Note", {"id": "x", "amount": seen}))
    else:
        await process.continue_with(order, seen + 1)
"""
BATCH = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def batch(process: Process, order: Message) -> None:
    total = 0
    while (payment := await process.receive(case))["Amount"] != 0:
        total += payment["Amount"]
    await process.send(out, process.message("Note", {"id": order["OrderId"], "amount": total}))
"""


def kept(running: Engine) -> list[Live]:
    return list(running._worker._environment.runs._kept.values())


def test_instance_that_goes_on_without_its_history_keeps_no_messages_of_it(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, WATCH, "watch")
    publish(agent, message(agent, "Order", "a"))
    with engine(agent) as running:
        for number in range(1, 6):
            publish(agent, message(agent, "Payment", "a", number))
            settled(agent)

        [live] = kept(running)
        assert len(live.tools.messages) == 1  # the order, which is an argument
        publish(agent, message(agent, "Payment", "a", 0))
        settled(agent)

    assert sent(agent) == [("Note", {"id": "x", "amount": 5})]
    clean(agent)


def test_instance_that_is_replayed_keeps_no_messages_of_others(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, BATCH, "batch")
    publish(agent, *(message(agent, "Order", name) for name in "abc"))
    with engine(agent):
        settled(agent)
    publish(agent, *(message(agent, "Payment", name) for name in "abc"))
    with engine(agent) as running:
        settled(agent)

        assert [len(live.tools.messages) for live in kept(running)] == [2, 2, 2]


def test_instances_whose_messages_have_no_room_are_replayed_when_they_go_on(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_KEPT_BYTES", 10_000)
    deploy(agent, folder, BATCH, "batch")
    publish(agent, *(message(agent, "Order", name) for name in "abc"))
    with engine(agent) as running:
        for amount in (1, 2, 3):
            publish(agent, *(message(agent, "Payment", name, amount) for name in "abc"))
            settled(agent)
        assert len(kept(running)) == 1
        publish(agent, *(message(agent, "Payment", name, 0) for name in "abc"))
        settled(agent)

    assert sorted(body["id"] for _, body in sent(agent)) == ["a", "b", "c"]
    clean(agent)
