"""Parts beyond the body: what an author reads and sends, and what a replay compares."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import pytest

from crossdock import Message, Part, Process, Receive, orchestration
from crossdock.errors import Mismatch, OutageError
from crossdock.message.message import StreamedPart
from crossdock.orchestration.history import Activated
from crossdock.orchestration.run import InstanceRun
from orchestrating import Driver
from verbs import case, failed, out

SCAN, STREAM = Part("scan", b"\0\xff"), StreamedPart("stream", partial(BytesIO, b"large"))


def test_parts_of_a_received_message_are_read_and_passed_on_with_new_ones() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        size = Part("size", b"%d" % len(order.part("stream")))
        await process.send(out, process.message("Done", {"a": 1}, parts=[*order.parts[1:], size]))

    driver = Driver(code)
    driver.step(Activated(driver.message("Order", parts=[SCAN, STREAM]), 0))

    (sent,) = driver.sent
    assert [(each.name, b"".join(each.chunks())) for each in sent.parts] == [
        ("body", b'{"a":1}'),
        ("scan", b"\0\xff"),
        ("stream", b"large"),
        ("size", b"5"),
    ]


def test_a_map_changes_the_body_and_keeps_the_other_parts() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, process.map("Upper", order))

    driver = Driver(code, maps={"Upper": bytes.upper})
    driver.step(Activated(driver.message("Order", "text", parts=[SCAN]), 0))

    (sent,) = driver.sent
    assert sent.parts == (Part("body", b"TEXT"), SCAN)


@pytest.mark.parametrize("other", [b"other", b""])
def test_a_replay_with_another_part_is_a_mismatch(other: bytes) -> None:
    parts = [Part("scan", b"first")]

    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, process.message("Done", None, parts=parts))
        await process.receive(case)

    driver = Driver(code)
    driver.activate(OrderId="A")
    parts[:] = [Part("scan", other)] if other else []

    with pytest.raises(Mismatch, match="with other content"):
        driver.replayed()


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([b"raw"], "a part is made by Part(name, content), and this is bytes"),
        ([Part("scan", "text")], "the content of part 'scan' is not bytes"),  # type: ignore[arg-type]
        ([SCAN, SCAN], "'scan' is not a name that no other part of the message has"),
        ([Part("body", b"")], "'body' is not a name that no other part of the message has"),
        ([Part("", b"")], "'' is not a name that no other part of the message has"),
    ],
)
def test_a_part_that_cannot_be_sent_is_refused_at_its_line(parts: Any, told: str) -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        process.message("Done", None, parts=parts)

    driver = Driver(code)
    driver.activate()

    assert failed(driver).error.endswith(f": {told}")


def test_a_part_that_is_not_there_is_named() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        order.part("scan")

    driver = Driver(code)
    driver.activate()

    assert "of type 'Order' has no part 'scan'" in failed(driver).error


def test_outage_while_a_large_part_is_read_fails_neither_the_step_nor_a_replay() -> None:
    away = False

    def opened() -> BinaryIO:
        if away:
            raise OutageError("PostgreSQL is away", "connection refused")
        return BytesIO(b"large")

    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, process.message("Done", None, parts=order.parts[1:]))
        await process.receive(case)

    driver = Driver(code)
    stored = driver.message("Order", promote={"OrderId": "A"}, parts=[StreamedPart("scan", opened)])
    driver.step(Activated(stored, 0))
    away = True

    with pytest.raises(OutageError):
        driver.replayed()
    with pytest.raises(OutageError):
        InstanceRun(code, driver.instance, driver.tools).step(driver.now, [Activated(stored, 0)])
