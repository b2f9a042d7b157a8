"""What tests of the MessageBox share: a small application, sources in the ledger, interchanges to publish."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import psycopg

from crossdock.message.context import Context
from crossdock.message.message import Message, Part, message_id
from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.receive.interchange import Failure, Interchange
from crossdock.subscription.text import parse_filter

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
PROPERTIES = {"Region": PropertyType.TEXT, "Amount": PropertyType.DECIMAL}


def deployment(application: str = "orders", **filters: str) -> Deployment:
    """An application with one location and a send port for each filter."""
    registry = PropertyRegistry(PROPERTIES)
    return Deployment(
        application,
        PROPERTIES,
        [DeployedLocation(f"{application}.in", "Default", {})],
        [DeployedPort(name, "Default", 5, parse_filter(registry, text), {}) for name, text in filters.items()],
    )


def ids(agent: Agent) -> tuple[int, int]:
    """(location, host) of the only location."""
    [(location, host, _)] = agent.locations()
    return location, host


def listed(agent: Agent, *names: str) -> list[int]:
    """Enter sources in the ledger; gives their sequences."""
    location, _ = ids(agent)
    before = {item.sequence for item in agent.read_intake(0, 2**62)}
    agent.list_intake([(location, name.encode(), 10) for name in names])
    return [item.sequence for item in agent.read_intake(0, 2**62) if item.sequence not in before]


def an_interchange(agent: Agent, sequence: int, *promoted: Mapping[str, Value], failures: int = 0) -> Interchange:
    """What the source `sequence` holds: a message for each mapping of promoted properties, then failures."""
    location, host = ids(agent)
    box = agent.box_number()
    messages = tuple(_message(box, sequence, n, properties) for n, properties in enumerate(promoted))
    failed = tuple(
        Failure(_message(box, sequence, len(messages) + n, {}), "the file is not JSON") for n in range(failures)
    )
    return Interchange(sequence, location, host, messages, failed)


def count(database: str, table: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute(f"SELECT count(*) FROM crossdock.{table}").fetchone()
    assert row is not None
    return int(row[0])


def _message(box: int, sequence: int, position: int, promoted: Mapping[str, Value]) -> Message:
    body = f"{sequence}/{position}".encode()
    return Message(message_id(box, sequence, position), Context(promoted), (Part("body", body),))
