"""`process.atomic`: its value or its error is recorded, and it runs once."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from crossdock import (
    Message,
    Process,
    Receive,
    orchestration,
)
from crossdock.orchestration.declare import Orchestration
from orchestrating import Driver
from verbs import body_of, failed, out


class RefusedError(Exception):
    pass


def charge(connection: list[Any], amount: Any) -> dict[str, Any]:
    connection.append(amount)
    if amount == 13:
        raise RefusedError("unlucky", amount)
    if amount == 14:
        raise NotJsonError(object())
    return {"amount": amount, "with": ("a", "tuple")} if amount != 15 else {"connection": object()}


class NotJsonError(Exception):
    def __init__(self, thing: object) -> None:
        if isinstance(thing, str):
            raise TypeError("made for objects only")
        super().__init__(thing)


def charging() -> Orchestration:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        try:
            paid = await process.atomic(charge, order.json())
        except Exception as error:
            await process.send(out, body_of(process, error=type(error).__name__, args=[*map(str, error.args)]))
        else:
            await process.send(out, body_of(process, paid=paid))

    return code


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (12, {"paid": {"amount": 12, "with": ["a", "tuple"]}}),
        (b"12.50", {"paid": {"amount": Decimal("12.50"), "with": ["a", "tuple"]}}),
        (13, {"error": "RefusedError", "args": ["unlucky", "13"]}),
    ],
)
def test_an_atomic_function_gives_its_value_or_its_error_and_runs_once(body: object, sent: Any) -> None:
    driver, connection = Driver(charging()), list[Any]()
    driver.activate("Order", body)
    driver.evict()
    driver.perform(connection)
    driver.evict()

    assert len(connection) == 1
    assert driver.sends[-1][2] == sent


@pytest.mark.parametrize(("body", "told"), [(14, "NotJsonError"), (15, "returns what JSON cannot hold")])
def test_an_atomic_function_whose_outcome_cannot_be_kept_raises_a_general_error(body: int, told: str) -> None:
    driver = Driver(charging())
    driver.activate("Order", body)
    driver.perform([])

    sent = driver.sends[-1][2]
    assert sent["error"] == "AtomicError"
    assert told in sent["args"][0]


async def waiting(process: Process) -> None:
    await process.delay()


def test_a_coroutine_function_is_no_atomic_function() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        _ = await process.atomic(waiting, 1)  # the type of it is a coroutine: nobody would await that

    driver = Driver(code)
    driver.activate()

    assert "process.atomic takes a plain function and its arguments" in failed(driver).error
