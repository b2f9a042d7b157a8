"""What tests of the verbs of `process` share: ports, correlation sets, a body, and why an instance failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossdock import (
    Correlation,
    Message,
    Port,
    Process,
)
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.run import Failed
from orchestrating import Driver

out, partner = Port("Out"), Port("Partner")


case = Correlation("OrderId", types=["Payment", "Note"])


other = Correlation("InvoiceId", types=["Receipt"])


def body_of(process: Process, **fields: Any) -> Message:
    return process.message("Done", fields)


def failed(driver: Driver) -> Failed:
    state = driver.state()
    assert isinstance(state, Failed)
    return state


def line_of(code: Orchestration, below: int) -> str:
    """A line of the code: so many below its `async def`."""
    written = code.function.__code__
    first = written.co_firstlineno
    return f"{Path(written.co_filename).name}:{first + 1 + below}"
