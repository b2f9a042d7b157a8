"""What an instance sends: messages, maps, requests, replies, and other orchestrations that it starts or awaits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from crossdock import (
    DeliveryFailed,
    Message,
    OrchestrationError,
    Process,
    Receive,
    Timeout,
    orchestration,
)
from crossdock.message.property import Value
from crossdock.orchestration.history import Activated, Arrived, RequestFailed, TimerFired
from crossdock.orchestration.run import Completed, Waiting
from orchestrating import Driver
from verbs import body_of, case, failed, line_of, out, partner


def test_a_message_that_is_sent_keeps_what_was_promoted_and_the_address() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        message = process.message("Note", {"id": 7}, promote={"Region": "EU"})
        await process.send(out, message, address="file:///out")

    driver = Driver(code, schemas={"Note": {"Number": "id"}})
    driver.activate()

    (sent,) = driver.sent
    assert (sent.kind, sent.port, sent.type, sent.body, sent.address) == (
        "send",
        out,
        "Note",
        b'{"id":7}',
        "file:///out",
    )
    assert sent.promoted == {"Number": 7, "Region": "EU", "BTS.MessageType": "Note"}


def test_bytes_and_text_are_bodies_as_they_are() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, process.message("A", b"\x00raw"))
        await process.send(out, process.message("B", "<b>ø</b>"))

    driver = Driver(code)
    driver.activate()

    assert [each.body for each in driver.sent] == [b"\x00raw", "<b>ø</b>".encode()]


def test_a_received_message_is_passed_on_without_the_properties_of_its_way() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, order)

    driver = Driver(code)
    promote = {"OrderId": "A1", "BTS.ReceivePortName": "In", "BTS.SPTransportID": "x"}
    written: dict[str, Value] = {"FILE.ReceivedFileName": "a.json", "BTS.InterchangeID": "i", "Hint": 1}
    driver.step(Activated(driver.message("Order", {"a": 1}, promote=promote, written=written), 0))

    (sent,) = driver.sent
    assert sent.promoted == {"OrderId": "A1", "BTS.MessageType": "Order"}
    assert sent.written == {"FILE.ReceivedFileName": "a.json", "Hint": 1}
    assert sent.body == b'{"a":1}'


def test_what_is_sent_has_the_labels_of_everything_received_before() -> None:
    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, body_of(process))
        await process.receive(case)
        await process.send(out, body_of(process))

    driver = Driver(code)
    driver.step(Activated(driver.message("Order", promote={"OrderId": "A"}, labels=["health"]), 0))
    driver.evict()
    driver.step(Arrived(driver.message("Payment", labels=["bank"]), "case"))

    assert [each.labels for each in driver.sent] == [{"health"}, {"health", "bank"}]


def test_a_map_makes_a_message_of_another_type() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, process.map("Upper", order))

    driver = Driver(code, maps={"Upper": bytes.upper})
    driver.activate("Order", "abc")

    assert (driver.sent[0].type, driver.sent[0].body) == ("Upper", b"ABC")


def test_a_request_gives_the_response() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        answer = await process.request(partner, process.message("Ask", 1), timeout=timedelta(minutes=1))
        await process.send(out, body_of(process, answer=answer.json()))

    driver = Driver(code)
    driver.activate()
    assert (driver.sent[0].kind, driver.sent[0].request) == ("request", 1)
    assert driver.state() == Waiting("response of Partner until 2026-01-01T00:01:01+00:00", line_of(code, 1))
    driver.evict()
    driver.respond(1, body=5)

    assert driver.sends[-1] == ("Out", "Done", {"answer": 5})
    assert driver.steps[-1].cancelled_timers == [1]


@pytest.mark.parametrize(("event", "kind"), [(RequestFailed(1, "refused"), DeliveryFailed), (TimerFired(1), Timeout)])
def test_a_request_raises_when_the_port_gives_up_or_the_time_is_over(event: Any, kind: type[Exception]) -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        try:
            await process.request(partner, process.message("Ask", 1), timeout=timedelta(minutes=1))
        except OrchestrationError as error:
            await process.send(out, body_of(process, why=type(error).__name__, line=error.line))

    driver = Driver(code)
    driver.activate()
    driver.step(event)

    assert driver.sends[-1][2] == {"why": kind.__name__, "line": line_of(code, 2)}


def test_a_late_response_changes_nothing() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        try:
            await process.request(partner, process.message("Ask", 1), timeout=timedelta(minutes=1))
        except Timeout:
            await process.delay(timedelta(hours=1))

    driver = Driver(code)
    driver.activate()
    driver.fire()
    stepped = driver.respond(1)

    assert stepped.taken == []
    driver.fire()
    assert driver.state() == Completed()


def two_way(driver: Driver) -> UUID:
    return driver.message("Question", written={"BTS.EpmRRCorrelationToken": f"RRUid:{{{uuid4()}}}"})


@pytest.mark.parametrize("fault", [False, True])
def test_a_reply_answers_the_two_way_request(fault: bool) -> None:
    @orchestration(Receive("Question"))
    async def code(process: Process, question: Message) -> None:
        await process.reply(process.message("Answer", 42), fault=fault)

    driver = Driver(code)
    asked = two_way(driver)
    driver.step(Activated(asked, 0))

    (sent,) = driver.sent
    assert (sent.kind, sent.port, sent.reply_to, sent.fault, sent.body) == ("reply", None, asked, fault, b"42")


def test_a_second_reply_is_refused() -> None:
    @orchestration(Receive("Question"))
    async def code(process: Process, question: Message) -> None:
        await process.reply(process.message("Answer", 42), to=question)
        await process.reply(process.message("Answer", 43))

    driver = Driver(code)
    driver.step(Activated(two_way(driver), 0))

    assert failed(driver).error == (
        f"Orchestration 'code', step 1, {line_of(code, 2)}: no two-way request waits for this reply"
    )


def test_a_started_orchestration_may_be_left_to_answer() -> None:
    @orchestration(Receive("Question"))
    async def code(process: Process, question: Message) -> None:
        await process.start(partner, body_of(process), reply_to=question)

    driver = Driver(code)
    asked = two_way(driver)
    driver.step(Activated(asked, 0))

    assert [(each.kind, each.port, each.reply_to) for each in driver.sent] == [("start", partner, asked)]


def test_an_awaited_orchestration_runs_in_the_instance_of_its_caller() -> None:
    @orchestration()
    async def inner(process: Process, number: int) -> int:
        answer = await process.request(partner, process.message("Ask", number))
        return int(answer.json())

    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, body_of(process, sum=await inner(process, 1) + await inner(process, 2)))

    driver = Driver(code)
    driver.activate()
    driver.respond(1, body=10)
    driver.respond(2, body=20)

    assert driver.sends[-1][2] == {"sum": 30}
    assert [port.name for port in code.ports] == ["Out", "Partner"]
