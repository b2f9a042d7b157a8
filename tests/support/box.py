"""What tests of the MessageBox share: a small application, sources in the ledger, publications to publish."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import psycopg

from crossdock.message.context import Context
from crossdock.message.message import Message, Part, message_id
from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.message.publication import Failure, FromSource, Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedOrchestration, DeployedPort, Deployment, Version
from crossdock.subscription.text import parse_filter

AT_ONCE = timedelta(0)
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


def an_orchestration(name: str, filter_: str, *, convoy: bool = False) -> DeployedOrchestration:
    """One without code, for tests that take its steps themselves: orders begin it, and it correlates by the region."""
    type_ = "Order" if convoy else "Payment"
    receive = {"type": "Order", "filter": None, "initializes": ["case"], "convoy": convoy}
    return DeployedOrchestration(
        name,
        "Default",
        parse_filter(PropertyRegistry(PROPERTIES), filter_),
        {"case": (("Region",), (type_,))},
        {"name": name, "late": "discard", "receives": [receive], "bind": {}},
        Version("0" * 64, b""),
    )


def ids(agent: Agent) -> tuple[int, int]:
    """(location, host) of the only location."""
    [(location, host, _)] = agent.configuration.locations()
    return location, host


def listed(agent: Agent, *names: str) -> list[int]:
    """Enter sources in the ledger; gives their sequences."""
    location, _ = ids(agent)
    before = {item.sequence for item in agent.ledger.read(0, 2**62)}
    agent.ledger.enter([(location, name.encode(), 10) for name in names])
    return [item.sequence for item in agent.ledger.read(0, 2**62) if item.sequence not in before]


def bits_of(agent: Agent, sequence: int) -> int:
    """The random bits of a source in the ledger; 0 if it is not there any more."""
    with psycopg.connect(agent.database) as connection:
        row = connection.execute("SELECT random_bits FROM crossdock.intake WHERE sequence = %s", [sequence]).fetchone()
    return 0 if row is None else int(row[0])


def a_publication(
    agent: Agent, sequence: int, *promoted: Mapping[str, Value], failures: int = 0, bits: int | None = None
) -> Publication:
    """What the source `sequence` holds: a message for each mapping of promoted properties, then failures."""
    location, host = ids(agent)
    bits = bits_of(agent, sequence) if bits is None else bits
    messages = tuple(_message(bits, sequence, n, properties) for n, properties in enumerate(promoted))
    failed = tuple(
        Failure(_message(bits, sequence, len(messages) + n, {}), "the file is not JSON") for n in range(failures)
    )
    return Publication(host, messages, failed, FromSource(sequence, location, bits))


def count(database: str, table: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute(f"SELECT count(*) FROM crossdock.{table}").fetchone()
    assert row is not None
    return int(row[0])


def _message(bits: int, sequence: int, position: int, promoted: Mapping[str, Value]) -> Message:
    body = f"{sequence}/{position}".encode()
    return Message(message_id(bits, sequence, position), Context(promoted), (Part("body", body),))


def source_of(publication: Publication) -> FromSource:
    """Where in the ledger it comes from."""
    assert isinstance(publication.cause, FromSource)
    return publication.cause
