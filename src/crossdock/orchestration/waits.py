"""What the code of an instance waits for, and what came before anybody asked for it (the inbox).

Messages are loaded here, never inside the author's code: a database that is away must not look like an error of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from crossdock.errors import DeliveryFailed, Timeout
from crossdock.orchestration.atomic import name_of, restored
from crossdock.orchestration.declare import Correlation, Port
from crossdock.orchestration.history import Arrived, AtomicDone, RequestFailed
from crossdock.orchestration.scheduler import Wait

if TYPE_CHECKING:
    from crossdock.orchestration.instance import Instance


class Timed(Protocol):
    """Whatever has a timer."""

    def timer_fired(self) -> None: ...


class Waits:
    """By what each wait is ended. Receives are in the order in which they began to wait."""

    def __init__(self, instance: Instance) -> None:
        self.inbox: list[Arrived] = []
        self.receiving: list[Receiving] = []
        self.requests: dict[int, Responding] = {}
        self.timers: dict[int, Timed] = {}
        self.atomics: dict[int, Performing] = {}
        self.suspended: list[Suspending] = []
        self._instance = instance
        self._types: dict[UUID, str] = {}

    def arrive(self, event: Arrived) -> None:
        """Give a message to who waits for it, the first if there are several; else it stays in the inbox."""
        wanted: Wait | None = None
        if event.request is not None:
            wanted = self.requests.get(event.request)
        elif event.correlation is not None:
            wanted = next((each for each in self.receiving if self._fits(each, event)), None)
        if wanted is None:
            self.inbox.append(event)
        else:
            self._instance.scheduler.wake(wanted, self._instance.take(event.message))

    def receive(self, wait: Receiving) -> None:
        """The oldest message in the inbox that fits, else wait for one."""
        found = next((event for event in self.inbox if self._fits(wait, event)), None)
        if found is None:
            self.receiving.append(wait)
            return
        self.inbox.remove(found)
        self._instance.scheduler.wake(wait, self._instance.take(found.message))

    def fail(self, event: RequestFailed) -> None:
        if wait := self.requests.get(event.request):
            self._instance.labels |= frozenset(event.labels)
            error = DeliveryFailed(f"port {wait.port.name!r} gave up on the request: {event.reason}", line=wait.line)
            self._instance.scheduler.wake(wait, error=error)

    def finish(self, event: AtomicDone) -> None:
        if wait := self.atomics.get(event.number):
            value, error = restored(event, wait.function, self._instance.orchestration.function)
            self._instance.scheduler.wake(wait, value, error)

    def resume(self) -> None:
        for wait in list(self.suspended):
            self._instance.scheduler.wake(wait)

    def start_timer(self, what: str, due: datetime, timed: Timed, line: str) -> int:
        number = self._instance.number("timer")
        self.timers[number] = timed
        self._instance.journal.set_timer(number, due)
        self._instance.journal.command("timer", what, line, [due.isoformat().encode()])
        return number

    def stop_timer(self, number: int | None) -> None:
        if number is not None and self.timers.pop(number, None) is not None:
            self._instance.journal.cancel_timer(number)

    def fire(self, number: int) -> None:
        if timed := self.timers.pop(number, None):
            timed.timer_fired()

    def _fits(self, wait: Receiving, event: Arrived) -> bool:
        if event.correlation != wait.correlation.name:
            return False
        return wait.type is None or self._type(event.message) == wait.type

    def _type(self, message: UUID) -> str:
        if message not in self._types:
            self._types[message] = self._instance.tools.load(message).type
        return self._types[message]


class _TimedWait(Wait):
    """Ends by its timer at the latest, if it has one."""

    def __init__(self, instance: Instance, what: str, due: datetime | None, line: str) -> None:
        super().__init__(line)
        self.instance = instance
        self.due = due
        self.timer = None if due is None else instance.waits.start_timer(what, due, self, line)

    def end(self) -> None:
        self.instance.waits.stop_timer(self.timer)

    def timer_fired(self) -> None:
        self.instance.scheduler.wake(self)

    def _until(self) -> str:
        return "" if self.due is None else f" until {self.due.isoformat(timespec='seconds')}"


class Receiving(_TimedWait):
    """For a message of a correlation set."""

    def __init__(
        self, instance: Instance, correlation: Correlation, type_: str | None, due: datetime | None, line: str
    ) -> None:
        super().__init__(instance, "receive", due, line)
        self.correlation = correlation
        self.type = type_

    def begin(self) -> None:
        self.instance.waits.receive(self)

    def end(self) -> None:
        super().end()
        if self in self.instance.waits.receiving:
            self.instance.waits.receiving.remove(self)

    def described(self) -> str:
        return f"receive {self.type or 'any message'} of {self.correlation.name}{self._until()}"


class Responding(_TimedWait):
    """For the response to a request."""

    def __init__(self, instance: Instance, number: int, port: Port, due: datetime | None, line: str) -> None:
        super().__init__(instance, "request", due, line)
        self.number = number
        self.port = port

    def begin(self) -> None:
        self.instance.waits.requests[self.number] = self

    def end(self) -> None:
        super().end()
        self.instance.waits.requests.pop(self.number, None)

    def timer_fired(self) -> None:
        error = Timeout(f"port {self.port.name!r} has not answered the request in time", line=self.line)
        self.instance.scheduler.wake(self, error=error)

    def described(self) -> str:
        return f"response of {self.port.name}{self._until()}"


class Sleeping(_TimedWait):
    """For a time."""

    def described(self) -> str:
        return f"delay{self._until()}"


class Performing(Wait):
    """For what comes of an atomic function."""

    def __init__(
        self, instance: Instance, number: int, function: Callable[..., Any], arguments: tuple[Any, ...], line: str
    ) -> None:
        super().__init__(line)
        self.number = number
        self.function = function
        self.arguments = arguments
        self._atomics = instance.waits.atomics

    def begin(self) -> None:
        self._atomics[self.number] = self

    def end(self) -> None:
        self._atomics.pop(self.number, None)

    def described(self) -> str:
        return f"atomic {name_of(self.function)}"


class Suspending(Wait):
    """For somebody to resume the instance."""

    def __init__(self, instance: Instance, reason: str, line: str) -> None:
        super().__init__(line)
        self.reason = reason
        self._suspended = instance.waits.suspended

    def begin(self) -> None:
        self._suspended.append(self)

    def end(self) -> None:
        if self in self._suspended:
            self._suspended.remove(self)

    def described(self) -> str:
        return f"resume: {self.reason}"
