"""The intake: what one location's adapter does wrong is reported, and the others go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

import pytest

from crossdock.adapter.contract import Listing, Source
from crossdock.errors import TransientError
from crossdock.pipeline.definition import PipelineDefinition
from crossdock.receive.calls import AdapterCalls
from crossdock.receive.intake import Intake
from crossdock.receive.location import LocationDefinition, ReceiveLocation


@dataclass(slots=True)
class KnownSources:
    """A ledger in memory."""

    listed: list[bytes] = field(default_factory=list)
    settled: list[tuple[int, int, bytes]] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)

    def enter(self, items: Sequence[tuple[int, bytes, int]]) -> int:
        self.listed += [identity for _, identity, _ in items]
        return len(items)

    def published(self, *, after: int, limit: int = 1000) -> list[tuple[int, int, bytes]]:
        return [row for row in self.settled if row[0] > after][:limit]

    def forget(self, sequences: Sequence[int]) -> None:
        self.forgotten += sequences


@dataclass(slots=True)
class AnyAdapter:
    """Lists one source, or fails as it is told; acknowledging fails too then."""

    failure: Exception | None = None
    incomplete: int = 0
    asked: int = 0
    held: tuple[str, ...] = ()

    def list(self) -> Listing:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return Listing((Source(b"one", 1),), self.incomplete, self.held)

    def read(self, identity: bytes) -> bytes | None:
        return identity

    def acknowledge(self, identity: bytes) -> None:  # noqa: ARG002
        if self.failure is not None:
            raise self.failure

    def name(self, identity: bytes) -> str:
        return identity.decode()


@dataclass(slots=True)
class ManyAtOnce(AnyAdapter):
    """Acknowledges many at once, unless one of them is `stuck`: that one it cannot acknowledge at all."""

    stuck: bytes = b""
    batches: list[Sequence[bytes]] = field(default_factory=list)

    def read_batch(self, identities: Sequence[bytes]) -> Sequence[bytes | None]:
        return identities

    def acknowledge_batch(self, identities: Sequence[bytes]) -> None:
        self.batches.append(identities)
        for identity in identities:
            self.acknowledge(identity)

    def acknowledge(self, identity: bytes) -> None:
        if identity == self.stuck:
            raise TransientError(f"{identity.decode()} is locked")


@dataclass(slots=True)
class Hanging(AnyAdapter):
    """Answers nothing until it may."""

    may_answer: Event = field(default_factory=Event)

    def list(self) -> Listing:
        self.asked += 1
        self.may_answer.wait()
        return Listing((Source(b"late", 1),))

    def acknowledge(self, identity: bytes) -> None:  # noqa: ARG002
        self.may_answer.wait()


def location(number: int, adapter: AnyAdapter) -> ReceiveLocation:
    definition = LocationDefinition(
        name=f"Location{number}",
        port="In",
        adapter="file",
        address="/nowhere/*",
        pipeline=PipelineDefinition(disassemble="passthrough"),
    )
    made = ReceiveLocation.from_definition(number, 1, definition.model_dump(mode="json"))
    return replace(made, adapter=adapter)


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


@pytest.mark.parametrize(("stuck", "forgotten"), [(b"", [1, 2, 3]), (b"a", [2, 3]), (b"b", [1, 3]), (b"c", [1, 2])])
def test_source_that_cannot_be_removed_with_the_others_stays_in_the_ledger_and_the_others_go(
    stuck: bytes, forgotten: list[int]
) -> None:
    ledger = KnownSources(settled=[(1, 1, b"a"), (2, 1, b"b"), (3, 1, b"c")])

    Intake(ledger).acknowledge({1: location(1, ManyAtOnce(stuck=stuck))})

    assert ledger.forgotten == forgotten


def test_source_that_cannot_be_removed_holds_up_the_others_of_a_batch_only_once() -> None:
    ledger, adapter = KnownSources(settled=[(1, 1, b"a"), (2, 1, b"b"), (3, 1, b"c")]), ManyAtOnce(stuck=b"b")
    intake = Intake(ledger)

    for _ in range(2):
        intake.acknowledge({1: location(1, adapter)})
    adapter.stuck = b""
    for _ in range(2):
        intake.acknowledge({1: location(1, adapter)})

    assert adapter.batches == [[b"a", b"b", b"c"], [b"a", b"c"], [b"a", b"c"], [b"a", b"b", b"c"]]
    assert ledger.forgotten[2:] == [1, 3, 1, 3, 2, 1, 2, 3]


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


def test_what_somebody_holds_open_is_counted_at_once_and_named_once_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapter, now = AnyAdapter(held=("/in/a.json",)), [100.0]
    intake = Intake(KnownSources(), clock=lambda: now[0])

    intake.round({1: location(1, adapter)}, {})
    assert (intake.held, intake.incomplete, caplog.records) == (1, 0, [])
    for _ in range(100):
        intake.round({1: location(1, adapter)}, {})
        now[0] += 0.5
    intake.name_held()

    assert [record.message for record in caplog.records] == [
        "Receive location 'Location1' waits for /in/a.json: somebody has it open for writing"
    ]


def test_location_that_does_not_answer_is_said_once_and_left_out_until_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hanging, sound, ledger = Hanging(), AnyAdapter(), KnownSources()
    intake = Intake(ledger, calls=AdapterCalls(wait=0.5, late=0.5))
    locations = {1: location(1, hanging), 2: location(2, sound)}

    for _ in range(3):
        intake.round(locations, {})
    assert (hanging.asked, sound.asked, ledger.listed, intake.failing) == (1, 3, [b"one"], 1)
    hanging.may_answer.set()
    _wait_until(lambda: intake.round(locations, {}) > 0)

    assert (ledger.listed, intake.failing) == ([b"one", b"late"], 0)
    said, back = [record.message for record in caplog.records]
    assert back == "Receive location 'Location1' can be listed again"
    assert said.startswith("Receive location 'Location1' waits: it does not answer")


def test_listing_that_takes_long_is_waited_for_and_not_begun_again() -> None:
    slow, ledger = Hanging(), KnownSources()
    intake = Intake(ledger, calls=AdapterCalls(wait=0.0, late=600))

    for _ in range(3):
        intake.round({1: location(1, slow)}, {})
        assert (intake.incomplete, intake.failing) == (1, 0)
    slow.may_answer.set()
    _wait_until(lambda: intake.round({1: location(1, slow)}, {}) > 0)

    assert ledger.listed == [b"late"]


def test_source_whose_removal_does_not_answer_is_forgotten_once_it_is_removed() -> None:
    ledger, hanging = KnownSources(settled=[(1, 1, b"a"), (2, 2, b"b")]), Hanging()
    intake = Intake(ledger, calls=AdapterCalls(wait=0.5))
    locations = {1: location(1, hanging), 2: location(2, AnyAdapter())}

    intake.acknowledge(locations)
    assert (ledger.forgotten, intake.incomplete) == ([2], 1)
    hanging.may_answer.set()
    _wait_until(lambda: intake.round({}, locations) == 0 and 1 in ledger.forgotten)

    assert set(ledger.forgotten) == {1, 2}


def _wait_until(condition: Callable[[], bool]) -> None:
    """The condition calls our code, which gives way to the threads that it waits for."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
