"""What tests of branches and scopes share: code that runs in an instance at once, and what it told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from crossdock import Correlation, Message, Port, Process, Receive, orchestration
from crossdock.orchestration.run import Failed
from orchestrating import Driver

out, partner = Port("Out"), Port("Partner")


case = Correlation("OrderId", types=["Payment", "Note"])


MINUTE = timedelta(minutes=1)


HOUR = timedelta(hours=1)


async def tell(process: Process, what: object) -> None:
    await process.send(out, process.message("Told", {"what": what}))


def told(driver: Driver) -> list[Any]:
    return [body["what"] for port, _, body in driver.sends if port == "Out"]


def ran(code: Any) -> Driver:
    """The instance of a function that takes only `process`, after its first step."""

    @orchestration(Receive("Order", initializes=case), correlations=[case])
    async def function(process: Process, order: Message) -> None:  # noqa: ARG001
        await code(process)

    driver = Driver(function)
    driver.activate(OrderId="A")
    return driver


def failed(driver: Driver) -> Failed:
    state = driver.state()
    assert isinstance(state, Failed)
    return state
