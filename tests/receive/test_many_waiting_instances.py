"""A file whose messages very many instances wait for: it is kept back as a whole, and costs others no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from box import PROPERTIES, an_orchestration
from crossdock.messagebox import decide
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.pipeline.definition import SchemaDefinition
from express import publish, rows
from large_sources import listed, worker
from pipelines import fields

PAYMENT = SchemaDefinition(type="Payment", format="json", promote=fields({"Region": ("text", "$.region")}))


def test_range_whose_messages_too_many_instances_wait_for_is_kept_back(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = listed(agent, folder, b'{"region": "NO"}\n' * 34 + b'{"region": "SE"}\n' * 34, PAYMENT)
    flow = an_orchestration("Flow", "MessageType = 'Order'")
    agent.subscriptions.deploy(Deployment("flows", PROPERTIES, [], [], {"Default": ()}, orchestrations=[flow]))
    publish(agent, *({"BTS.MessageType": "Order", "Region": "NO"} for _ in range(50)))
    monkeypatch.setattr(decide, "_FOLLOWING_IN_ANY_CASE", 100)

    list(worker(agent).receive([item]))

    kept = agent.suspended.messages()
    codes = [each.code for each in kept]
    assert (codes.count("too-many-messages"), codes.count("no-subscriber")) == (34, 34)
    assert rows(agent.database, "SELECT count(*) FROM queue WHERE instance_id IS NOT NULL") == [(50,)]
    assert agent.ledger.published(after=0) != []
