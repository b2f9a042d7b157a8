"""What a port of an orchestration may be bound to, and what verbs do there: with the kit of an author, in a real store."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.testing.orchestrations import messagebox, messagebox_server
from desk import Desk, desk

__all__ = ["desk", "messagebox", "messagebox_server"]

FORWARDS = """
out = Port("Out")

@orchestration(Receive("Order"))
async def forward(process: Process, order: Message) -> None:
    await process.send(out, process.message("Note", {"id": order["OrderId"]}))
"""


@pytest.mark.parametrize(
    ("bound", "reached"),
    [
        ("Out", {"Out": 1, "Notes": 1}),
        ("Everyone", {"North": 1, "South": 1, "Notes": 1}),
        ("direct", {"Notes": 1}),
    ],
)
def test_port_reaches_what_it_is_bound_to_and_who_subscribes_besides(
    desk: Desk, bound: str, reached: dict[str, int]
) -> None:
    box = desk.deploy(FORWARDS, forward=f"bind: {{Out: {bound}}}")

    box.publish("Order", {"id": "a", "amount": 1})

    ports = ("Out", "North", "South", "Notes", "Anywhere")
    assert {port: len(box.sent_to(port)) for port in ports if box.sent_to(port)} == reached
    assert box.instances() == []


def test_dynamic_port_is_told_where_to_send(desk: Desk) -> None:
    box = desk.deploy(
        """
        out = Port("Out")

        @orchestration(Receive("Order"))
        async def forward(process: Process, order: Message) -> None:
            for name in ("one", "two"):
                await process.send(out, process.message("Done", {"ticket": name}), address=f"out/{name}.json")
        """,
        forward="bind: {Out: Anywhere}",
    )

    box.publish("Order", {"id": "a", "amount": 1})

    told = [message.context.get("BTS.OutboundTransportLocation") for message in box.sent_to("Anywhere")]
    assert told == ["out/one.json", "out/two.json"]


def test_map_is_named_in_the_application_and_may_be_another_for_another_orchestration(desk: Desk, folder: Path) -> None:
    (folder / "tickets.py").write_text(
        "import json\n"
        "def shout(order):\n    return json.dumps({'ticket': json.loads(order)['id'].upper()}).encode()\n"
        "def whisper(order):\n    return json.dumps({'ticket': json.loads(order)['id'].lower()}).encode()\n"
    )
    source = """
        out = Port("Out")

        @orchestration(Receive("Order", P.Amount > 0))
        async def loud(process: Process, order: Message) -> None:
            await process.send(out, process.map("ticket", order))

        @orchestration(Receive("Order", P.Amount > 0))
        async def quiet(process: Process, order: Message) -> None:
            await process.send(out, process.map("ticket", order))
    """
    box = desk.deploy(
        source,
        loud='bind: {Out: Out}, maps: {ticket: {from: Order, to: Done, function: "tickets:shout"}}',
        quiet='bind: {Out: Out}, maps: {ticket: {from: Order, to: Done, function: "tickets:whisper"}}',
    )

    box.publish("Order", {"id": "aB", "amount": 1})

    assert sorted(str(message["Ticket"]) for message in box.sent_to("Out")) == ["AB", "ab"]
    assert {message.type for message in box.sent_to("Out")} == {"Done"}


PARENT = """
worker, out = Port("Worker"), Port("Out")
mine = Correlation("Ticket", types=["Done"])

@orchestration(Receive("Order"))
async def divide(process: Process, order: Message) -> None:
    task = process.message("Task", {"ticket": str(process.uuid()), "order": order["OrderId"]})
    await process.start(worker, task, initializes=mine)
    done = await process.receive(mine)
    await process.send(out, process.message("Note", {"id": order["OrderId"], "result": done.json()["result"]}))

back = Port("Back")

@orchestration(Receive("Task", P.Ticket == "nobody"))
async def work(process: Process, task: Message) -> None:
    await process.delay(timedelta(hours=1))
    done = {"ticket": task["Ticket"], "result": task.json()["order"].upper()}
    await process.send(back, process.message("Done", done))
"""


def test_started_orchestration_reports_back_by_a_value_that_its_starter_made(desk: Desk) -> None:
    box = desk.deploy(PARENT, divide="bind: {Worker: work, Out: Out}", work="bind: {Back: direct}")

    for id_ in ("a", "b"):
        box.publish("Order", {"id": id_, "amount": 1})
    waiting = [(each.orchestration, list(each.correlated)) for each in box.instances()]
    box.clock.jump(hours=1, seconds=1)

    assert sorted(waiting) == [("divide", ["mine"]), ("divide", ["mine"]), ("work", []), ("work", [])]
    notes = [message.json() for message in box.sent_to("Out")]
    assert sorted(notes, key=str) == [{"id": "a", "result": "A"}, {"id": "b", "result": "B"}]
    assert box.instances() == []


SEVERAL = """
out = Port("Out")
case = Correlation("OrderId", types=["Note"])
done = Correlation("Ticket", types=["Done"])

@orchestration(
    Receive("Order", P.Amount > 100, initializes=case), Receive("Order"), Receive("Task", initializes=done)
)
async def handle(process: Process, first: Message) -> None:
    if first.type == "Task":
        told = await process.receive(done)
    elif first["Amount"] > 100:
        told = await process.receive(case)
    else:
        told = first
    await process.send(out, process.message("Cancellation", {"id": "x", "by": first.type, "told": told.type}))
"""


def test_each_of_several_activating_receives_begins_with_its_own_correlations(desk: Desk) -> None:
    box = desk.deploy(SEVERAL, handle="bind: {Out: Out}")

    box.publish("Order", {"id": "small", "amount": 1})
    box.publish("Order", {"id": "large", "amount": 101})
    box.publish("Task", {"ticket": "t"})
    waiting = [each.correlated for each in box.instances()]
    box.publish("Note", {"id": "large"})
    box.publish("Done", {"ticket": "t"})

    assert waiting == [{"case": {"OrderId": "large"}}, {"done": {"Ticket": "t"}}]
    assert [(each.json()["by"], each.json()["told"]) for each in box.sent_to("Out")] == [
        ("Order", "Order"),
        ("Order", "Note"),
        ("Task", "Done"),
    ]
    assert box.instances() == []


def test_request_that_another_orchestration_answers_by_a_fault_raises(desk: Desk) -> None:
    source = """
        from crossdock import DeliveryFailed
        out, clerk = Port("Out"), Port("Clerk")

        @orchestration(Receive("Order"))
        async def ask(process: Process, order: Message) -> None:
            try:
                answer = (await process.request(clerk, process.message("Task", {"ticket": order["OrderId"]}))).json()
            except DeliveryFailed as error:
                answer = {"failed": str(error)}
            await process.send(out, process.message("Note", {"id": order["OrderId"], "answer": answer}))

        @orchestration(Receive("Task"))
        async def decide(process: Process, task: Message) -> None:
            answer = process.message("Done", {"ticket": task["Ticket"]})
            await process.reply(answer, fault=task["Ticket"] == "bad")
    """
    box = desk.deploy(source, ask="bind: {Out: Out, Clerk: direct}", decide="bind: {}")

    for id_ in ("good", "bad"):
        box.publish("Order", {"id": id_, "amount": 1})

    good, bad = [message.json()["answer"] for message in box.sent_to("Out")]
    assert good == {"ticket": "good"}
    assert bad["failed"].endswith('the answer is a fault: {"ticket":"bad"}')
    assert box.instances() == []
