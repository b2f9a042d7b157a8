"""What is the same in every replay, and what goes on: time, random values, the log, `suspend`, `continue_with`, `patched`."""

from __future__ import annotations

import logging
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from crossdock import (
    Message,
    OrchestrationError,
    Process,
    Receive,
    orchestration,
)
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.history import Activated, Arrived, Resumed
from crossdock.orchestration.run import Completed, Suspended
from orchestrating import BEGIN, Driver
from verbs import body_of, case, failed, line_of, out


def test_a_suspended_instance_goes_on_when_it_is_resumed() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.suspend("Look at the stock")
        await process.send(out, body_of(process))

    driver = Driver(code)
    driver.activate()
    assert driver.state() == Suspended("Look at the stock", line_of(code, 1))
    driver.evict()
    driver.step(Resumed())

    assert driver.state() == Completed()
    assert len(driver.sent) == 1


def test_time_uuid_and_random_are_the_same_in_every_replay() -> None:
    seen: list[Any] = []

    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        seen.append((process.now(), process.uuid(), process.uuid(), process.random.random()))
        await process.delay(timedelta(minutes=1))
        seen.append((process.now(), process.uuid(), process.random.randint(1, 10**9)))

    driver = Driver(code, replay=False)
    driver.activate()
    driver.fire()
    first = list(seen)
    seen.clear()
    driver.replayed()
    another = Driver(code, replay=False)
    another.activate()

    assert seen[:2] == first
    assert first[0][0] == BEGIN + timedelta(seconds=1)
    assert first[1][0] == driver.now
    assert seen[2][1:] != first[0][1:]
    assert len({first[0][1], first[0][2], first[1][1]}) == 3


def test_the_log_is_silent_in_a_replay(caplog: pytest.LogCaptureFixture) -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        process.log.info("got %s", order.type)
        await process.delay(timedelta(minutes=1))
        process.log.warning("late")

    caplog.set_level(logging.INFO)
    driver = Driver(code)
    driver.activate()
    driver.evict()
    driver.fire()

    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("crossdock.orchestration.code", "got Order"),
        ("crossdock.orchestration.code", "late"),
    ]
    assert caplog.records[0].__dict__["instance"] == str(driver.instance)


def totals() -> Orchestration:
    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message, total: Decimal = Decimal(0), rounds: int = 0) -> None:
        payment = await process.receive(case, type="Payment")
        total += payment.json()
        if rounds < 2:
            await process.continue_with(order, total, rounds + 1)
        note = await process.receive(case, type="Note")
        await process.send(out, body_of(process, total=total, id=order["OrderId"], note=note.json()))

    return code


def test_continue_with_drops_the_history_and_keeps_sets_inbox_labels_and_arguments() -> None:
    driver = Driver(totals())
    driver.step(Activated(driver.message("Order", promote={"OrderId": "A"}, labels=["secret"]), 0))
    driver.arrive("case", "Note", b'"hello"')
    for amount in (b"1.10", b"2.20", b"3.30"):
        driver.arrive("case", "Payment", amount)
        driver.evict()

    assert driver.sends == [("Out", "Done", {"total": Decimal("6.60"), "id": "A", "note": "hello"})]
    assert driver.sent[0].labels == {"secret"}
    assert len(driver.records) == 2


def test_events_after_continue_with_are_given_to_the_function_that_begins_anew() -> None:
    driver = Driver(totals())
    driver.activate(OrderId="A")
    payments = [Arrived(driver.message("Payment", amount), "case") for amount in (1, 2, 3)]
    driver.step(*payments, Arrived(driver.message("Note", b'"hello"'), "case"))

    assert driver.sends[0][2]["total"] == 6
    assert driver.state() == Completed()


def test_continue_with_is_refused_in_a_scope_and_for_what_cannot_be_kept() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        try:
            async with process.scope():
                await process.continue_with(1)
        except OrchestrationError as error:
            process.log.info(str(error))
        await process.continue_with(process.message("A", 1))

    driver = Driver(code)
    driver.activate()

    assert "continue_with cannot keep its arguments: a message that the code made is not stored" in failed(driver).error


def test_patched_is_true_only_where_the_change_was_met_first() -> None:
    versions: list[bool] = []

    @orchestration(Receive("Order"))
    async def before(process: Process, order: Message) -> None:
        await process.delay(timedelta(minutes=1))
        await process.delay(timedelta(minutes=1))

    @orchestration(Receive("Order"))
    async def after(process: Process, order: Message) -> None:
        if process.patched("greet"):
            await process.send(out, body_of(process))
        await process.delay(timedelta(minutes=1))
        versions.append(process.patched("greet"))
        await process.delay(timedelta(minutes=1))
        versions.append(process.patched("later"))

    old = Driver(before)
    old.activate()
    old.orchestration = after
    old.evict()
    old.fire()
    old.fire()
    new = Driver(after, replay=False)
    new.activate()
    new.evict()
    new.fire()
    new.fire()

    assert old.sent == []
    assert old.state() == Completed()
    assert len(new.sent) == 1
    assert new.state() == Completed()
    assert versions[-2:] == [True, True]
    assert versions[0] is False
    old.check_replay()
    new.check_replay()
