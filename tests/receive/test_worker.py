"""What a Spark Python worker does with sources that go wrong: everything is accounted for, and nothing stops the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest

from acting import resume
from crossdock.adapter.contract import Listing
from crossdock.adapter.file.settle import path_of
from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.dataflow import reading
from crossdock.dataflow.outcome import Postponed
from crossdock.dataflow.reading import BATCH_ITEMS, READING_SECONDS
from crossdock.dataflow.worker import Worker
from crossdock.errors import ContextError, TransientError
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.rows import Published
from crossdock.pipeline.document import Document
from crossdock.receive.intake import Intake
from crossdock.receive.location import ReceiveLocation
from large_sources import reasons
from small_sources import deployed, listed


@dataclass(frozen=True, slots=True)
class AnyPipeline:
    """A pipeline of somebody else's making, which does as it likes."""

    work: Callable[[bytes], list[Document]]

    standard = False

    def may_take_long(self, content: bytes) -> bool:
        return bool(content)

    def execute(self, content: bytes, *, piece: bool, most: int) -> list[Document]:
        assert not piece
        return self.work(content)[:most]


def worker_with(agent: Agent, work: Callable[[bytes], list[Document]]) -> Worker:
    """A worker whose locations run another pipeline, until it looks at the definitions again."""
    worker = Worker(agent)
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

    [row] = agent.suspended.messages()
    assert (row.kind, row.receive_location, "the MessageBox cannot hold it" in row.reason) == ("receive", "In", True)
    assert agent.messages.load([row.id])[row.id].body == b"bad"
    assert agent.statistics().published == 2


def test_source_that_can_be_neither_published_nor_suspended_waits_and_the_others_are_published(
    agent: Agent, folder: Path
) -> None:
    deployed(agent, folder)
    items = listed(agent, folder, a=b"one", b=b"bad", c=b"two")

    class Stubborn(Agent):
        def publish(self, publications: Sequence[Publication], *, location_epoch: UUID | None = None) -> Published:
            kept = [*(each.messages for each in publications), *([f.message for f in p.failures] for p in publications)]
            if any(message.body == b"bad" for messages in kept for message in messages):
                raise ContextError("its context is too large")
            return super().publish(publications, location_epoch=location_epoch)

    with Stubborn(agent.database) as stubborn:
        outcomes = list(worker_with(stubborn, good).receive(items))

    [postponed] = [each for each in outcomes if isinstance(each, Postponed)]
    assert postponed.reason == (
        "Receive location 'In': it can be neither published nor suspended: its context is too large"
    )
    assert agent.statistics().published == 2


def test_pipeline_that_raises_suspends_the_source_with_its_bytes(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)

    def work(content: bytes) -> list[Document]:
        if content == b"bad":
            raise ZeroDivisionError("oops")
        return good(content)

    for _ in worker_with(agent, work).receive(listed(agent, folder, a=b"bad", b=b"one")):
        pass

    [row] = agent.suspended.messages()
    assert (row.kind, row.reason) == ("receive", "the pipeline failed: ZeroDivisionError: oops")
    assert agent.messages.load([row.id])[row.id].body == b"bad"
    assert agent.statistics().published == 1


def test_sources_are_read_again_when_the_locations_change_before_they_are_published(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)

    def work(content: bytes) -> list[Document]:
        agent.subscriptions.enable("Other", enabled=False)
        return [Document(content, "Order", {"BTS.MessageType": "Outdated"})]

    for _ in worker_with(agent, work).receive(listed(agent, folder, a=b"{}")):
        pass

    assert agent.statistics().published == 1  # by the definition as it is now, whose message type the port wants
    assert agent.suspended.messages() == []


@dataclass(frozen=True, slots=True)
class FailingAdapter:
    """An adapter of somebody else's making, which cannot read what it listed."""

    error: Exception

    def list(self) -> Listing:
        raise self.error

    def read(self, identity: bytes) -> bytes | None:  # noqa: ARG002
        raise self.error

    def acknowledge(self, identity: bytes) -> None:  # noqa: ARG002
        raise self.error

    def name(self, identity: bytes) -> str:
        return path_of(identity).decode()


