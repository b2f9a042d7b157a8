"""What an instance sends has the labels of all that it was given, so that no host without them is given it."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

from crossdock.message.context import Context
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent
from express import rows, unbalanced
from running import APPLICATION, IMPORTS, message, publish, redeploy, run

HOSTS = "hosts: [{name: Default, labels: [patients, payments]}, {name: Bare}]\n"
FLOW = """
out, bare = Port("Out"), Port("Bare")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def tell(process: Process, order: Message) -> None:
    await process.send(out, process.message("Note", {"id": "first", "amount": 1}))
    await process.receive(case)
    await process.send(out, process.message("Note", {"id": "second", "amount": 1}))
    await process.send(bare, process.message("Note", {"id": "third", "amount": 1}))
"""
ORCHESTRATION = '  - {function: "flows:tell", bind: {Out: Out, Bare: Other}}\n'


def labelled(made: Message, *labels: str) -> Message:
    context = Context(made.context.promoted, made.context.written, frozenset(labels))
    return Message(made.id, context, made.parts)


def test_message_is_sent_with_the_labels_of_everything_received_before_it(agent: Agent, folder: Path) -> None:
    (folder / "flows.py").write_text(IMPORTS + dedent(FLOW))
    declared = APPLICATION.replace("schemas:", HOSTS + "schemas:", 1).replace(
        "name: Other,", "name: Other, host: Bare,"
    )
    (folder / "shop.yaml").write_text(declared + ORCHESTRATION)
    redeploy(agent, folder)

    publish(agent, labelled(message(agent, "Order", "a"), "patients"))
    run(agent)
    publish(agent, labelled(message(agent, "Payment", "a"), "payments"))
    run(agent)

    query = "SELECT context ->> 'labels' FROM queue JOIN message ON message.id = message_id ORDER BY sequence"
    assert [sorted(json.loads(labels)) for (labels,) in rows(agent.database, query)] == [
        ["patients"],
        ["patients", "payments"],
    ]
    [kept] = agent.suspended.messages()
    assert kept.kind == "unrouted"
    assert "Other would, but the host lacks the label patients, payments" in str(kept.reason)
    assert unbalanced(agent.database) == []
    assert agent.instances.list() == []


ASKS = """
ask, out = Port("Ask"), Port("Out")
case = Correlation("OrderId", types=["Payment"])
from crossdock import DeliveryFailed

@orchestration(Receive("Order"))
async def tell(process: Process, order: Message) -> None:
    try:
        line = process.message("Line", {"id": order["OrderId"], "amount": 1})
        await process.request(ask, line, timeout=timedelta(hours=1))
    except DeliveryFailed as error:
        await process.send(out, process.message("Note", {"id": str(error)[-10:], "amount": 1}))

@orchestration(Receive("Line", initializes=case))
async def refuse(process: Process, line: Message) -> None:
    payment = await process.receive(case)
    await process.reply(process.message("Note", payment.json()), fault=True)
"""


def test_message_that_quotes_a_fault_is_sent_with_the_labels_of_the_fault(agent: Agent, folder: Path) -> None:
    (folder / "flows.py").write_text(IMPORTS + dedent(ASKS))
    declared = APPLICATION.replace("schemas:", "hosts: [{name: Default, labels: [payments]}]\nschemas:", 1)
    told = '  - {function: "flows:tell", bind: {Ask: refuse, Out: Out}}\n  - {function: "flows:refuse"}\n'
    (folder / "shop.yaml").write_text(declared + told)
    redeploy(agent, folder)
    publish(agent, message(agent, "Order", "a"))
    run(agent)

    publish(agent, labelled(message(agent, "Payment", "a"), "payments"))
    run(agent)

    query = "SELECT context ->> 'labels' FROM queue JOIN message ON message.id = message_id"
    assert rows(agent.database, query) == [('["payments"]',)]
    assert unbalanced(agent.database) == []
