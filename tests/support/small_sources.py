"""Small JSON files in the ledger of a MessageBox with one port that wants everything."""

from __future__ import annotations

from pathlib import Path

from box import PROPERTIES
from crossdock.adapter.file.adapter import file_identity
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.pipeline.definition import PipelineDefinition, SchemaDefinition
from crossdock.receive.item import IntakeItem
from crossdock.receive.location import LocationDefinition
from crossdock.subscription.text import parse_filter


def deployed(agent: Agent, folder: Path) -> None:
    """One location that reads folder/in/*.json, one that reads folder/other, and a port that wants everything."""
    (folder / "in").mkdir()
    pipeline = PipelineDefinition(disassemble="json", schemas=(SchemaDefinition(type="Order", format="json"),))
    address = str(folder / "in" / "*.json")
    definition = LocationDefinition(name="In", port="In", adapter="file", address=address, pipeline=pipeline)
    other = definition.model_copy(update={"name": "Other", "address": str(folder / "other" / "*")})
    locations = [DeployedLocation(each.name, "Default", each.model_dump(mode="json")) for each in (definition, other)]
    wanted = parse_filter(PropertyRegistry(PROPERTIES), "MessageType = 'Order'")
    agent.subscriptions.deploy(
        Deployment("orders", PROPERTIES, locations, [DeployedPort("All", "Default", 5, wanted, {})])
    )


def listed(agent: Agent, folder: Path, **contents: bytes) -> list[IntakeItem]:
    location = next(id_ for id_, _, kept in agent.configuration.locations() if kept["name"] == "In")
    for name, content in contents.items():
        (folder / "in" / f"{name}.json").write_bytes(content)
    paths = [folder / "in" / f"{name}.json" for name in contents]
    agent.ledger.enter([(location, file_identity(path), path.stat().st_size) for path in paths])
    return agent.ledger.read(0, 2**62)
