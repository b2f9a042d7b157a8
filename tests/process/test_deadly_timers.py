"""Timers whose step ends the process: each is found by trying it alone, and its instance is suspended."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from crossdock.messagebox.agent import Agent
from express import rows
from running import clean, deploy, instances, message, publish, run
from walk import CROSSDOCK, until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("no_grace")]

FLOW = """
import ctypes

out = Port("Out")


@orchestration(Receive("Order"))
async def fulfil(process: Process, order: Message) -> None:
    await process.delay(timedelta(milliseconds=1))
    if order["OrderId"] == "deadly":
        ctypes.string_at(0)  # ends the process
    await process.send(out, process.message("Note", {"id": order["OrderId"]}))
"""


def suspended(agent: Agent) -> list[tuple[str | None, str | None]]:
    return [(each.code, each.reason) for each in agent.instances.list() if each.state == "suspended"]


def ended_or_suspended(process: subprocess.Popen[bytes], agent: Agent) -> bool:
    return process.poll() is not None or bool(suspended(agent))


def test_timer_whose_step_ends_its_process_is_set_aside_and_the_others_go_on(
    agent: Agent, database: str, folder: Path
) -> None:
    deploy(agent, folder, FLOW, "fulfil")
    publish(agent, *(message(agent, "Order", "deadly" if n == 3 else f"{n}") for n in range(8)))
    agent.subscriptions.stop("Out")  # nobody delivers: what was sent is counted

    codes: list[int] = []
    while not suspended(agent) and len(codes) < 8:
        host = subprocess.Popen([CROSSDOCK, "host", "Default", "--database", database], stderr=subprocess.DEVNULL)
        until(partial(ended_or_suspended, host, agent), 60)
        if host.poll() is None:
            until(lambda: instances(agent) == [("fulfil", "suspended", 1)], 60)
            host.terminate()
        codes.append(host.wait(60))

    assert [code == 0 for code in codes] == [False] * 4 + [True]
    reason = "The process that ran it has ended 4 times; it was not tried again."
    assert suspended(agent) == [("too-many-deaths", reason)]
    assert len(agent.suspended.messages()) == 7
    assert rows(database, "SELECT asleep FROM timer") == [(True,)]
    deploy(agent, folder, FLOW.replace("ctypes.string_at(0)", "pass"), "fulfil")
    agent.instances.resume([each.id for each in agent.instances.list()])
    run(agent)
    assert len(agent.suspended.messages()) == 8
    clean(agent)
