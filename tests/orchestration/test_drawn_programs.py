"""Programs drawn at random do in the engine, in a real MessageBox, what a reference without coroutines says.

The kit forgets the code after every step, so that every prefix of every history is replayed. The reference is given
what the history says has happened, with its times.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import small_programs
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.publication import Publication
from crossdock.messagebox.instance_rows import InstanceDetail
from crossdock.orchestration.history import (
    Activated,
    Arrived,
    Cancelled,
    Event,
    Resumed,
    StepRecord,
    TimerFired,
    decode_record,
)
from crossdock.testing.orchestrations import TemporaryMessageBox, messagebox, messagebox_server
from express import rows, unbalanced
from small_programs import Block, Reference, as_data, programs

__all__ = ["messagebox", "messagebox_server"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

EXAMPLES = 1_000 if os.environ.get("CROSSDOCK_SOAK") else 40
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # to shrink takes too long here
_LAG = timedelta(seconds=20)  # a timer counts from the commit of its step
_KINDS = ["A", "A", "B", "B", "both", "both", *["fire"] * 7, "resume", "resume", "cancel"]
Happening = tuple[str, int]
happenings = st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(0, 99)), min_size=3, max_size=10)
FLOW = """
import small_programs
from crossdock import Message, Process, Receive, orchestration

@orchestration(Receive("Order", initializes=small_programs.case))
async def drawn(process: Process, order: Message) -> None:
    await small_programs.run(process, small_programs.from_data(order.json()["program"]))
"""
APPLICATION = """
application: drawn
properties: {OrderId: text}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id}}
  - {type: A, format: json, promote: {OrderId: $.id}}
  - {type: B, format: json, promote: {OrderId: $.id}}
  - {type: Told, format: json}
