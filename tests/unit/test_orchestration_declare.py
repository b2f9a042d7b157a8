"""Declarations: what a module of orchestrations says, what is found in its code, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from crossdock import Correlation, Message, Port, Process, Receive, orchestration
from crossdock.errors import ApplicationError

first, second, unused, in_a_table = Port("First"), Port("Second"), Port("Unused"), Port("InATable")
table = {"x": [in_a_table]}
case = Correlation("OrderId", types=["Payment"])
later_named = Correlation("Later", types=["Payment"])
closed = Correlation("Closed", types=["Payment"])


async def helper(process: Process) -> None:
    await process.send(second, process.message("A", 1))
    await process.receive(later_named)


def test_an_orchestration_has_the_ports_and_sets_that_its_code_names() -> None:
    closure = Port("Closure")

    @orchestration(Receive("Order", initializes=case), late="next", correlations=[closed])
    async def fulfil(process: Process, order: Message) -> None:
        """Its text."""

        async def nested() -> None:
            await process.send(first, order)

        await nested()
        await helper(process)
        await process.send(closure, order)
        await process.send(table["x"][0], order)

    assert {each.name for each in fulfil.ports} == {"First", "Second", "Closure", "InATable"}
    assert [each.name for each in fulfil.correlations] == ["case", "closed", "later_named"]
    assert (fulfil.name, fulfil.late, fulfil.__doc__) == ("fulfil", "next", "Its text.")
    assert fulfil.receives[0].initializes == (case,)


def test_a_set_without_a_name_of_its_own_is_numbered() -> None:
    @orchestration(Receive("Order", initializes=[Correlation("A", types=["B"]), Correlation("C", types=["D"])]))
    async def fulfil(process: Process, order: Message) -> None: ...

    assert [each.name for each in fulfil.correlations] == ["correlation_1", "correlation_2"]


def test_a_receive_whose_type_follows_its_own_set_is_a_convoy() -> None:
    assert Receive("Payment", initializes=case).is_convoy
    assert not Receive("Order", initializes=case).is_convoy


def test_an_orchestration_that_is_called_brings_its_ports_and_sets() -> None:
    @orchestration(Receive("A", initializes=case))
    async def inner(process: Process, message: Message) -> None:
        await process.receive(case)
        await process.send(first, message)

    @orchestration(Receive("Order"))
    async def outer(process: Process, order: Message) -> None:
        await inner(process, order)

    assert outer.ports == (first,)
    assert outer.correlations == (case,)


def _not_async(process: Process, order: Message) -> None: ...


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda: Port(""), "A port of an orchestration is named by a text, not by ''"),
        (lambda: Correlation(types=["A"]), "A Correlation needs the names of properties"),
        (lambda: Correlation("A", types="B"), "Correlation('A') needs a list of the message types"),
        (lambda: Correlation("A", types=[]), "Correlation('A') needs a list of the message types"),
        (lambda: Receive(""), "A Receive names the type of its message"),
        (lambda: Receive("A", initializes="case"), "is not a Correlation"),  # type: ignore[arg-type]
        (lambda: orchestration("Order"), "Declare an orchestration with its receives"),  # type: ignore[arg-type]
        (lambda: orchestration(late="never"), "late='never' is neither"),  # type: ignore[arg-type]
        (lambda: orchestration()(_not_async), "Orchestration '_not_async' is not an `async def`"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_declaration_is_refused_in_one_sentence(declare: Any, told: str) -> None:
    with pytest.raises(ApplicationError) as refused:
        declare()

    assert told in str(refused.value)
