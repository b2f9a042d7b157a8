"""One instance in hand: what it is given in this step, what its code makes of that, and the step that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from secrets import token_bytes
from typing import Any, assert_never
from uuid import UUID

from crossdock.errors import ApplicationError, InstanceEndedError, Mismatch, OrchestrationError, brief
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.message.publication import Awaited
from crossdock.messagebox.instance_change import WAKE_UP, InstanceChange
from crossdock.messagebox.instance_rows import new_instance_id
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.settle import Complete, GiveBack, Hold, Settlement, Suspend
from crossdock.messagebox.step import Step
from crossdock.orchestration.history import (
    Activated,
    Arrived,
    Cancelled,
    Event,
    RequestFailed,
    Resumed,
    StepRecord,
    TimerFired,
    encode_record,
)
from crossdock.orchestration.program import Program, RunTools
from crossdock.orchestration.run import (
    AtomicWanted,
    Completed,
    ContinuedWith,
    Failed,
    InstanceRun,
    Stepped,
    Suspended,
    Waiting,
)
from crossdock.orchestration.sending import FAULT, answered_request, awaited_response, is_answer, sent_message
from crossdock.subscription.router import receive_of

_REPORT, _REASON = "ErrorReport.ErrorType", "ErrorReport.Description"
BY_CODE = "suspended-by-code"
_SECRET_BYTES = 16
TOGETHER_BYTES = 16 * 1024 * 1024  # of the steps that are committed together
_MOST_CONTINUED = 100
_REPLAYED = "A replay right after the step found this, and nothing of the step is done."
LATE = "The instance ended without taking this message."


@dataclass(slots=True)
class Live:
    """An instance whose code is in memory, after so many steps.

    `history`: its records, if it is one of those that are replayed after their steps.
    """

    id: UUID
    program: Program
    activation: UUID
    tools: RunTools
    run: InstanceRun
    step: int = 0
    stored: bool = False
    subscribed: bool = False
    history: list[bytes] | None = None


@dataclass(slots=True)
class Task:
    """What an instance is given now: references, messages that were kept for it, timers.

    `parked` are (number, message, subscription). `wakes`: the events of an instance that was resumed or cancelled.
    """

    id: UUID
    at: datetime
    references: list[Reference] = field(default_factory=list)
    timers: list[int] = field(default_factory=list)
    timer_deaths: int = 0
    parked: Sequence[tuple[int, UUID, int]] = ()
    wakes: Sequence[Event] = ()
    live: Live | None = None

    @property
    def is_stored(self) -> bool:
        """Whether its instance is in the MessageBox, or was. Otherwise its one reference begins it."""
        return bool(self.timers) or any(each.instance is not None for each in self.references)

    @property
    def deaths(self) -> int:
        """How many processes have ended that had some of it in hand."""
        return max([self.timer_deaths, *(each.deaths for each in self.references)])

    @property
    def has_streams(self) -> bool:
        """Whether a message comes with a part that is fetched when it is read."""
        return any(isinstance(part, StreamedPart) for each in self.references for part in each.message.parts)

    def events(self, live: Live, correlations: Mapping[int, str | None], *, case_sensitive: bool) -> list[Event]:
        """In the order in which they are given to the code: what began it, messages, timers.

        That it was cancelled comes before messages: what they would lead to may be why it is cancelled.
        """
        brought = [
            (number, live.tools.messages[message], subscription) for number, message, subscription in self.parked
        ]
        brought += [(each.sequence, each.message, each.subscription_id) for each in self.references]
        brought.sort(key=lambda each: each[0])
        events: list[Event] = []
        for _, message, subscription in brought:
            if live.step == 0 and message.id == live.activation and not any(isinstance(e, Activated) for e in events):
                receives, promoted = live.program.receives, message.context.promoted
                number = receive_of(receives, promoted, case_sensitive=case_sensitive)
                events.insert(0, Activated(message.id, number, token_bytes(_SECRET_BYTES)))
            else:
                events.append(_arrived(live, message, subscription, correlations))
        timers = [TimerFired(number) for number in self.timers if number != WAKE_UP]
        if self.is_cancelled:
            return [*self.wakes, *events, *timers]
        return [*events, *self.wakes, *timers]

    @property
    def is_cancelled(self) -> bool:
        return any(isinstance(event, Cancelled) for event in self.wakes)


def _arrived(live: Live, message: Message, subscription: int, correlations: Mapping[int, str | None]) -> Event:
    request = answered_request(live.id, live.run.secret, message.context)
    names = following(live.program, message)
    if request is not None and (not names or correlations.get(subscription, "") is None):
        labels = tuple(sorted(message.context.labels))
        if _REPORT in message.context.promoted:
            return RequestFailed(request, str(message.context.get(_REASON) or "the delivery failed"), labels)
        if message.context.get(FAULT) is True:
            told = brief(message.body.decode(errors="replace"))
            return RequestFailed(request, f"the answer is a fault: {told}", labels)
        return Arrived(message.id, request=request)
    name = correlations.get(subscription) or (names[0] if names else None)
    return Arrived(message.id, correlation=name)


def following(program: Program, message: Message) -> list[str]:
    """The correlations of an orchestration that a message of this type may follow."""
    type_ = str(message.context.promoted.get("BTS.MessageType", "")).casefold().rstrip()
    known = program.orchestration.correlations
    return [each.name for each in known if type_ in {known.casefold().rstrip() for known in each.types}]


def is_ambiguous(program: Program, instance: UUID, message: Message) -> bool:  # noqa: ARG001
    """Whether the message alone does not say by what the instance was given it."""
    return len(following(program, message)) + is_answer(message.context) > 1


def wake_events(state: str, code: str | None) -> list[Event]:
    """What an instance that is woken is told."""
    events: list[Event] = [Resumed()] if code == BY_CODE else []
    return [*events, Cancelled()] if state == "cancelling" else events


NewId = Callable[[], MessageId]


@dataclass(slots=True)
class Outcome:
    """What the code has done in one transaction: one or more steps of the run, since atomic work is part of it."""

    task: Task
    live: Live
    host_instance: int
    steps: list[Stepped] = field(default_factory=list)
    continued: ContinuedWith | None = None
    mismatch: Mismatch | None = None

    @property
    def size(self) -> int:
        """The bytes of what it sends; the most there is room for where the code may hold the values of a large body."""
        if self.task.has_streams or self.live.tools.has_large:
            return TOGETHER_BYTES
        parts = (part for each in self.steps for send in each.sends for part in send.parts)
        return sum(len(part.body) for part in parts if isinstance(part, Part))

    def cancel_unbegun(self) -> None:
        """Its first step was never done, so there is nothing to undo: it ends, and none of its code is run."""
        held = [message for _, message, _ in self.task.parked if message != self.live.activation]
        given = [each.message.id for each in self.task.references if each.message.id != self.live.activation]
        events: list[Event] = [Arrived(message) for message in [*held, *given]]
        self.add(Stepped(StepRecord(self.task.at, events, []), Completed(cancelled=True)))

    def run(self, events: Sequence[Event]) -> None:
        """Run the code until it waits; what continues with itself goes on at once."""
        given = events
        for _ in range(_MOST_CONTINUED):
            self.add(self.live.run.step(self.task.at, given))
            state = self.last.state
            if not isinstance(state, ContinuedWith):
                return
            given = state.events
        raise ApplicationError("it continues with itself without ever waiting")

    def add(self, stepped: Stepped) -> None:
        """A step; what `continue_with` drops is not recorded."""
        self.steps.append(stepped)
        if isinstance(stepped.state, ContinuedWith):
            self.continued = stepped.state

    @property
    def last(self) -> Stepped:
        return self.steps[-1]

    def step(self, new_id: NewId, addresses: Mapping[tuple[str, str], str]) -> Step:
        """As the MessageBox does it. A failed step does nothing but suspend the instance."""
        state = self.last.state
        if self.mismatch is not None:
            return self.suspended(Mismatch.code, f"{self.mismatch}. {_REPLAYED}", line=self.mismatch.line)
        match state:
            case Failed(error, traceback, line):
                return self.suspended(OrchestrationError.code, error, line=line, traceback=traceback)
            case Completed():
                return self._sent(self._ended(), new_id, addresses)
            case Waiting(what, line):
                return self._sent(self._going_on(waiting_for=what, line=line), new_id, addresses)
            case Suspended(reason, line):
                change = self._going_on(state="suspended", code=BY_CODE, reason=reason, line=line)
                return self._sent(change, new_id, addresses)
            case AtomicWanted() | ContinuedWith():  # before the transaction of atomic work: only its fence counts
                return Step(self.live.program.host_id, self.host_instance, self._held(), change=self._going_on())
            case _:
                assert_never(state)

    def suspended(self, code: str, reason: str, *, line: str = "", traceback: str | None = None) -> Step:
        """Nothing of the step is done, and what the instance was given is kept for when it is resumed."""
        woken = [WAKE_UP] if WAKE_UP in self.task.timers else []
        change = self._change(
            state="suspended", code=code, reason=reason, line=line, traceback=traceback, timers_done=woken
        )
        kept = [Hold(each, self.live.id, None) for each in self.task.references]
        return Step(self.live.program.host_id, self.host_instance, kept, change=change)

    def _change(self, **made: Any) -> InstanceChange:
        live = self.live
        return InstanceChange(
            live.id, live.program.service_id, live.program.version, live.activation, live.step, live.stored, **made
        )

    def _going_on(self, **state: object) -> InstanceChange:
        timers: dict[int, datetime] = {}
        done = set(self.task.timers)
        for stepped in self.steps:
            done.update(stepped.cancelled_timers)
            timers |= stepped.timers
            for number in stepped.cancelled_timers:
                timers.pop(number, None)
        change = self._change(
            records=self._records(),
            given=[number for number, _, _ in self.task.parked],
            timers=[(number, due - self.task.at) for number, due in timers.items()],
            timers_done=sorted(done),
            timed=not self.task.references and not self.task.parked and not self.task.wakes,
            **state,
        )
        if self.continued is not None:
            first = self.continued.events[0]
            change = replace(change, restarts=True, kept=getattr(first, "messages", ()))
        return change

    def _records(self) -> list[bytes]:
        return [encode_record(each.record) for each in self.recorded_steps]

    @property
    def history(self) -> list[bytes]:
        """All records of the instance, with those of this step."""
        before = [] if self.continued is not None else self.live.history or []
        return [*before, *self._records()]

    @property
    def recorded(self) -> int:
        """How many steps are recorded."""
        return len(self.recorded_steps)

    @property
    def recorded_steps(self) -> Sequence[Stepped]:
        """Of what was continued only what followed it."""
        continued = (n for n, each in enumerate(self.steps, 1) if isinstance(each.state, ContinuedWith))
        return self.steps[max(continued, default=0) :]

    def _held(self) -> list[Settlement]:
        return [Hold(each, self.live.id, self.live.step + self.recorded) for each in self.task.references]

    def _ended(self) -> InstanceChange:
        passes_on = self.live.program.passes_on and self.live.stored
        mine = {each.message.id for each in self.task.references}
        return self._change(
            ends=True,
            left=[message for message in self._left() if message not in mine],
            successor=new_instance_id() if passes_on else None,
            timed=not self.task.references and not self.task.parked and not self.task.wakes,
        )

    def _left(self) -> list[UUID]:
        """What it was given over its life and has not taken."""
        taken = {message for each in self.steps for message in each.taken}
        arrived = [event.message for each in self.steps for event in each.record.events if isinstance(event, Arrived)]
        return [message for message in dict.fromkeys([*self.live.run.inbox, *arrived]) if message not in taken]

    def _sent(self, change: InstanceChange, new_id: NewId, addresses: Mapping[tuple[str, str], str]) -> Step:
        live, program = self.live, self.live.program
        sends = [send for each in self.steps for send in each.sends]
        secret = live.run.secret
        messages = [sent_message(send, new_id(), live.id, secret, program, live.tools, addresses) for send in sends]
        waits = [] if change.ends else self._subscribes()
        waits += [
            awaited_response(program, live.id, secret, send.request)
            for send in sends
            if send.request and not change.ends
        ]
        settles = self._settled(change) if change.ends else self._held()
        # Whoever ends waits for nothing.
        waits = [] if change.ends else waits
        return Step(program.host_id, self.host_instance, settles, messages, waits, change=change)

    def _settled(self, change: InstanceChange) -> list[Settlement]:
        left = set(self._left())
        outcomes: list[Settlement] = []
        for each in self.task.references:
            if each.message.id not in left:
                outcomes.append(Complete(each))
            elif change.successor is not None:
                outcomes.append(GiveBack(each))  # it begins the next instance
            else:
                outcomes.append(Suspend(each, LATE, kind="discarded", code=InstanceEndedError.code))
        return outcomes

    def _subscribes(self) -> list[Awaited]:
        """The sets that were initialized, but those that the publisher has subscribed with the activation."""
        live, program = self.live, self.live.program
        known: set[str] = set()
        if live.subscribed and live.step == 0:
            for each in self.steps[0].record.events:
                if isinstance(each, Activated):
                    known = set(program.receives[each.receive].initializes)
        return [
            Awaited(live.id, program.service_id, program.host_id, values, name=correlation.name)
            for each in self.steps
            for correlation, values in each.subscribes
            if correlation.name not in known
        ]
