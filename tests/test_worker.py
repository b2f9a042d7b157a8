"""What a Spark Python worker does with sources that go wrong: everything is accounted for, and nothing stops the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from box import PROPERTIES
from crossdock.adapter.file import file_identity
from crossdock.administration.service import resume
from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.dataflow.worker import Worker
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.pipeline.definition import PipelineDefinition, SchemaDefinition
from crossdock.pipeline.document import Document
from crossdock.receive.intake import Intake
from crossdock.receive.interchange import IntakeItem
from crossdock.receive.location import LocationDefinition, ReceiveLocation
from crossdock.subscription.text import parse_filter


@dataclass(frozen=True, slots=True)
class AnyPipeline:
    """A pipeline of somebody else's making, which does as it likes."""

    work: Callable[[bytes], list[Document]]

    standard = False

    def may_take_long(self, content: bytes) -> bool:
        return bool(content)

    def execute(self, content: bytes, *, piece: bool) -> list[Document]:
        assert not piece
        return self.work(content)


def deployed(agent: Agent, folder: Path) -> None:
    """One location that reads folder/in/*.json, one that reads folder/other, and a port that wants everything."""
    (folder / "in").mkdir()
    pipeline = PipelineDefinition(disassemble="json", schemas=(SchemaDefinition(type="Order", format="json"),))
    address = str(folder / "in" / "*.json")
    definition = LocationDefinition(name="In", port="In", adapter="file", address=address, pipeline=pipeline)
    other = definition.model_copy(update={"name": "Other", "address": str(folder / "other" / "*")})
    locations = [DeployedLocation(each.name, "Default", each.model_dump(mode="json")) for each in (definition, other)]
    wanted = parse_filter(PropertyRegistry(PROPERTIES), "MessageType = 'Order'")
    agent.deploy(Deployment("orders", PROPERTIES, locations, [DeployedPort("All", "Default", 5, wanted, {})]))


def listed(agent: Agent, folder: Path, **contents: bytes) -> list[IntakeItem]:
    location = next(id_ for id_, _, kept in agent.locations() if kept["name"] == "In")
    for name, content in contents.items():
        (folder / "in" / f"{name}.json").write_bytes(content)
    paths = [folder / "in" / f"{name}.json" for name in contents]
    agent.list_intake([(location, file_identity(path), path.stat().st_size) for path in paths])
    return agent.read_intake(0, 2**62)


def worker_with(agent: Agent, work: Callable[[bytes], list[Document]]) -> Worker:
    """A worker whose locations run another pipeline, until it looks at the definitions again."""
    worker = Worker(agent, agent.box_number())
    pipeline: Any = AnyPipeline(work)
    worker._refresh()
    worker.locations = {id_: replace(location, pipeline=pipeline) for id_, location in worker.locations.items()}
    return worker


def good(content: bytes) -> list[Document]:
    return [Document(content, "Order", {"BTS.MessageType": "Order"})]


def test_source_that_the_messagebox_cannot_hold_is_suspended_whole_and_the_others_are_published(
    agent: Agent, folder: Path
) -> None:
    deployed(agent, folder)
    half = "\ud800"  # no encoding of PostgreSQL has it

    def work(content: bytes) -> list[Document]:
        return (
            [Document(content, "Order", {"BTS.MessageType": "Order", "Region": half})]
            if b"bad" in content
            else good(content)
        )

    items = listed(agent, folder, a=b"one", b=b"bad", c=b"two")
    for _ in worker_with(agent, work).receive(items):
        pass

    [row] = agent.suspended()
    assert (row.kind, row.receive_location, "the MessageBox cannot hold it" in row.reason) == ("receive", "In", True)
    assert agent.messages([row.id])[row.id].body == b"bad"
    assert agent.statistics().published == 2


def test_pipeline_that_raises_suspends_the_source_with_its_bytes(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)

    def work(content: bytes) -> list[Document]:
        if content == b"bad":
            raise ZeroDivisionError("oops")
        return good(content)

    for _ in worker_with(agent, work).receive(listed(agent, folder, a=b"bad", b=b"one")):
        pass

    [row] = agent.suspended()
    assert (row.kind, row.reason) == ("receive", "the pipeline failed: ZeroDivisionError: oops")
    assert agent.messages([row.id])[row.id].body == b"bad"
    assert agent.statistics().published == 1


