"""The kit for tests of orchestrations: as an author uses it, and what it says when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock import Part
from crossdock.errors import UsageError
from crossdock.testing.orchestrations import (
    OrchestrationFailed,
    TemporaryMessageBox,
    messagebox,
    messagebox_server,
)

__all__ = ["messagebox", "messagebox_server"]
EXAMPLES = Path(__file__).parents[2] / "examples"


def types(box: TemporaryMessageBox, port: str) -> list[str | None]:
    return [message.type for message in box.sent_to(port)]


@pytest.fixture
def shop(messagebox: TemporaryMessageBox) -> TemporaryMessageBox:
    messagebox.deploy(EXAMPLES / "shop.py")
    messagebox.publish("Order", {"id": "A1", "amount": 12.50})
    return messagebox


def test_paid_order_is_shipped(shop: TemporaryMessageBox) -> None:
    assert types(shop, "Mail") == ["Invoice"]

    shop.publish("Payment", {"id": "A1"})

    assert [message.json()["id"] for message in shop.sent_to("Stock")] == ["A1"]
    assert shop.instances() == []


def test_order_that_nobody_pays_is_closed_after_two_weeks(shop: TemporaryMessageBox) -> None:
    shop.clock.jump(days=13)
    assert types(shop, "Mail") == ["Invoice"]

    shop.clock.jump(days=1, seconds=1)

    assert types(shop, "Mail") == ["Invoice", "Closed"]
    assert shop.instances() == []


def test_instance_is_described_with_its_steps_and_lines(shop: TemporaryMessageBox) -> None:
    [instance] = shop.instances(where="OrderId = 'A1'")
    described = shop.describe(instance)

    assert (instance.state, instance.last_line) == ("running", "fulfilment.py:11")
    [step] = described.steps
    assert [(each.what, each.line) for each in step.did if each.what.startswith("send")] == [
        ("send Customer", "fulfilment.py:10")
    ]
    assert [message.type for message in described.messages] == ["Order"]


def test_message_that_nobody_wants_is_an_error(shop: TemporaryMessageBox) -> None:
    with pytest.raises(AssertionError, match="Nobody subscribes to this Payment"):
        shop.publish("Payment", {"id": "B2"})
    with pytest.raises(UsageError, match="No schema declares the message type 'Offer'"):
        shop.publish("Offer", {})
    with pytest.raises(UsageError, match="There is no send port 'Post'"):
        shop.sent_to("Post")


FLOW = """
from datetime import timedelta
from crossdock import Correlation, Message, Port, Process, Receive, orchestration

out = Port("Customer")
case = Correlation("OrderId", types=["Payment"])
seen = []

@orchestration(Receive("Order", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    seen.append(1)
    BODY
"""


OLD_WAY = """await process.receive(case)
    await process.send(out, process.message("Invoice", {"id": order["OrderId"]}))"""


def flow(messagebox: TemporaryMessageBox, folder: Path, body: str, *, suspends: bool = False) -> None:
    (folder / "fulfilment.py").write_text(FLOW.replace("BODY", body))
    shop = (EXAMPLES / "shop.py").read_text().replace('"Warehouse": "Stock", ', "")
    (folder / "shop.py").write_text(shop)
    messagebox.deploy(folder / "shop.py", suspends=suspends)


def test_parts_beyond_the_body_come_and_go(messagebox: TemporaryMessageBox, folder: Path) -> None:
    body = """await process.receive(case)
    await process.send(out, process.message("Invoice", {"id": order["OrderId"]}, parts=order.parts[1:]))"""
    flow(messagebox, folder, body)
    messagebox.publish("Order", {"id": "A1", "amount": 12.50}, parts=[Part("scan", b"content")])

    messagebox.publish("Payment", {"id": "A1"})

    [invoice] = messagebox.sent_to("Mail")
    assert invoice.json() == {"id": "A1"}
    assert invoice.part("scan") == b"content"


def test_code_that_does_something_else_in_a_replay_fails_the_test(
    messagebox: TemporaryMessageBox, folder: Path
) -> None:
    flow(
        messagebox,
        folder,
        """await process.send(out, process.message("Invoice", {"id": len(seen)}))
    await process.receive(case)
    await process.receive(case)""",
    )

    with pytest.raises(OrchestrationFailed, match=r"fulfilment\.py:12"):
        messagebox.publish("Order", {"id": "A1", "amount": 1})


def test_code_that_raises_fails_the_test_with_its_line(messagebox: TemporaryMessageBox, folder: Path) -> None:
    flow(messagebox, folder, "raise ValueError('no stock')")

    with pytest.raises(OrchestrationFailed, match=r"fulfil, fulfilment\.py:12: ValueError: no stock\nTraceback"):
        messagebox.publish("Order", {"id": "A1", "amount": 1})


def test_suspended_instance_is_resumed_where_the_test_says_that_one_is(
    messagebox: TemporaryMessageBox, folder: Path
) -> None:
    flow(
        messagebox,
        folder,
        "if len(seen) < 2: raise ValueError('no stock')\n    await process.receive(case)",
        suspends=True,
    )
    messagebox.publish("Order", {"id": "A1", "amount": 1})
    [suspended] = messagebox.instances(state="suspended")

    messagebox.resume(suspended)

    assert suspended.reason == "ValueError: no stock"
    assert [each.state for each in messagebox.instances()] == ["running"]
    assert messagebox.instances()[0].id == suspended.id


def test_instance_goes_on_with_the_code_it_began_with(messagebox: TemporaryMessageBox, folder: Path) -> None:
    flow(messagebox, folder, OLD_WAY)
    messagebox.publish("Order", {"id": "A1", "amount": 1})
    [old] = messagebox.instances()
    flow(messagebox, folder, OLD_WAY.replace("Invoice", "Closed"))
    messagebox.publish("Order", {"id": "B2", "amount": 1})
    [new] = messagebox.instances(where="OrderId = 'B2'")
    messagebox.publish("Payment", {"id": "A1"})
    messagebox.publish("Payment", {"id": "B2"})

    assert old.version != new.version
    assert [(message.type, message["OrderId"]) for message in messagebox.sent_to("Mail")] == [
        ("Invoice", "A1"),
        ("Closed", "B2"),
    ]


def test_cancelled_instance_undoes_what_it_did(messagebox: TemporaryMessageBox, folder: Path) -> None:
    flow(
        messagebox,
        folder,
        """async with process.scope() as scope:
        scope.compensate(process.send, out, process.message("Closed", {"id": order["OrderId"]}))
        await process.receive(case)""",
    )
    messagebox.publish("Order", {"id": "A1", "amount": 1})
    [instance] = messagebox.instances()

    messagebox.cancel(instance)

    assert [message.type for message in messagebox.sent_to("Mail")] == ["Closed"]
    assert messagebox.instances() == []


def test_instance_may_be_named_by_its_id(shop: TemporaryMessageBox) -> None:
    [instance] = shop.instances()

    assert shop.describe(instance.id) == shop.describe(instance)
    with pytest.raises(UsageError, match="'no id' is not the id of an instance"):
        shop.resume("no id")
    shop.cancel(instance.id)

    assert shop.instances() == []


def test_wrong_use_is_a_sentence(messagebox: TemporaryMessageBox) -> None:
    with pytest.raises(UsageError, match="Nothing is deployed"):
        messagebox.publish("Order", {"id": "A1"})
    with pytest.raises(UsageError, match="forward only"):
        messagebox.clock.jump(days=-1)