class FailingBatchAdapter(FailingAdapter):
    """The same, for many at once."""

    def read_batch(self, identities: Sequence[bytes]) -> Sequence[bytes | None]:  # noqa: ARG002
        raise self.error

    def acknowledge_batch(self, identities: Sequence[bytes]) -> None:  # noqa: ARG002
        raise self.error


class Clock:
    """A clock that tests move."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class SlowBatchAdapter:
    """One that answers nothing: each call fails after a while. `reads` counts those of one source."""

    clock: Clock
    reads: int = 0

    def read_batch(self, identities: Sequence[bytes]) -> Sequence[bytes | None]:  # noqa: ARG002
        self.clock.now += 2 * READING_SECONDS
        raise TransientError("no answer")

    def read(self, identity: bytes) -> bytes | None:  # noqa: ARG002
        self.reads += 1
        raise TransientError("no answer")

    def list(self) -> Listing:
        return Listing(())

    def acknowledge(self, identity: bytes) -> None: ...

    def acknowledge_batch(self, identities: Sequence[bytes]) -> None: ...

    def name(self, identity: bytes) -> str:
        return path_of(identity).decode()


def test_sources_of_a_location_that_does_not_answer_are_not_waited_for_one_by_one(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(agent, folder)
    items = listed(agent, folder, a=b"one", b=b"two", c=b"three")
    clock = Clock()
    monkeypatch.setattr(reading, "time", clock)
    adapter = SlowBatchAdapter(clock)
    worker = Worker(agent)
    worker._refresh()
    worker.locations = {id_: replace(location, adapter=adapter) for id_, location in worker.locations.items()}

    outcomes = list(worker.receive(items))

    assert [type(each) for each in outcomes] == [Postponed] * 3
    assert adapter.reads == 0


class SlowlyAnsweringAdapter(SlowBatchAdapter):
    """One that gives what it is asked for, and takes its time: `batches` are the sizes of what was asked for."""

    batches: ClassVar[list[int]] = []

    def read_batch(self, identities: Sequence[bytes]) -> Sequence[bytes | None]:
        self.clock.now += READING_SECONDS * 0.6
        self.batches.append(len(identities))
        return [b"content"] * len(identities)


def test_task_reads_from_a_slow_location_for_a_while_and_leaves_the_rest_for_later(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(agent, folder)
    items = listed(agent, folder, **{f"n{number}": b"x" for number in range(3 * BATCH_ITEMS)})
    clock = Clock()
    monkeypatch.setattr(reading, "time", clock)
    adapter = SlowlyAnsweringAdapter(clock)
    locations = {
        id_: replace(ReceiveLocation.from_definition(id_, host, kept), adapter=adapter)
        for id_, host, kept in agent.configuration.locations()
    }

    read = reading.Reading(locations, lambda _: "", items)

    assert adapter.batches == [BATCH_ITEMS] * 2
    found = Counter(type(read.read(item)) for item in items)
    assert found == {reading.Content: 2 * BATCH_ITEMS, reading.Unreadable: BATCH_ITEMS}


class GrownAdapter(SlowlyAnsweringAdapter):
    """Gives far more than it listed."""

    def read(self, identity: bytes) -> bytes:  # noqa: ARG002
        return b"content"


def test_sources_that_have_grown_are_not_all_read_before_the_first_is_published(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(agent, folder)
    items = listed(agent, folder, **{f"n{number}": b"x" for number in range(3 * BATCH_ITEMS)})
    adapter = GrownAdapter(Clock())
    monkeypatch.setattr(adapter, "batches", [])
    monkeypatch.setattr(reading, "BATCHES_BYTES", BATCH_ITEMS)
    locations = {
        id_: replace(ReceiveLocation.from_definition(id_, host, kept), adapter=adapter)
        for id_, host, kept in agent.configuration.locations()
    }

    read = reading.Reading(locations, lambda _: "", items)

    assert adapter.batches == [BATCH_ITEMS]
    assert {type(read.read(item)) for item in items} == {reading.Content}


ERRORS = [TransientError("away"), FileNotFoundError("no such table")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", [FailingAdapter, FailingBatchAdapter])
@pytest.mark.parametrize("carefully", [False, True])
def test_source_that_its_adapter_cannot_read_has_not_vanished(
    agent: Agent, folder: Path, error: Exception, kind: type[FailingAdapter], carefully: bool
) -> None:
    deployed(agent, folder)
    items = listed(agent, folder, a=b"{}", b=b"{}")
    worker = worker_with(agent, good)
    adapter = kind(error)
    worker.locations = {id_: replace(each, adapter=adapter) for id_, each in worker.locations.items()}

    outcomes = list(worker.receive(items, carefully=carefully))

    postponed = [outcome for outcome in outcomes if isinstance(outcome, Postponed)]
    assert [(each.sequence, str(error) in each.reason) for each in postponed] == [
        (item.sequence, True) for item in items
    ]
    assert agent.ledger.read(0, 2**62) == items
    for _ in Worker(agent).receive(items):
        pass
    assert agent.statistics().published == 2


def test_published_source_of_a_location_that_was_disabled_since_is_still_removed(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)
    items = listed(agent, folder, a=b"{}")
    for _ in worker_with(agent, good).receive(items):
        pass
    agent.subscriptions.enable("In", enabled=False)
    disabled = {
        id_: ReceiveLocation.from_definition(id_, host, kept)
        for id_, host, kept in agent.configuration.locations(enabled=False)
    }

    Intake(agent.ledger).round({}, disabled)

    assert list((folder / "in").iterdir()) == []
    assert agent.ledger.read(0, 2**62) == []


def test_reason_why_a_source_waits_names_its_location(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)
    items = listed(agent, folder, a=b"{}", b=b"{}")
    agent.subscriptions.enable("In", enabled=False)

    outcomes = Worker(agent).receive(items)

    assert reasons(outcomes) == ["Receive location 'In': it is disabled"] * 2


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
    agent.subscriptions.deploy(application(folder, sweden=False))
    norway, sweden = b'{"region": "NO"}\n{"region": "NO"}', b'{"region": "SE"}'
    items = listed(agent, folder, a=norway, b=MIXED, c=norway, d=sweden)

    list(Worker(agent).receive(items))

    kept = {row.kind: row for row in agent.suspended.messages()}
    assert (len(agent.suspended.messages()), agent.statistics().published) == (2, 4)
    assert agent.messages.load([kept["receive"].id])[kept["receive"].id].body == MIXED
    assert kept["receive"].reason == (
        "message 2 of 3: No subscription matches: nobody wants this message of type 'Order'"
        " (all of the file is kept back: its interchange is standard)"
    )
    assert agent.messages.load([kept["unrouted"].id])[kept["unrouted"].id].body == sweden

    [result] = resume(agent, [str(kept["receive"].id)])
    assert result.result == f"still fails: {kept['receive'].reason}"
    agent.subscriptions.deploy(application(folder, sweden=True))
    results = resume(agent, [str(row.id) for row in kept.values()])

    assert {each.result for each in results} == {"published 3, unrouted 0, suspended 0", "routed"}
    assert (agent.suspended.messages(), agent.statistics().ready) == ([], 8)


def test_subscription_that_comes_while_a_standard_interchange_is_published_is_heeded(
    agent: Agent, folder: Path
) -> None:
    (folder / "in").mkdir()
    agent.subscriptions.deploy(application(folder, sweden=False))
    worker = Worker(agent)
    items = listed(agent, folder, a=MIXED)
    agent.router()
    with Agent(agent.database) as other:
        other.subscriptions.deploy(application(folder, sweden=True))

    list(worker.receive(items))

    assert (agent.suspended.messages(), agent.statistics().published) == ([], 3)
