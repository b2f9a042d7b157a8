"""Histories of instances as files: saved where they run, replayed with other code in a test."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from crossdock import Part
from crossdock.administration.service import Administration
from crossdock.errors import UsageError
from crossdock.testing.orchestrations import OrchestrationFailed, TemporaryMessageBox, messagebox, messagebox_server

__all__ = ["messagebox", "messagebox_server"]

APPLICATION = """
application: shop
properties: {OrderId: text, Amount: decimal}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id, Amount: $.amount}}
  - {type: Payment, format: json, promote: {OrderId: $.id}}
  - {type: Note, format: json}
send_ports: [{name: Mail, adapter: file, address: "out/%MessageID%.json"}]
orchestrations: [{function: "flows:fulfil", bind: {Out: Mail}}]
"""
FLOW = """
from datetime import timedelta
from crossdock import Correlation, Message, Port, Process, Receive, orchestration

out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    note = process.message("Note", {"amount": order["Amount"], "scan": len(order.part("scan"))})
    await process.send(out, note)
    await process.receive(case)
    await process.receive(case, timeout=timedelta(days=14))
"""


def deploy(box: TemporaryMessageBox, folder: Path, flow: str = FLOW) -> None:
    (folder / "flows.py").write_text(flow)
    (folder / "shop.yaml").write_text(APPLICATION)
    box.deploy(folder / "shop.yaml")


@pytest.fixture
def saved(messagebox: TemporaryMessageBox, folder: Path) -> Path:
    """The history of an instance that has been paid once. A part of its order is not held in memory."""
    deploy(messagebox, folder)
    messagebox.publish("Order", {"id": "A1", "amount": 12.50}, parts=[Part("scan", b"x" * 100_000)])
    messagebox.publish("Payment", {"id": "A1"})
    [instance] = messagebox.instances()
    file = messagebox.save(instance, folder / "histories")
    messagebox.agent.instances.terminate([UUID(instance.id)])
    return file


def test_saved_history_replays_with_the_same_code_though_its_instance_has_ended(
    messagebox: TemporaryMessageBox, saved: Path
) -> None:
    messagebox.replay(saved)

    assert messagebox.instances() == []
    assert len(messagebox.sent_to("Mail")) == 1


def test_code_that_does_something_else_is_told_by_step_and_line(
    messagebox: TemporaryMessageBox, folder: Path, saved: Path
) -> None:
    deploy(messagebox, folder, FLOW.replace('len(order.part("scan"))', "1"))

    with pytest.raises(
        OrchestrationFailed, match=rf"{saved.name}: Orchestration 'fulfil' does something else in step 1"
    ):
        messagebox.replay(saved)


def test_code_that_is_patched_replays_the_old_history(
    messagebox: TemporaryMessageBox, folder: Path, saved: Path
) -> None:
    deploy(
        messagebox,
        folder,
        FLOW.replace(
            "    await process.receive(case)\n",
            "    await process.receive(case)\n    if process.patched('thanks'):\n"
            "        await process.send(out, process.message('Note', {}))\n",
        ),
    )

    messagebox.replay(saved)


def test_file_that_is_no_history_and_orchestration_that_is_not_there_are_named(
    messagebox: TemporaryMessageBox, folder: Path, saved: Path
) -> None:
    other = folder / "other.json"
    with pytest.raises(UsageError, match="cannot be read"):
        messagebox.replay(other)
    other.write_text('{"id": 3}')
    with pytest.raises(UsageError, match=r"is no history of an instance.*crossdock save ID"):
        messagebox.replay(other)
    history = json.loads(saved.read_text())
    other.write_text(json.dumps(history | {"crossdock_history": 99}))
    with pytest.raises(UsageError, match="has format 99"):
        messagebox.replay(other)
    other.write_text(json.dumps(history | {"orchestration": "nothing"}))
    with pytest.raises(UsageError, match=r"No orchestration 'nothing' is deployed \(there are: fulfil\)"):
        messagebox.replay(other)


def test_history_is_saved_beside_messages_by_the_operator(messagebox: TemporaryMessageBox, folder: Path) -> None:
    deploy(messagebox, folder)
    order = messagebox.publish("Order", {"id": "A1", "amount": 1}, parts=[Part("scan", b"x")])
    [instance] = messagebox.instances()
    service = Administration(messagebox.agent, text_limit=256)

    done = service.save([str(order.id), instance.id], folder / "saved")

    assert [each.id for each in done] == [str(order.id), instance.id]
    assert Path(done[1].file).name == f"{instance.id}.json"
    messagebox.replay(done[1].file)
    assert [each.action for each in messagebox.agent.audit.list(limit=9)].count("save") == 2
