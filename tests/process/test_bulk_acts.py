"""A command that acts on many suspended deliveries and is stopped, or killed, in the middle: whole batches are done."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from crossdock.messagebox.agent import Agent
from express import at_ports, deploy, kinds, port, publish, unbalanced
from walk import until

pytestmark = pytest.mark.process
MANY, BATCH = 60, 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_command_that_is_ended_has_resumed_whole_batches_and_recorded_each(
    agent: Agent, database: str, number: signal.Signals
) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    agent.subscriptions.stop("A")
    publish(agent, *({"Region": "NO"} for _ in range(MANY)))
    words = ["resume", "--all", "--yes", "--rate", str(BATCH), "--database", database]
    with subprocess.Popen(
        [sys.executable, "-m", "crossdock", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        until(lambda: len(kinds(agent)) < MANY or command.poll() is not None, 60)
        command.send_signal(number)
        said, _ = command.communicate(timeout=60)

    left = len(kinds(agent))
    assert 0 < left < MANY
    assert (MANY - left) % BATCH == 0
    assert at_ports(agent) == {"A": MANY - left}
    done = [row for row in agent.audit.list(limit=1000) if (row.action, row.outcome) == ("resume", "done")]
    assert len(done) == MANY - left
    if number == signal.SIGINT:
        assert command.returncode == 3
        assert f"{MANY - left} of {MANY} done, 0 not, {left} not begun" in said
    assert unbalanced(database) == []