send_ports: [{name: Files, adapter: file, address: "out/%MessageID%.json"}]
orchestrations: [{function: "flows:drawn", bind: {Out: Files}}]
"""


class Worked:
    """One program in the MessageBox, and beside it in the reference."""

    def __init__(self, box: TemporaryMessageBox, program: Block, id_: str) -> None:
        self._box = box
        self._id = id_
        self._seen = 0
        self._sent_before = len(box.sent_to("Files"))
        self._published: dict[UUID, Happening] = {}
        self._pending: list[Happening] = []
        box.publish("Order", {"id": id_, "program": as_data(program)})
        found = box.instances(where=f"OrderId = '{id_}'")
        self.instance = UUID(found[0].id) if found else None
        records = self._records(self._detail())
        self.reference = Reference(program, records[0].at if records else self._now())
        self._seen = 1
        self.ended = not found or not records  # in its first step, or that fails
        if self.ended:
            self._check_end(self._detail(), told=[] if found else self.reference.told)
        else:
            self._follow(records[1:])
            self._check(self._detail())

    def happen(self, what: str, number: int) -> None:
        before = self._detail()
        if before is not None and before.row.state == "suspended" and what != "cancel":
            what = "resume"
        self._bring_about(what, number)
        after = self._detail()
        self._follow(self._records(after)[self._seen :])
        told = list(self.reference.told)
        if after is None or after.row.code == "orchestration-failed":
            self._give(what)
            self.ended = True
            self._check_end(after, told=self.reference.told if after is None else told)
        else:
            self._check(after)

    def leave(self) -> None:
        if self.instance is not None:
            self._box.agent.instances.terminate([self.instance])

    def _bring_about(self, what: str, number: int) -> None:
        match what:
            case "fire":
                due = min(self.reference.timers.values(), default=self._now())
                self._box.clock.jump(seconds=max((due - self._now()).total_seconds(), 0) + 0.001)
            case "resume":
                self._box.resume(str(self.instance))
            case "cancel":
                self._box.cancel(str(self.instance))
            case "both":
                self._publish(("A", number), ("B", number))
            case _:
                self._publish((what, number))

    def _publish(self, *made: Happening) -> None:
        """In one transaction."""
        agent = self._box.agent
        messages = [
            Message(
                agent.message_id(),
                Context({"BTS.MessageType": kind, "OrderId": self._id}),
                (Part("body", str(number).encode()),),
            )
            for kind, number in made
        ]
        for message, each in zip(messages, made, strict=True):
            self._published[message.id] = each
            self._pending.append(each)
        agent.publish([Publication(agent.configuration.hosts()["Default"], tuple(messages))])
        self._box.run()

    # The reference

    def _follow(self, records: list[StepRecord]) -> None:
        """What the history says has happened since."""
        for record in records:
            for event in record.events:
                self._apply(event, record.at)
        self._seen += len(records)

    def _apply(self, event: Event, at: datetime) -> None:
        match event:
            case Arrived():
                each = self._published[event.message]
                assert self._pending.pop(0) == each, "messages are given in the order in which they were published"
                self.reference.message(at, *each)
            case TimerFired():
                if event.number in self.reference.timers:
                    assert self.reference.timers[event.number] <= at
                    self.reference.fire(at, event.number)
            case Resumed():
                self.reference.resume(at)
            case Cancelled():
                self.reference.cancel(at)
            case Activated():
                raise AssertionError("an instance is activated once")
            case _:
                raise AssertionError(event)

    def _give(self, what: str) -> None:
        """What the last step was given: of an instance that has ended there is no history any more."""
        now = self._now()
        if what in ("resume", "cancel"):
            getattr(self.reference, what)(now)
        for each in self._pending:
            if self.reference.ended is None:
                self.reference.message(now, *each)
        while self.reference.ended is None and (due := self._due(now)) is not None:
            self.reference.fire(now, due)

    def _due(self, now: datetime) -> int | None:
        timers = self.reference.timers
        return next((each for each in sorted(timers, key=lambda n: (timers[n], n)) if timers[each] <= now), None)

    # What is there

    def _check(self, found: InstanceDetail | None) -> None:
        assert found is not None
        assert self._told() == self.reference.told
        assert self.reference.ended is None
        assert (found.row.state == "suspended") == self.reference.suspended
        timers = {number: due for number, due in found.timers if number}
        assert timers.keys() == self.reference.timers.keys()
        assert all(abs(due - self.reference.timers[number]) < _LAG for number, due in timers.items())
        self.reference.timers.update(timers)

    def _check_end(self, found: InstanceDetail | None, *, told: list[list[object]]) -> None:
        assert self._told() == told
        if found is None:
            assert self.reference.ended in ("completed", "cancelled")
        else:
            expected = str(self.reference.ended)
            either = ("the scope at ", expected) if expected == "Timeout" else (expected,)
            assert str(found.row.reason).startswith(either)

    def _told(self) -> list[object]:
        return [each.json() for each in self._box.sent_to("Files")[self._sent_before :]]

    def _detail(self) -> InstanceDetail | None:
        return None if self.instance is None else self._box.agent.instances.describe(self.instance)

    def _records(self, found: InstanceDetail | None) -> list[StepRecord]:
        return [] if found is None else [decode_record(each) for each in found.records]

    def _now(self) -> datetime:
        [(now,)] = rows(self._box.agent.database, "SELECT clock()")
        assert isinstance(now, datetime)
        return now


@contextmanager
def deployed(box: TemporaryMessageBox, folder: Path) -> Iterator[TemporaryMessageBox]:
    shutil.copy(str(small_programs.__file__), folder)
    (folder / "flows.py").write_text(FLOW)
    (folder / "drawn.yaml").write_text(APPLICATION)
    box.deploy(folder / "drawn.yaml", suspends=True)
    yield box
    assert rows(box.agent.database, "SELECT count(*) FROM instance") == [(0,)]
    assert unbalanced(box.agent.database) == []


def test_a_program_does_in_the_engine_what_the_reference_says(messagebox: TemporaryMessageBox, folder: Path) -> None:
    ids = count()

    @settings(max_examples=EXAMPLES, deadline=None, phases=_PHASES, suppress_health_check=[HealthCheck.too_slow])
    @given(programs(), happenings)
    def drawn(program: Block, happened: list[Happening]) -> None:
        worked = Worked(messagebox, program, f"P{next(ids)}")
        try:
            for what, number in happened:
                if not worked.ended:
                    worked.happen(what, number)
        finally:
            worked.leave()

    with deployed(messagebox, folder):
        drawn()
