"""What the role of a host publishes by its function is what the owner publishes: of few messages and of many."""

from __future__ import annotations

from typing import Any

import pytest

from crossdock.message.message import Part
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from express import a_message, deploy, port, rows
from roles import Roles, roles

__all__ = ["roles"]

_PARTS = (Part("body", b"content"), Part("invoice", b"paper"), Part("photograph", b"light"))
_STORED = """
    SELECT message.context::text, part_count, reference_count,
           ARRAY(SELECT part.name FROM unnest(message.parts) WITH ORDINALITY AS own (id, place) JOIN part USING (id)
                  ORDER BY place)
      FROM crossdock.message ORDER BY id"""
_QUEUED = """
    SELECT array_position(ARRAY(SELECT id FROM crossdock.message ORDER BY id), queue.message_id), subscription_id,
           service_id, subqueue, priority
      FROM crossdock.queue ORDER BY sequence"""


@pytest.mark.parametrize("count", [1, 50, 51, 200])
def test_role_publishes_what_the_owner_publishes(agent: Agent, roles: Roles, count: int) -> None:
    deploy(
        agent,
        port("All", "EXISTS(Amount)"),
        port("Line", "Amount >= 10", ordered=True, priority=3),
        port("None", "Amount < 0"),
    )
    roles.create()
    host = agent.configuration.hosts()["Default"]
    written = []

    for acting in (agent, roles.acting_as("Default")):
        messages = [a_message(agent, {"Amount": number}, parts=_PARTS[: number % 4]) for number in range(count)]
        acting.publish([Publication(host, tuple(messages))])
        written.append((rows(agent.database, _STORED), rows(agent.database, _QUEUED)))
        rows_gone(agent)

    assert written[0] == written[1]
    stored, queued = written[0]
    assert (len(stored), len(queued)) == (count, count + max(0, count - 10))


def rows_gone(agent: Agent) -> list[tuple[Any, ...]]:
    return rows(
        agent.database,
        "WITH gone AS (DELETE FROM crossdock.queue), read AS (DELETE FROM crossdock.part)"
        " DELETE FROM crossdock.message RETURNING id",
    )
