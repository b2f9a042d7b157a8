"""The intake: what one location's adapter does wrong is reported, and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from crossdock.adapter.contract import Listing, Source
from crossdock.pipeline.definition import PipelineDefinition
from crossdock.receive.intake import Intake
from crossdock.receive.location import LocationDefinition, ReceiveLocation


@dataclass(slots=True)
class KnownSources:
    """A ledger in memory."""

    listed: list[bytes] = field(default_factory=list)
    settled: list[tuple[int, int, bytes]] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)

    def list_intake(self, items: Sequence[tuple[int, bytes, int]]) -> int:
        self.listed += [identity for _, identity, _ in items]
        return len(items)

    def settled_intake(self, *, after: int, limit: int = 1000) -> list[tuple[int, int, bytes]]:
        return [row for row in self.settled if row[0] > after][:limit]

    def forget_intake(self, sequences: Sequence[int]) -> None:
        self.forgotten += sequences

    def abandon_intake(self, sequences: Sequence[int]) -> bool:  # noqa: ARG002
        return False


@dataclass(slots=True)
class AnyAdapter:
    """Lists one source, or fails as it is told; acknowledging fails too then."""

    failure: Exception | None = None
    incomplete: int = 0
    asked: int = 0

    def list(self) -> Listing:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return Listing((Source(b"one", 1),), self.incomplete)

    def read(self, identity: bytes) -> bytes | None:
        return identity

    def acknowledge(self, identity: bytes) -> None:  # noqa: ARG002
        if self.failure is not None:
            raise self.failure

    def name(self, identity: bytes) -> str:
        return identity.decode()


def location(number: int, adapter: AnyAdapter) -> ReceiveLocation:
    definition = LocationDefinition(
        name=f"Location{number}",
        port="In",
        adapter="file",
        address="/nowhere/*",
        pipeline=PipelineDefinition(disassemble="passthrough"),
    )
    made = ReceiveLocation.from_definition(number, 1, definition.model_dump(mode="json"))
    return ReceiveLocation(
        number, 1, made.definition, adapter, made.pipeline, made.address, made.transport, made.labels
    )


def test_adapter_that_fails_in_an_unexpected_way_backs_off_is_reported_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, sound = AnyAdapter(ValueError("no such name")), AnyAdapter()
    ledger, now = KnownSources(settled=[(1, 1, b"x"), (2, 2, b"y")]), [100.0]
    intake = Intake(ledger, clock=lambda: now[0])
    locations = {1: location(1, broken), 2: location(2, sound)}

    intake.round(locations, {})
    intake.round(locations, {})
    now[0] += 1.5
    intake.round(locations, {})

    assert (ledger.listed, set(ledger.forgotten)) == ([b"one"], {2})
    assert (intake.failing, broken.asked, sound.asked) == (1, 2, 3)
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "Receive location 'Location1': its adapter failed: ValueError: no such name; it is published and stays",
        "Receive location 'Location1' waits: its adapter failed: ValueError: no such name",
    ]


def test_failing_location_that_is_disabled_is_not_waited_for() -> None:
    broken = location(1, AnyAdapter(OSError("away")))
    intake = Intake(KnownSources())
    intake.round({1: broken}, {})
    assert intake.failing == 1

    intake.round({}, {1: broken})

    assert intake.failing == 0


def test_what_is_not_complete_for_long_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    adapter, now = AnyAdapter(incomplete=2), [100.0]
    intake = Intake(KnownSources(), clock=lambda: now[0])

    for _ in range(100):
        intake.round({1: location(1, adapter)}, {})
        now[0] += 0.5

    assert intake.incomplete == 2
    assert [record.message for record in caplog.records] == [
        "Receive location 'Location1' waits for 2 sources that changed too recently to be complete"
    ]