def test_sources_are_read_again_when_the_locations_change_before_they_are_published(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)

    def work(content: bytes) -> list[Document]:
        agent.enable("Other", enabled=False)
        return [Document(content, "Order", {"BTS.MessageType": "Outdated"})]

    for _ in worker_with(agent, work).receive(listed(agent, folder, a=b"{}")):
        pass

    assert agent.statistics().published == 1  # by the definition as it is now, whose message type the port wants
    assert agent.suspended() == []


def test_published_source_of_a_location_that_was_disabled_since_is_still_removed(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)
    items = listed(agent, folder, a=b"{}")
    for _ in worker_with(agent, good).receive(items):
        pass
    agent.enable("In", enabled=False)
    disabled = {
        id_: ReceiveLocation.from_definition(id_, host, kept) for id_, host, kept in agent.locations(enabled=False)
    }

    Intake(agent).round({}, disabled)

    assert list((folder / "in").iterdir()) == []
    assert agent.read_intake(0, 2**62) == []


MIXED = b'{"region": "NO"}\n{"region": "SE"}\n{"region": "NO"}'


def application(folder: Path, *, sweden: bool) -> Deployment:
    """Files that are published whole or not at all, and a port for one region or for two."""
    wanted = "Region = 'NO' OR Region = 'SE'" if sweden else "Region = 'NO'"
    model = ApplicationModel.model_validate(
        {
            "application": "orders",
            "properties": {"Region": "text"},
            "schemas": [{"type": "Order", "format": "json", "promote": {"Region": "$.region"}}],
            "receive_ports": [
                {
                    "name": "In",
                    "locations": [
                        {
                            "name": "In", "adapter": "file", "address": "in/*.json", "pipeline": "json",
                            "interchange": "standard",
                        }
                    ],
                }
            ],
            "send_ports": [{"name": "Out", "adapter": "file", "address": "out/%MessageID%", "filter": wanted}],
        }
    )  # fmt: skip
    return deployment_of(model, folder / "orders.yaml", text_limit=256)


def test_standard_interchange_is_published_whole_or_kept_back_whole_until_somebody_wants_all_of_it(
    agent: Agent, folder: Path
) -> None:
    (folder / "in").mkdir()
    agent.deploy(application(folder, sweden=False))
    norway, sweden = b'{"region": "NO"}\n{"region": "NO"}', b'{"region": "SE"}'
    items = listed(agent, folder, a=norway, b=MIXED, c=norway, d=sweden)

    list(Worker(agent, agent.box_number()).receive(items))

    kept = {row.kind: row for row in agent.suspended()}
    assert (len(agent.suspended()), agent.statistics().published) == (2, 4)
    assert agent.messages([kept["receive"].id])[kept["receive"].id].body == MIXED
    assert kept["receive"].reason == (
        "message 2 of 3: No subscription matches: nobody wants this message of type 'Order'"
        " (all of the file is kept back: its interchange is standard)"
    )
    assert agent.messages([kept["unrouted"].id])[kept["unrouted"].id].body == sweden

    [result] = resume(agent, [str(kept["receive"].id)])
    assert result["result"] == f"still fails: {kept['receive'].reason}"
    agent.deploy(application(folder, sweden=True))
    results = resume(agent, [str(row.id) for row in kept.values()])

    assert {each["result"] for each in results} == {"published 3, unrouted 0, suspended 0", "routed"}
    assert (agent.suspended(), agent.statistics().ready) == ([], 8)


def test_subscription_that_comes_while_a_standard_interchange_is_published_is_heeded(
    agent: Agent, folder: Path
) -> None:
    (folder / "in").mkdir()
    agent.deploy(application(folder, sweden=False))
    worker = Worker(agent, agent.box_number())
    items = listed(agent, folder, a=MIXED)
    agent.router()
    with Agent(agent.database) as other:
        other.deploy(application(folder, sweden=True))

    list(worker.receive(items))

    assert (agent.suspended(), agent.statistics().published) == ([], 3)
