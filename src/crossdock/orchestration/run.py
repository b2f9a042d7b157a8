"""One instance of an orchestration in memory: replayed from its history, then stepped forward by events."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import datetime
from traceback import TracebackException
from typing import Any, assert_never
from uuid import UUID

from crossdock.errors import (
    CancelledError,
    CrossdockError,
    HistoryError,
    Mismatch,
    MisuseError,
    OrchestrationError,
    OutageError,
)
from crossdock.foreign import described
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.history import (
    Activated,
    Arrived,
    AtomicDone,
    Cancelled,
    Continued,
    Event,
    RequestFailed,
    Resumed,
    StepRecord,
    TimerFired,
)
from crossdock.orchestration.instance import Instance
from crossdock.orchestration.journal import Journal
from crossdock.orchestration.line import defining_line, raising_line, without_ours
from crossdock.orchestration.process import Process
from crossdock.orchestration.snapshot import continued, restored_arguments
from crossdock.orchestration.stepped import (
    AtomicWanted,
    Completed,
    ContinuedWith,
    Failed,
    MadeMessage,
    Send,
    State,
    Stepped,
    Suspended,
    Tools,
    Waiting,
)

__all__ = [
    "AtomicWanted",
    "Completed",
    "ContinuedWith",
    "Failed",
    "InstanceRun",
    "MadeMessage",
    "Send",
    "State",
    "Stepped",
    "Suspended",
    "Tools",
    "Waiting",
]


class InstanceRun:
    """Drives the code of one instance. It never touches a database, and is used by one thread at a time."""

    def __init__(
        self, orchestration: Orchestration, instance: UUID, tools: Tools, *, replaying: Sequence[StepRecord] = ()
    ) -> None:
        """Replay the history at once, in silence. Raises Mismatch if the code does something else than it did.

        Raises HistoryError if a record says what cannot have happened, or names a message that is gone.
        """
        self._instance = Instance(orchestration, instance, tools)
        self._failure: BaseException | None = None
        self.state: State | None = None
        for record in replaying:
            self._replay(record)

    def step(self, at: datetime, events: Sequence[Event]) -> Stepped:
        """Give the events to the code, one after the other, and run it until everything waits.

        What the code raises is a state, but an OutageError. That and what `Tools.load` raises is raised here, and the
        run cannot be used after it.
        """
        return self._step(at, events, Journal(None))

    @property
    def inbox(self) -> list[UUID]:
        """The messages that events brought and that the code has not taken, in their order."""
        return [each.message for each in self._instance.waits.inbox]

    @property
    def secret(self) -> bytes:
        """Known to the instance, and to no one else."""
        return self._instance.secret

    def drop(self) -> None:
        """Forget the code where it waits: whatever its `finally` blocks call is refused."""
        scheduler = self._instance.scheduler
        scheduler.closing += 1  # for ever
        scheduler.stopped = True
        if scheduler.root is not None:
            scheduler.close(scheduler.root)

    def __del__(self) -> None:
        if hasattr(self, "_instance"):
            self.drop()

    def _step(self, at: datetime, events: Sequence[Event], journal: Journal) -> Stepped:
        self._begin(at, journal)
        try:
            rest: Sequence[Event] = ()
            for position, event in enumerate(events):
                self._give(event, at, journal)
                if self._instance.continues_with is not None:
                    rest = events[position + 1 :]
                    break
            if isinstance(self._failure, OutageError):
                raise self._failure  # it read a large part: the step comes again, when PostgreSQL is back
            self.state = self._state(rest)
            if journal.replaying:
                failure = self.state.error if isinstance(self.state, Failed) else ""
                journal.compare(self._instance.orchestration.name, self._instance.step, failure)
        except BaseException:
            self.drop()
            raise
        record = StepRecord(at, list(events), journal.commands)
        timers = list(journal.timers.items())
        return Stepped(
            record, self.state, journal.sends, journal.subscribes, timers, journal.cancelled_timers, journal.taken
        )

    def _replay(self, record: StepRecord) -> None:
        try:
            self._step(record.at, record.events, Journal(record.commands))
        except (Mismatch, OutageError):
            raise
        except Exception as error:
            name, number = self._instance.orchestration.name, self._instance.step
            raise HistoryError(
                f"Step {number} in the history of the instance of {name!r} cannot be replayed: {described(error)}. "
                "Restore what is missing from a backup and resume the instance, or terminate the instance"
            ) from error

    def _begin(self, at: datetime, journal: Journal) -> None:
        self._instance.at = at
        self._instance.step += 1
        self._instance.journal = journal

    def _give(self, event: Event, at: datetime, journal: Journal) -> None:
        if isinstance(event, Continued):
            self._begin_anew(at, journal)
        elif isinstance(event, Activated) and self._instance.scheduler.root is not None:
            raise ValueError(f"instance {self._instance.id} has been activated already")
        if self._ended():
            return
        try:
            self._apply(event)
            self._instance.scheduler.run()
        except MisuseError as error:  # of no verb: the code awaits something foreign, or cannot begin
            self._failure = error
            self._close_code()
        if self._ended():
            self._note_end()

    def _begin_anew(self, at: datetime, journal: Journal) -> None:
        old = self._instance
        self.drop()
        self._instance = Instance(old.orchestration, old.id, old.tools)
        self._begin(at, journal)

    def _apply(self, event: Event) -> None:
        instance = self._instance
        match event:
            case Activated():
                message = instance.activate(event)
                self._start(instance.orchestration.function(Process(instance), message))
            case Continued():
                instance.restore(event)
                instance.given |= {each.message for each in event.arguments if each.message is not None}
                arguments = restored_arguments(event, instance.tools.load)
                self._start(instance.orchestration.function(Process(instance), *arguments))
            case Arrived():
                instance.waits.arrive(event)
            case TimerFired():
                instance.waits.fire(event.number)
            case RequestFailed():
                instance.waits.fail(event)
            case AtomicDone():
                instance.waits.finish(event)
            case Resumed():
                instance.waits.resume()
            case Cancelled():
                self._cancel()
            case _:
                assert_never(event)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._instance.scheduler.start(coroutine, defining_line(self._instance.orchestration.function.__code__))

    def _cancel(self) -> None:
        instance = self._instance
        if not instance.cancelling and instance.scheduler.root is not None:
            instance.cancelling = True
            instance.scheduler.interrupt(instance.scheduler.root, CancelledError)

    def _ended(self) -> bool:
        root = self._instance.scheduler.root
        return self._failure is not None or (root is not None and root.closed)

    def _note_end(self) -> None:
        root = self._instance.scheduler.root
        if root is not None:
            self._failure = self._failure or root.error
        name = "completed" if self._failure is None else type(self._failure).__name__
        self._instance.journal.command("end", name, "" if self._failure is None else raising_line(self._failure))

    def _close_code(self) -> None:
        scheduler = self._instance.scheduler
        scheduler.stopped = True
        if scheduler.root is not None:
            scheduler.close(scheduler.root)

    def _state(self, rest: Sequence[Event]) -> State:
        instance = self._instance
        if instance.continues_with is not None:
            first = continued(instance, instance.continues_with)
            self._close_code()  # its timers are cancelled
            return ContinuedWith([first, *rest])
        if self._ended():
            return _end_state(self._failure)
        if instance.waits.suspended:
            suspended = instance.waits.suspended[0]
            return Suspended(suspended.reason, suspended.line)
        if instance.waits.atomics:
            wanted = next(iter(instance.waits.atomics.values()))
            return AtomicWanted(wanted.number, wanted.function, wanted.arguments, wanted.line)
        waits = list(instance.scheduler.waiting())
        return Waiting("; ".join(each.described() for each in waits), waits[0].line if waits else "")


def _end_state(failure: BaseException | None) -> State:
    if failure is None or isinstance(failure, CancelledError):
        return Completed(cancelled=failure is not None)
    text = str(failure) if isinstance(failure, OrchestrationError) else described(failure)
    line = raising_line(failure) or getattr(failure, "line", "")
    code = failure.code if isinstance(failure, CrossdockError) else OrchestrationError.code
    return Failed(text, _traceback(failure), line, code)


def _traceback(error: BaseException) -> str:
    """As Python prints it, without our own frames."""
    told = TracebackException.from_exception(error)
    without_ours(told)
    return "".join(told.format())
