"""Replay: code that does something else than its history is found out, and code that is left does nothing more."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from crossdock import Correlation, Message, Port, Process, Receive, orchestration
from crossdock.errors import DroppedError, Mismatch
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.history import (
    Activated,
    Arrived,
    AtomicDone,
    Cancelled,
    CommandDigest,
    Continued,
    ContinuedArgument,
    Raised,
    RequestFailed,
    Resumed,
    StepRecord,
    TimerFired,
    decode_record,
    encode_record,
)
from crossdock.orchestration.run import Failed
from orchestrating import Driver

out, other = Port("Out"), Port("Other")
case = Correlation("OrderId", types=["Payment"])
MINUTE = timedelta(minutes=1)
FILE = "test_orchestration_replay.py"


def a_function(code: Any) -> Orchestration:
    @orchestration(Receive("Order", initializes=case))
    async def fulfil(process: Process, order: Message) -> None:
        await code(process)

    return fulfil


def told(process: Process, number: int) -> Message:
    return process.message("Told", {"number": number})


async def as_it_was(process: Process) -> None:
    await process.send(out, told(process, 1))
    await process.receive(case, timeout=MINUTE)


async def _other_port(process: Process) -> None:
    await process.send(other, told(process, 1))
    await process.receive(case, timeout=MINUTE)


async def _other_body(process: Process) -> None:
    await process.send(out, told(process, 2))
    await process.receive(case, timeout=MINUTE)


async def _other_promoted(process: Process) -> None:
    await process.send(out, process.message("Told", {"number": 1}, promote={"Region": "EU"}))
    await process.receive(case, timeout=MINUTE)


async def _other_time(process: Process) -> None:
    await process.send(out, told(process, 1))
    await process.receive(case, timeout=2 * MINUTE)


async def _other_type(process: Process) -> None:
    await process.send(out, told(process, 1))
    await process.receive(case, type="Payment", timeout=MINUTE)


async def _less(process: Process) -> None:
    await process.receive(case, timeout=MINUTE)


async def _an_end(process: Process) -> None:
    await process.send(out, told(process, 1))


async def _more(process: Process) -> None:
    await process.send(out, told(process, 1))
    await process.receive(case, timeout=MINUTE)


async def _an_error(process: Process) -> None:
    await process.send(out, told(process, 1))
    raise ValueError("new")


@pytest.mark.parametrize(
    ("code", "expected", "found", "below"),
    [
        (_other_port, "send Out", "send Other", 1),
        (_other_body, "send Out", "send Out with other content", 1),
        (_other_promoted, "send Out", "send Out with other content", 1),
        (_other_time, "timer receive", "timer receive with other content", 2),
        (_other_type, "wait case", "wait case with other content", 2),
        (_less, "send Out", "wait case", 1),
        (_an_end, "wait case", "end completed", None),
        (_an_error, "wait case", "end ValueError (ValueError: new)", 2),
    ],
)
def test_code_that_does_something_else_is_found_out(code: Any, expected: str, found: str, below: int | None) -> None:
    driver = Driver(a_function(as_it_was))
    driver.activate(OrderId="A")
    driver.orchestration = a_function(code)

    with pytest.raises(Mismatch) as raised:
        driver.replayed()

    mismatch = raised.value
    assert (mismatch.step, mismatch.expected, mismatch.found) == (1, expected, found)
    if below is not None:
        assert mismatch.line == f"{FILE}:{code.__code__.co_firstlineno + below}"
    then = f"{FILE}:{as_it_was.__code__.co_firstlineno + (1 if expected == 'send Out' else 2)}"
    assert str(mismatch) == (
        f"Orchestration 'fulfil' does something else in step 1, {mismatch.line or 'at no line'}, than its history says: "
        f"the history has {expected} (at {then} when it was recorded), and the code now has {found}; "
        "deploy code that does the same"
    )


def test_code_that_does_the_same_elsewhere_in_its_file_is_the_same() -> None:
    driver = Driver(a_function(as_it_was))
    driver.activate(OrderId="A")
    driver.orchestration = a_function(_more)
    driver.evict()
    driver.fire()

    assert driver.state() is not None


def test_code_that_depends_on_what_changes_is_found_out() -> None:
    numbers = iter(range(100))

    async def code(process: Process) -> None:
        await process.send(out, told(process, next(numbers)))
        await process.delay(MINUTE)

    driver = Driver(a_function(code), replay=False)
    driver.activate(OrderId="A")

    with pytest.raises(Mismatch, match="send Out with other content"):
        driver.replayed()


def test_code_that_asks_the_clock_itself_is_found_out() -> None:
    async def code(process: Process) -> None:
        await process.delay(until=datetime.now(UTC) + MINUTE)

    driver = Driver(a_function(code), replay=False)
    driver.activate(OrderId="A")

    with pytest.raises(Mismatch, match="timer delay with other content"):
        driver.replayed()


@pytest.mark.parametrize("how", ["drop", "forget"])
def test_finally_blocks_of_an_instance_that_leaves_memory_do_nothing(how: str) -> None:
    reached: list[str] = []

    async def code(process: Process) -> None:
        try:
            async with process.scope() as scope:
                scope.compensate(reached.append, "compensation")
                await process.receive(case)
        finally:
            process.log.error("finally")
            for verb in (process.now, process.uuid, lambda: process.random, lambda: process.patched("x")):
                with suppress(DroppedError):
                    verb()
                    reached.append("verb")
            await process.send(out, told(process, 1))
            reached.append("send")

    driver = Driver(a_function(code), replay=False)
    stepped = driver.activate(OrderId="A")
    if how == "drop":
        driver.run.drop()
    else:
        del driver.run
    gc.collect()

    assert reached == []
    assert stepped.sends == []


def test_a_finally_block_that_awaits_on_and_on_is_left_too() -> None:
    async def code(process: Process) -> None:
        try:
            await process.receive(case)
        finally:
            for _ in range(3):
                try:
                    await process.delay(MINUTE)
                finally:
                    await asyncio.sleep(0)

    driver = Driver(a_function(code), replay=False)
    driver.activate(OrderId="A")
    driver.run.drop()
    del driver.run
    gc.collect()


async def _sleep(process: Process) -> None:
    await asyncio.sleep(1)


async def _yield(process: Process) -> None:
    await asyncio.sleep(0)


async def _in_a_branch(process: Process) -> None:
    await process.parallel(_sleep(process), _yield(process))


async def _event(process: Process) -> None:
    await asyncio.Event().wait()


async def _request(process: Process) -> None:
    await httpx.AsyncClient().get("http://127.0.0.1:9/")


@pytest.mark.parametrize(
    ("code", "what", "where"),
    [
        (_event, "asyncio", _event),
        (_request, "asyncio", _request),
        (_sleep, "asyncio", _sleep),
        (_yield, "NoneType", _yield),
        (_in_a_branch, "asyncio", _sleep),
    ],
)
def test_awaiting_something_foreign_fails_at_once(code: Any, what: str, where: Any) -> None:
    reached: list[str] = []

    async def careless(process: Process) -> None:
        try:
            await code(process)
        except Exception:
            reached.append("caught")

    driver = Driver(a_function(careless if what == "NoneType" else code))
    driver.activate(OrderId="A")

    state = driver.state()
    assert isinstance(state, Failed)
    assert state.error == (
        f"Orchestration 'fulfil', step 1, {FILE}:{where.__code__.co_firstlineno + 1}: it awaits something of {what!r}; "
        "an orchestration awaits only what `process` has, such as process.delay"
    )
    assert state.code == "orchestration-misused"
    assert reached == []


def test_a_future_of_a_running_loop_is_foreign_too() -> None:
    driver = Driver(a_function(_sleep), replay=False)

    async def main() -> None:
        driver.activate(OrderId="A")

    asyncio.run(main())

    state = driver.state()
    assert isinstance(state, Failed)
    assert f"{FILE}:{_sleep.__code__.co_firstlineno + 1}: it awaits something of 'Future'" in state.error


def test_an_instance_that_has_ended_passes_over_what_comes_later() -> None:
    driver = Driver(a_function(_an_end))
    driver.activate(OrderId="A")
    stepped = driver.arrive("case", "Payment", 1)

    assert (stepped.taken, stepped.record.commands) == ([], [])


def test_a_record_is_the_same_after_it_was_stored() -> None:
    record = StepRecord(
        datetime(2026, 1, 1, 12, 30, 1, 123456, tzinfo=UTC),
        [
            Activated(uuid4(), 0),
            Arrived(uuid4(), "case"),
            Arrived(uuid4(), request=3),
            TimerFired(4),
            RequestFailed(5, "ø"),
            AtomicDone(6, b'{"a":1.50}'),
            AtomicDone(7, error=Raised("travel:CardRefused", b'["x"]', "CardRefused: x")),
            Cancelled(),
            Resumed(),
            Continued(
                [ContinuedArgument(b"1"), ContinuedArgument(message=uuid4())], {"case": b"{}"}, [], [], [], {}, {}
            ),
        ],
        [CommandDigest("send", "Out", b"12345678", "a.py:1")],
    )

    assert decode_record(encode_record(record)) == record


def test_a_step_takes_few_bytes() -> None:
    driver = Driver(a_function(as_it_was))
    stepped = driver.activate(OrderId="A")

    assert len(encode_record(stepped.record)) < 250


def test_names_of_orchestrations_load_no_spark_and_the_package_is_the_decorator_too() -> None:
    script = """
import sys
from crossdock import Correlation, DeliveryFailed, Message, Port, Process, Receive, Timeout, orchestration
import crossdock.orchestration.run
from crossdock import orchestration as again
@again(Receive("Order"))
async def code(process, order): ...
@orchestration(Receive("Order"))
async def code(process, order): ...
loaded = {"pyspark", "psycopg", "asyncio", "pandas"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
