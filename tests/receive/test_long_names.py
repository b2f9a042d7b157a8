"""Every message keeps the name of its source: one that is long does not become gigabytes of contexts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from crossdock.messagebox.agent import Agent
from crossdock.receive.location import ReceiveLocation
from large_sources import lines, listed


def test_small_file_of_many_messages_under_a_long_name_is_kept_back(agent: Agent, folder: Path) -> None:
    item = listed(agent, folder, lines(1))
    item = replace(item, identity=item.identity + b"\xff" * 3_500)
    content = b"[" + b",".join([b'{"n":1}'] * 70_000) + b"]"

    made = ReceiveLocation.from_definition(*agent.configuration.locations()[0]).publication(item, content)

    assert len(made.messages) == 0
    [failure] = made.failures
    assert (failure.code, failure.message.body) == ("context-too-large", content)
    assert "each of its 70,000 messages would keep the 4,096 characters of its name" in failure.reason
