"""The service class of orchestrations: how many threads an engine has, and how often it looks where nobody called it."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic

import pytest

from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import publish_within
from express import rows
from interleave import open_transaction
from running import clean, deploy, engine, message, sent
from walk import until

NOTE = """
out = Port("Out")

@orchestration(Receive("Order"))
async def note(process: Process, order: Message) -> None:
    await process.send(out, process.message("Note", {"id": order["OrderId"]}))
"""


def published_silently(agent: Agent, id_: str) -> None:
    """As by a publisher that dies between its commit and its NOTIFY."""
    host = agent.configuration.hosts()["Default"]
    with open_transaction(agent.database) as connection:
        publish_within(connection, agent.router(), [Publication(host, (message(agent, "Order", id_),))], [])


def step_threads(agent: Agent) -> int:
    prefix = f"orchestrations-{agent.configuration.hosts()['Default']}-step-"
    return sum(each.name.startswith(prefix) for each in threading.enumerate())


@pytest.mark.parametrize("threads", [1, 3])
def test_engine_has_the_threads_of_its_class_and_finds_what_nobody_called_it_for(
    agent: Agent, folder: Path, threads: int
) -> None:
    deploy(agent, folder, NOTE, "note")
    changed = (
        "UPDATE service_class SET dequeue_threads = %s, polling_interval = %s WHERE name = 'orchestration' RETURNING 1"
    )
    assert rows(agent.database, changed, threads, "20 milliseconds") == [(1,)]
    at_ports = "SELECT count(*) FROM queue JOIN service ON service.id = queue.service_id WHERE service.name = 'Out'"

    with engine(agent):
        until(lambda: step_threads(agent) == threads, 10)
        began = monotonic()
        for number in range(10):
            published_silently(agent, str(number))
            until(lambda: rows(agent.database, at_ports) == [(number + 1,)], 10)  # noqa: B023

    assert monotonic() - began < 10 * 1.0, "it would take 5 s at the interval that is given"
    assert [each["id"] for _, each in sent(agent)] == [str(number) for number in range(10)]
    clean(agent)
