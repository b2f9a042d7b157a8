"""Programs drawn at random do as coroutines what a reference without coroutines says, and every history replays."""

from __future__ import annotations

import os
from datetime import datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossdock.message.document import parse_json
from crossdock.orchestration.history import Arrived, Cancelled, Resumed
from crossdock.orchestration.run import Completed, Failed, Suspended, Waiting
from orchestrating import Driver
from small_programs import Block, Reference, as_orchestration, programs

_KINDS = ["A", "A", "B", "B", "both", "both", *["fire"] * 7, "resume", "resume", "evict", "cancel"]
Happening = tuple[str, int]
happenings = st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(0, 99)), min_size=5, max_size=16)
EXAMPLES = 800 if os.environ.get("CROSSDOCK_SOAK") else 100 if os.environ.get("CROSSDOCK_FAST") else 250


class Compared:
    """One program, both ways. The driver replays the whole history after each step, so every prefix is replayed."""

    def __init__(self, program: Block) -> None:
        self.driver = Driver(as_orchestration(program))
        self.driver.activate(OrderId="1")
        self.reference = Reference(program, self.driver.now)
        self.check()

    def happen(self, what: str, number: int) -> None:
        driver, reference = self.driver, self.reference
        match what:
            case "evict":
                driver.evict()
            case "fire":
                if driver.timers:
                    timer = min(driver.timers, key=lambda each: (driver.timers[each], each))
                    driver.fire()
                    reference.fire(driver.now, timer)
            case "resume":
                driver.step(Resumed())
                reference.resume(driver.now)
            case "cancel":
                driver.step(Cancelled())
                reference.cancel(driver.now)
            case "both":  # in one step
                driver.step(*(Arrived(driver.message(kind, number), "case") for kind in ("A", "B")))
                for kind in ("A", "B"):
                    self._message(driver.now, kind, number)
            case _:
                driver.arrive("case", what, number)
                self._message(driver.now, what, number)
        self.check()

    def _message(self, now: datetime, kind: str, number: int) -> None:
        if self.reference.ended is None:
            self.reference.message(now, kind, number)

    def check(self) -> None:
        assert [parse_json(each.body) for each in self.driver.sent] == self.reference.told
        assert self._state() == self._expected()
        if self.reference.ended is None:
            assert self.driver.timers == self.reference.timers

    def _state(self) -> str:
        match self.driver.state():
            case Completed(cancelled):
                return "cancelled" if cancelled else "completed"
            case Failed(error):
                return error.partition(":")[0]
            case Suspended():
                return "suspended"
            case Waiting():
                return "waiting"
            case state:
                raise AssertionError(state)

    def _expected(self) -> str:
        if self.reference.ended == "Timeout":
            return self._state() if self._state().startswith("the scope at ") else "Timeout"
        return self.reference.ended or ("suspended" if self.reference.suspended else "waiting")


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), happenings)
def test_a_program_does_as_a_coroutine_what_the_reference_says(program: Block, happened: list[Happening]) -> None:
    compared = Compared(program)
    for what, number in happened:
        if compared.reference.ended is not None:
            break
        compared.happen(what, number)
