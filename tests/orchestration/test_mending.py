"""An instance that its code has suspended: it goes on with mended code that replays its history, or is cancelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.messagebox.agent import Agent
from running import clean, deploy, instances, message, publish, run, sent

FRAGILE = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])


@orchestration(Receive("Order", initializes=case))
async def fragile(process: Process, order: Message) -> None:
    {first}
    async with process.scope() as scope:
        scope.compensate(process.send, out, process.message("Note", {{"id": "undo", "amount": 0}}))
        await process.send(out, process.message("Note", {{"id": "invoice", "amount": {amount}}}))
        await process.receive(case)
        {then}
    await process.send(out, process.message("Note", {{"id": "ship", "amount": 1}}))
"""
FAILS = 'raise ValueError("a mistake")'


def flow(first: str = "", then: str = "", amount: int = 1) -> str:
    return FRAGILE.format(first=first or "pass", then=then or "pass", amount=amount)


@pytest.fixture
def suspended(agent: Agent, folder: Path) -> Agent:
    """One instance that has sent its invoice and fails at its payment."""
    deploy(agent, folder, flow(then=FAILS), "fragile")
    publish(agent, message(agent, "Order", "a"))
    run(agent)
    publish(agent, message(agent, "Payment", "a"))
    run(agent)
    assert instances(agent) == [("fragile", "suspended", 1)]
    assert [each["id"] for _, each in sent(agent)] == ["invoice"]
    return agent


def resume(agent: Agent) -> None:
    agent.instances.resume([each.id for each in agent.instances.list()])
    run(agent)


def test_mended_code_that_replays_the_history_goes_on_from_the_failed_step(suspended: Agent, folder: Path) -> None:
    deploy(suspended, folder, flow(), "fragile")

    resume(suspended)

    assert [each["id"] for _, each in sent(suspended)] == ["ship"]
    clean(suspended)


def test_code_that_does_not_replay_the_history_leaves_the_instance_on_its_own(suspended: Agent, folder: Path) -> None:
    [before] = suspended.instances.list()
    deploy(suspended, folder, flow(amount=2), "fragile")

    resume(suspended)

    [row] = suspended.instances.list()
    assert (row.state, row.version) == ("suspended", before.version)
    assert "a mistake" in str(row.reason)
    assert sent(suspended) == []


def test_instance_that_failed_in_its_first_step_begins_with_the_mended_code(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, flow(first=FAILS), "fragile")
    publish(agent, message(agent, "Order", "a"))
    publish(agent, message(agent, "Payment", "a"))
    run(agent)
    deploy(agent, folder, flow(), "fragile")

    resume(agent)

    assert [each["id"] for _, each in sent(agent)] == ["invoice", "ship"]
    clean(agent)


def test_cancelled_instance_compensates_before_it_meets_what_made_it_fail(suspended: Agent) -> None:
    suspended.instances.cancel([each.id for each in suspended.instances.list()])
    run(suspended)

    assert instances(suspended) == []
    assert [each["id"] for _, each in sent(suspended)] == ["undo"]
    assert [each.kind for each in suspended.suspended.messages()] == ["discarded"]


def test_cancelled_instance_that_never_did_a_step_ends_without_running_code(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, flow(first=FAILS), "fragile")
    publish(agent, message(agent, "Order", "a"))
    publish(agent, message(agent, "Payment", "a"))
    run(agent)

    agent.instances.cancel([each.id for each in agent.instances.list()])
    run(agent)

    assert (instances(agent), sent(agent)) == ([], [])
    assert [each.kind for each in agent.suspended.messages()] == ["discarded"]
