"""The kit plays the client of a two-way receive port: it asks, and sees the reply."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.errors import UsageError
from crossdock.testing.orchestrations import TemporaryMessageBox, messagebox, messagebox_server
from desk import Desk, desk
from express import rows, unbalanced

__all__ = ["desk", "messagebox", "messagebox_server"]

ANSWERS = """
shop, clerk = Port("Shop"), Port("Clerk")

@orchestration(Receive("Order", P.Amount > 0))
async def sell(process: Process, order: Message) -> None:
    if order["Amount"] > 100:
        await process.delay(timedelta(hours=1))
        await process.reply(process.message("Note", {"id": "too much"}), fault=True)
    else:
        price = await process.request(shop, process.message("Task", {"ticket": order["OrderId"]}))
        await process.reply(process.message("Note", {"id": order["OrderId"], "price": price.json()["price"]}))
"""


def test_client_is_given_the_reply_when_it_comes(desk: Desk) -> None:
    box = desk.deploy(ANSWERS, sell="bind: {Shop: Shop}")

    first = box.ask("Ask", "Order", {"id": "a", "amount": 1})
    second = box.ask("Ask", "Order", {"id": "b", "amount": 2})
    assert (first.reply, second.reply) == (None, None)
    box.answer("Shop", "Note", {"price": 7})
    assert [each.reply is None for each in (first, second)] == [False, True]
    box.answer("Shop", "Note", {"price": 8})

    assert first.reply is not None
    assert second.reply is not None
    assert (first.reply.json(), first.fault) == ({"id": "a", "price": 7}, False)
    assert second.reply.json() == {"id": "b", "price": 8}
    assert second.reply.context.get("BTS.RequestMessageID") == str(second.request.id)
    assert rows(box.agent.database, "SELECT count(*) FROM instance_subscription") == [(0,)]
    assert unbalanced(box.agent.database) == []


def test_reply_may_be_a_fault_and_may_come_late(desk: Desk) -> None:
    box = desk.deploy(ANSWERS, sell="bind: {Shop: Shop}")

    asked = box.ask("Ask", "Order", {"id": "a", "amount": 101})
    assert (asked.reply, asked.fault) == (None, False)
    box.clock.jump(hours=1, seconds=1)

    assert asked.reply is not None
    assert (asked.reply.json(), asked.fault) == ({"id": "too much"}, True)


def test_orchestration_knows_the_port_and_a_started_one_may_answer_in_its_place(desk: Desk) -> None:
    source = """
        clerk = Port("Clerk")

        @orchestration(Receive("Order", P.ReceivePortName == "Ask"))
        async def pass_on(process: Process, order: Message) -> None:
            await process.start(clerk, process.message("Task", {"ticket": order["OrderId"]}), reply_to=order)

        @orchestration(Receive("Task", P.Ticket == "nobody"))
        async def decide(process: Process, task: Message) -> None:
            await process.reply(process.message("Done", task.json()))
    """
    box = desk.deploy(source, pass_on="bind: {Clerk: decide}", decide="bind: {}")

    asked = box.ask("Ask", "Order", {"id": "a", "amount": 1})

    assert asked.reply is not None
    assert asked.reply.json() == {"ticket": "a"}
    with pytest.raises(AssertionError, match="Nobody answers this Order"):
        box.ask("Tell", "Order", {"id": "a", "amount": 1})


def test_port_that_is_not_two_way_is_named(desk: Desk, folder: Path) -> None:  # noqa: ARG001
    box = desk.deploy(ANSWERS, sell="bind: {Shop: Shop}")

    with pytest.raises(UsageError, match=r"There is no two-way receive port 'Out' \(there are: Ask, Tell\)"):
        box.ask("Out", "Order", {"id": "a", "amount": 1})


def test_client_hears_that_the_port_that_was_to_answer_gave_up(messagebox: TemporaryMessageBox, folder: Path) -> None:
    desk = Desk(messagebox, folder)
    source = """
        @orchestration(Receive("Cancellation"))
        async def never(process: Process, message: Message) -> None:
            pass
    """
    box = desk.deploy(source, never="bind: {}")
    shop = (folder / "desk.yaml").read_text().replace('address: "http://localhost:1/"', 'address: "http://localhost:1/", filter: "MessageType = \'Order\'"')  # fmt: skip
    (folder / "desk.yaml").write_text(shop)
    box.deploy(folder / "desk.yaml")

    refused = box.ask("Ask", "Order", {"id": "a", "amount": 1})
    box.refuse("Shop", "out of stock")
    answered = box.ask("Ask", "Order", {"id": "b", "amount": 1})
    box.answer("Shop", "Note", {"id": "b"})

    assert (refused.reply, refused.refused) == (None, "out of stock")
    assert answered.reply is not None
    assert answered.reply.json() == {"id": "b"}
