"""A large file in the ledger of a MessageBox, and what its messages became."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psycopg

from box import PROPERTIES
from crossdock.adapter.file.adapter import file_identity
from crossdock.dataflow.outcome import Outcome, Postponed
from crossdock.dataflow.worker import Worker
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.pipeline.definition import PipelineDefinition, RecordDefinition, SchemaDefinition
from crossdock.receive.item import IntakeItem
from crossdock.receive.location import LocationDefinition
from crossdock.receive.ranges import RangeLimits
from crossdock.subscription.text import parse_filter
from pipelines import fields

SMALL_IS_LARGE = RangeLimits(large_bytes=1_000, range_bytes=300)
JSON_ORDER = SchemaDefinition(type="Order", format="json", promote=fields({"Amount": ("decimal", "$.n")}))
JSON_LINES = JSON_ORDER.model_copy(update={"validate_with": {}})
CSV_ORDER = SchemaDefinition(
    type="Order", format="flat", record=RecordDefinition(promote=fields({"Amount": ("decimal", "n")}))
)


def listed(agent: Agent, folder: Path, content: bytes, schema: SchemaDefinition = JSON_ORDER) -> IntakeItem:
    """A file in the ledger of a MessageBox with one location and one port that wants everything."""
    file = folder / "orders.txt"
    file.write_bytes(content)
    kind = "json" if schema.format == "json" else "flat"
    pipeline = PipelineDefinition(disassemble=kind, schemas=(schema,), split="lines" if schema is JSON_LINES else None)
    definition = LocationDefinition(
        name="In", port="In", adapter="file", address=str(folder / "*.txt"), pipeline=pipeline
    )
    wanted = parse_filter(PropertyRegistry(PROPERTIES), "MessageType = 'Order'")
    agent.subscriptions.deploy(
        Deployment(
            "orders",
            PROPERTIES,
            [DeployedLocation("In", "Default", definition.model_dump(mode="json"))],
            [DeployedPort("All", "Default", 5, wanted, {})],
        )
    )
    [(location, _, _)] = agent.configuration.locations()
    agent.ledger.enter([(location, file_identity(file), len(content))])
    [item] = agent.ledger.read(0, 2**62)
    return item


def lines(count: int) -> bytes:
    return b"".join(b'{"n": %d, "fill": "%s"}\n' % (n, b"x" * (n % 50)) for n in range(count))


def worker(agent: Agent, limits: RangeLimits = SMALL_IS_LARGE) -> Worker:
    return Worker(agent, range_limits=limits)


def numbers(database: str) -> list[int]:
    """The numbers of the messages in the spool, in the order of their ids."""
    with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
        rows = connection.execute("SELECT context->'promoted'->'Amount'->>'decimal' FROM message ORDER BY id")
        return [int(number) for (number,) in rows if number is not None]


def places(database: str) -> list[int]:
    with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
        query = "SELECT context->'promoted'->'BTS.InterchangeSequenceNumber'->>'integer' FROM message ORDER BY id"
        return [int(number) for (number,) in connection.execute(query)]


def last_ones(database: str) -> list[int]:
    with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
        query = (
            "SELECT context->'promoted'->'Amount'->>'decimal' FROM message"
            " WHERE context->'promoted'->'BTS.LastInterchangeMessage'->>'boolean' = 'true'"
        )
        return [int(number) for (number,) in connection.execute(query)]


def reasons(outcomes: Iterable[Outcome]) -> list[str]:
    """Why sources were postponed."""
    return [outcome.reason for outcome in outcomes if isinstance(outcome, Postponed)]


def settled(agent: Agent) -> int:
    return len(agent.ledger.published(after=0))
