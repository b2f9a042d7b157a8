"""What an author is told who uses a verb wrongly, or whose code fails: one sentence with the line."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from crossdock import (
    Correlation,
    Message,
    Process,
    Receive,
    orchestration,
)
from crossdock.orchestration.history import Arrived
from orchestrating import Driver
from verbs import body_of, case, failed, line_of, out


async def _wrong_type(process: Process) -> None:
    await process.receive(case, type="Order")


async def _both_times(process: Process) -> None:
    await process.receive(case, timeout=timedelta(1), until=process.now())  # type: ignore[call-overload]


async def _no_zone(process: Process) -> None:
    await process.delay(until=datetime(2026, 1, 1))


async def _seconds(process: Process) -> None:
    await process.delay(5)  # type: ignore[arg-type]


async def _no_time(process: Process) -> None:
    await process.delay()


async def _no_message(process: Process) -> None:
    await process.send(out, {"a": 1})  # type: ignore[arg-type]


async def _no_port(process: Process) -> None:
    await process.send("Out", body_of(process))  # type: ignore[arg-type]


async def _unknown_set(process: Process) -> None:
    await process.receive(Correlation("X", types=["Y"]))


async def _awaited_too_soon(process: Process) -> None:
    await process.listen(5)  # type: ignore[arg-type]


async def _nothing_to_listen_to(process: Process) -> None:
    await process.listen()


@pytest.mark.parametrize(
    ("verb", "told"),
    [
        (_wrong_type, "the set 'case' has no type 'Order'; add it to `types`"),
        (_both_times, "give a timeout or until, not both"),
        (_no_zone, "until=datetime.datetime(2026, 1, 1, 0, 0) has no time zone; count from process.now()"),
        (_seconds, "5 is not a timedelta"),
        (_no_time, "a delay needs a time: process.delay(timedelta(minutes=5)), or until="),
        (_no_message, "it would send dict; make a message of it with process.message"),
        (_no_port, "it would send to 'Out', which is not a Port"),
        (_unknown_set, "Correlation('X', types=['Y']) is not found in the module; make it a global, or declare it: "
                       "@orchestration(..., correlations=[...])"),
        (_awaited_too_soon, "process.listen cannot be called so: it is given int; leave out the `await` of what it is "
                            "to wait for"),
        (_nothing_to_listen_to, "process.listen cannot be called so: it is given nothing to wait for"),
    ],
)  # fmt: skip
def test_a_verb_that_is_used_wrongly_names_the_line(verb: Any, told: str) -> None:
    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None:
        await verb(process)

    driver = Driver(code)
    driver.activate(OrderId="A")
    if driver.timers:
        driver.fire()

    line = f"test_orchestration_misuse.py:{verb.__code__.co_firstlineno + 1}"
    assert failed(driver).error == f"Orchestration 'code', step {len(driver.steps)}, {line}: {told}"


def test_process_is_refused_outside_of_the_code_that_runs() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.atomic(partial(lambda called, *_: str(called.uuid()), process))

    driver = Driver(code, replay=False)
    driver.activate()
    driver.perform()

    assert "`process` is used while its code does not run" in failed(driver).error


def test_an_error_of_the_code_is_told_with_its_line_and_without_our_frames() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, body_of(process))
        order["Nothing"]

    driver = Driver(code)
    driver.activate()

    assert failed(driver).line == line_of(code, 2)
    assert failed(driver).error.startswith('KeyError: "message ')
    assert "test_orchestration_misuse.py" in failed(driver).traceback
    assert "scheduler.py" not in failed(driver).traceback
    assert failed(driver).code == "orchestration-failed"
    assert len(driver.sent) == 1


def test_code_that_ends_the_process_only_fails_its_instance() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        raise SystemExit(3)

    driver = Driver(code)
    driver.activate()

    assert failed(driver).error == "SystemExit: 3"


def test_what_loading_a_message_raises_does_not_reach_the_code() -> None:
    reached: list[str] = []

    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None:
        await process.delay(timedelta(minutes=1))
        try:
            await process.receive(case)
        except Exception as error:
            reached.append(type(error).__name__)
            raise

    driver = Driver(code, replay=False)
    driver.activate(OrderId="A")
    lost = uuid4()
    driver.step(Arrived(lost, "case"))

    with pytest.raises(KeyError):
        driver.fire()
    assert reached == []
