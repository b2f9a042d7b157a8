"""Messages of several parts in a real MessageBox: read and passed on in any step, and cleaned up at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.maintenance.references import CleanReferences
from crossdock.message.message import Message, Part
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.settle import Complete
from express import living, rows
from running import clean, deploy, engine, message, publish, settled

SOURCE = """
from crossdock import Part
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def attach(process: Process, order: Message) -> None:
    if order.json()["amount"] > 0:
        await process.receive(case)
    size = Part("size", b"%d" % len(order.part("scan")))
    await process.send(out, process.message("Note", order.json(), parts=[*order.parts[1:], size]))
"""
SCANS = {
    "comes with the claim": b"\0\xff" * 100,
    "fetched when it is read": bytes(range(256)) * 400,
    "in fragments": bytes(range(256)) * 5_000,
}


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)
@pytest.mark.parametrize("read", ["in the first step", "later", "after a replay"])
def test_parts_are_read_and_passed_on_in_any_step(agent: Agent, folder: Path, read: str, scan: bytes) -> None:
    deploy(agent, folder, SOURCE, "attach")
    order = message(agent, "Order", "a", 0 if read == "in the first step" else 1)
    publish(agent, Message(order.id, order.context, (*order.parts, Part("scan", scan))))

    with engine(agent):
        settled(agent)
        if read == "later":
            publish(agent, message(agent, "Payment", "a"))
            settled(agent)
    if read == "after a replay":
        publish(agent, message(agent, "Payment", "a"))
        with engine(agent):
            settled(agent)

    clean(agent)
    with living(agent) as life:
        [note] = agent.queues.dequeue(agent.configuration.hosts()["Default"], life.instance, limit=10)
        assert [each.name for each in note.message.parts] == ["body", "scan", "size"]
        assert (note.message.part("scan"), note.message.part("size")) == (scan, b"%d" % len(scan))
        agent.settle(life.instance, [Complete(note)])
    for _ in range(2):  # a part goes in the round after its message
        CleanReferences(agent).run_once()
    for table in ("message", "part", "fragment", "message_ref_total", "part_ref_total"):
        assert rows(agent.database, f"SELECT count(*) FROM {table}") == [(0,)], table
