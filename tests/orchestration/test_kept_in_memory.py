"""What a host keeps of running instances in memory: no more than they need, and no more than there is room for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from crossdock.message.message import Message, Part
from crossdock.messagebox.agent import Agent
from crossdock.orchestration import runs, task, work
from crossdock.orchestration.commit import Commits
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


HOLDING = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def buy(process: Process, order: Message) -> None:
    lines = order.json()
    await process.receive(case)
    await process.send(out, process.message("Note", {"id": order["OrderId"], "amount": len(lines)}))
"""


def large(agent: Agent, name: str) -> Message:
    """Its values take twenty times its bytes."""
    order = message(agent, "Order", name)
    return Message(order.id, order.context, (Part("body", b"[" + b"[]," * 40_000 + b"[]]"),))


def test_values_in_the_large_bodies_of_many_instances_are_not_in_memory_at_once(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, HOLDING, "buy")
    names = [f"n{number}" for number in range(20)]
    publish(agent, *(large(agent, name) for name in names))

    tracemalloc.start()
    with engine(agent):
        settled(agent)
        publish(agent, *(message(agent, "Payment", name) for name in names))
        settled(agent)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [body["amount"] for _, body in sent(agent)] == [40_001] * 20
    assert peak < 25_000_000
    clean(agent)


def test_large_messages_that_are_sent_are_committed_apart(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "TOGETHER_BYTES", 40)
    monkeypatch.setattr(work, "TOGETHER_BYTES", 40)
    committed: list[int] = []
    commit = Commits.commit

    def noted(commits: Commits, instance: int, outcomes: Sequence[task.Outcome]) -> None:
        committed.append(len(outcomes))
        commit(commits, instance, outcomes)

    monkeypatch.setattr(Commits, "commit", noted)
    deploy(agent, folder, WATCH, "watch")
    publish(agent, *(message(agent, "Order", name) for name in "abcd"))
    with engine(agent):
        settled(agent)
        committed.clear()
        publish(agent, *(message(agent, "Payment", name, 0) for name in "abcd"))
        settled(agent)

    assert max(committed) <= 2  # each sends 21 bytes
    assert len(sent(agent)) == 4
    clean(agent)
