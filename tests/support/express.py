"""What tests of single verbs share: ports with all their options, messages that running code publishes, the books."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

import settling
from box import PROPERTIES
from crossdock.message.context import Context
from crossdock.message.message import Message, Part, StreamedPart
from crossdock.message.property import PropertyRegistry, Value
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedPort, Deployment
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.rows import Published, Reference
from crossdock.subscription.predicate import Filter
from crossdock.subscription.text import parse_filter


def port(
    name: str, filter_: str | None = None, *, host: str = "Default", priority: int = 5, **kind: Any
) -> DeployedPort:
    """A send port; without a filter only its transport id matches. `kind`: ordered, two_way, waits, group and port."""
    parsed = Filter() if filter_ is None else parse_filter(PropertyRegistry(PROPERTIES), filter_)
    return DeployedPort(name, host, priority, parsed, {}, **kind)


def deploy(
    agent: Agent, *ports: DeployedPort, application: str = "orders", hosts: Mapping[str, Sequence[str]] | None = None
) -> bool:
    """An application with these ports, and these hosts with their labels besides the default host."""
    return agent.subscriptions.deploy(Deployment(application, PROPERTIES, [], ports, {"Default": (), **(hosts or {})}))


def a_message(
    agent: Agent,
    promoted: Mapping[str, Value] | None = None,
    *,
    written: Mapping[str, Value] | None = None,
    labels: Sequence[str] = (),
    parts: Sequence[Part | StreamedPart] = (Part("body", b"content"),),
) -> Message:
    """A message that running code makes."""
    return Message(agent.message_id(), Context(promoted or {}, written or {}, frozenset(labels)), tuple(parts))


def publish(agent: Agent, *messages: Message | Mapping[str, Value]) -> Published:
    """Publish messages, or messages with these promoted properties, from the default host."""
    made = [each if isinstance(each, Message) else a_message(agent, each) for each in messages]
    return agent.publish([Publication(agent.configuration.hosts()["Default"], tuple(made))])


@contextmanager
def living(agent: Agent, host: str = "Default") -> Iterator[Lifeline]:
    """A host instance that lives until the end of the block."""
    lifeline = agent.queues.lifeline(agent.configuration.hosts()[host])
    lifeline.hold()
    try:
        yield lifeline
    finally:
        lifeline.end()


def claim(agent: Agent, life: Lifeline, host: str = "Default", *, limit: int = 1000) -> list[Reference]:
    return agent.queues.dequeue(agent.configuration.hosts()[host], life.instance, limit=limit)


def delivered_now(agent: Agent, host: str = "Default") -> list[Reference]:
    """Claim and complete everything that is ready, as an instance that comes and goes."""
    with living(agent, host) as life:
        references = claim(agent, life, host)
        settling.complete(
            agent, agent.configuration.hosts()[host], life.instance, [each.sequence for each in references]
        )
    return references


def at_ports(agent: Agent, column: str = "ready") -> dict[str, int]:
    """How many references of each port are `ready`, `waiting` or `suspended`; ports without any are left out."""
    return {row.name: count for row in agent.configuration.list_ports() if (count := getattr(row, column))}


def kinds(agent: Agent) -> list[tuple[str, str | None]]:
    """(kind, port) of everything that is suspended, the oldest first."""
    return [(row.kind, row.port) for row in agent.suspended.messages()]


def rows(database: str, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        return connection.execute(query.encode(), parameters).fetchall()


def unbalanced(database: str) -> list[tuple[Any, ...]]:
    """Messages whose counted references are not the references that are there; always empty."""
    return rows(
        database,
        """
        SELECT message_id, counted.total, held.total
          FROM (SELECT message_id, sum(delta) AS total
                  FROM (SELECT * FROM message_ref_log_1 UNION ALL SELECT * FROM message_ref_log_2
                        UNION ALL SELECT * FROM message_ref_total
                        UNION ALL SELECT id, reference_count FROM message
                                   WHERE id NOT IN (SELECT message_id FROM message_ref_total)) AS entry
                 GROUP BY message_id) AS counted
          FULL JOIN (SELECT message_id, count(*) AS total
                       FROM (SELECT message_id FROM queue UNION ALL SELECT message_id FROM claimed
                             UNION ALL SELECT message_id FROM scheduled
                             UNION ALL SELECT message_id FROM suspended
                             UNION ALL SELECT message_id FROM held
                             UNION ALL SELECT message_id FROM original) AS reference
                      GROUP BY message_id) AS held USING (message_id)
         WHERE coalesce(counted.total, 0) <> coalesce(held.total, 0)
        """,
    )
