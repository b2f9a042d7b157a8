"""Requests of orchestrations to two-way ports, and replies to two-way receive ports, through real http."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

from box import count
from express import rows, unbalanced
from office import Office, eventually, free_port
from partner import Partner, Request
from running import IMPORTS
from service import quick_upkeep
from two_way import application, ask, shop, shop_port

__all__ = ["shop"]

ASKS = """
shop, out = Port("Shop"), Port("Out")
from crossdock import DeliveryFailed, Timeout

@orchestration(Receive("Order"))
async def buy(process: Process, order: Message) -> None:
    try:
        receipt = await process.request(shop, process.message("Question", order.json()), timeout=timedelta(seconds=60))
        answer = receipt.json()
    except DeliveryFailed as error:
        answer = {"receipt": f"failed: {error}"}
    await process.send(out, process.message("Receipt", answer))
"""
REPLIES = """
@orchestration(Receive("Order"))
async def answer(process: Process, order: Message) -> None:
    receipt = process.message("Receipt", {"receipt": order["OrderId"]})
    await process.reply(receipt, fault=order["OrderId"] == "bad")
"""


def declared(shop: Partner, at: int, folder: Path, source: str, function: str, bind: dict[str, str]) -> dict[str, Any]:
    (folder / "flows.py").write_text(IMPORTS + dedent(source))
    out = {"name": "Out", "adapter": "file", "address": "out/%MessageID%"}
    told = shop_port(shop, filter="OrderId = 'nobody'", retry={"count": 0})
    made = application(at, told, out)
    question = {"type": "Question", "format": "json", "promote": {"OrderId": "$.id"}}
    flow = {"function": f"flows:{function}", "bind": bind}
    return {**made, "schemas": [*made["schemas"], question], "orchestrations": [flow]}


def test_request_is_answered_and_one_that_fails_raises_in_the_instance(
    shop: Partner, database: str, folder: Path
) -> None:
    def respond(request: Request) -> tuple[int, bytes]:
        return (400, b"no") if b"bad" in request.body else (200, b'{"receipt": "17"}')

    shop.respond = respond
    bind = {"Shop": "Shop", "Out": "Out"}
    office = Office(
        database, folder, declared(shop, free_port(), folder, ASKS, "buy", bind), host_limits=quick_upkeep(workers=4)
    )
    with office.open():
        for id_ in ("good", "bad"):
            promoted = {"BTS__MessageType": "Order", "OrderId": id_}
            office.publish(f'{{"id": "{id_}"}}', to="buy", **promoted)
        eventually(lambda: len(list((folder / "out").glob("[!.]*"))), 2)
        office.settled()

    bodies = sorted(path.read_bytes() for path in (folder / "out").glob("[!.]*"))
    assert bodies[1].startswith(b'{"receipt":"failed: ')
    assert bodies[0] == b'{"receipt":"17"}'
    assert office.suspended() == []
    assert rows(database, "SELECT count(*) FROM instance_subscription") == [(0,)]
    assert unbalanced(database) == []


def test_orchestration_answers_a_two_way_location(shop: Partner, database: str, folder: Path) -> None:
    at = free_port()
    office = Office(
        database, folder, declared(shop, at, folder, REPLIES, "answer", {}), host_limits=quick_upkeep(workers=4)
    )
    with office.open():
        answer = ask(at, "42")
        assert (answer.status_code, answer.json()) == (200, {"receipt": "42"})
        fault = ask(at, "bad")
        assert (fault.status_code, fault.json()) == (500, {"receipt": "bad"})
        eventually(lambda: count(database, "instance_subscription"), 0)
        office.settled()
    assert office.suspended() == []
    assert unbalanced(database) == []
