"""What an author of an orchestration calls: the verbs of `process`. Each that waits, or sends, is awaited.

Nothing here reaches outside. A verb notes down what it does in the journal of the step, and may wait.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from random import Random
from typing import Any, NoReturn, TypeVar, cast, overload
from uuid import UUID

from crossdock.errors import DocumentError
from crossdock.message.context import Context
from crossdock.message.document import write_json
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.message.property import Value
from crossdock.orchestration.atomic import name_of
from crossdock.orchestration.declare import Correlation, Port
from crossdock.orchestration.instance import Instance
from crossdock.orchestration.log import Log
from crossdock.orchestration.outgoing import send
from crossdock.orchestration.scheduler import Join, Wait
from crossdock.orchestration.scope import Scope
from crossdock.orchestration.snapshot import continued
from crossdock.orchestration.waits import Performing, Receiving, Responding, Sleeping, Suspending

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Process:
    """The running instance, as its code sees it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._log = Log(logging.getLogger(f"crossdock.orchestration.{instance.orchestration.name}"), instance)

    # Messages out

    def message(
        self,
        type: str,  # noqa: A002
        body: object,
        *,
        promote: Mapping[str, Value] | None = None,
        parts: Sequence[Part | StreamedPart] = (),
    ) -> Message:
        """A new message. `body` is bytes, text, or values for JSON; its schema promotes, and `promote` adds to that.

        `parts` come after the body: new ones, as `Part("scan", content)`, or those of a message that was received.
        """
        self._instance.scheduler.check_alive()
        content, promoted, written = self._instance.tools.make(type, body, promote or {})
        context = Context({**promoted, "BTS.MessageType": type}, written)
        every = (Part("body", content), *self._distinct(parts))
        return Message(MessageId(_uuid(self._instance.draw("message", 16))), context, every)

    def map(self, name: str, message: Message) -> Message:
        """What the map of this name makes of the body of a message. The other parts stay as they are."""
        self._instance.scheduler.check_alive()
        return self.message(*self._instance.tools.map(name, message), parts=message.parts[1:])

    async def send(
        self,
        port: Port,
        message: Message,
        *,
        initializes: Correlation | Sequence[Correlation] | None = None,
        address: str | None = None,
    ) -> None:
        """Send a message. `initializes` are sets that get their values from it; `address` is for a dynamic port."""
        send(self._instance, "send", message, self._line(), port=port, initializes=initializes, address=address)

    async def request(self, port: Port, message: Message, *, timeout: timedelta | None = None) -> Message:
        """Send a message and wait for the response. Raises DeliveryFailed if the port gives up, or Timeout."""
        line, due = self._line(), self._due(timeout, None)
        number = self._instance.number("request")
        send(self._instance, "request", message, line, port=port, request=number)
        return cast(Message, await Responding(self._instance, number, port, due, line))

    async def reply(self, message: Message, *, to: Message | None = None, fault: bool = False) -> None:
        """Answer a two-way request: the one that is given, else the oldest that has no answer yet."""
        line = self._line()
        send(self._instance, "reply", message, line, reply_to=self._answered(to, line), fault=fault)

    async def start(
        self,
        port: Port,
        message: Message,
        *,
        initializes: Correlation | Sequence[Correlation] | None = None,
        reply_to: Message | None = None,
    ) -> None:
        """Start another orchestration, through the MessageBox. With `reply_to` that one answers our two-way request.

        `initializes` are sets that get their values from the message: by these the other one reports back.
        """
        line = self._line()
        answered = None if reply_to is None else self._answered(reply_to, line)
        send(self._instance, "start", message, line, port=port, initializes=initializes, reply_to=answered)

    # Waiting

    @overload
    async def receive(self, correlation: Correlation, *, type: str | None = None) -> Message: ...
    @overload
    async def receive(
        self, correlation: Correlation, *, type: str | None = None, timeout: timedelta
    ) -> Message | None: ...
    @overload
    async def receive(
        self, correlation: Correlation, *, type: str | None = None, until: datetime
    ) -> Message | None: ...
    async def receive(
        self,
        correlation: Correlation,
        *,
        type: str | None = None,  # noqa: A002
        timeout: timedelta | None = None,
        until: datetime | None = None,
    ) -> Message | None:
        """The next message of a set, of this type if one is given. None: the time is over."""
        line, due = self._line(), self._due(timeout, until)
        known = self._instance.known(correlation)
        if known.name not in self._instance.sets:
            raise self._instance.misuse(f"the set {known.name!r} is not initialized, so no message can follow it", line)
        if type is not None and type not in known.types:
            raise self._instance.misuse(f"the set {known.name!r} has no type {type!r}; add it to `types`", line)
        self._instance.journal.command("wait", known.name, line, [(type or "").encode()])
        return cast("Message | None", await Receiving(self._instance, known, type, due, line))

    async def delay(self, duration: timedelta | None = None, *, until: datetime | None = None) -> None:
        """Wait for a time."""
        line, due = self._line(), self._due(duration, until)
        if due is None:
            raise self._instance.misuse("a delay needs a time: process.delay(timedelta(minutes=5)), or until=", line)
        await Sleeping(self._instance, "delay", due, line)

    async def listen(self, *awaitables: Awaitable[T]) -> tuple[int, T]:
        """The number of the awaitable that ends first, and its value. The others are left where they wait."""
        return cast("tuple[int, T]", await self._join("listen", awaitables))

    @overload
    async def parallel(self, first: Awaitable[A], second: Awaitable[B], /) -> tuple[A, B]: ...
    @overload
    async def parallel(self, first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], /) -> tuple[A, B, C]: ...
    @overload
    async def parallel(self, *awaitables: Awaitable[T]) -> tuple[T, ...]: ...
    async def parallel(self, *awaitables: Awaitable[Any]) -> tuple[Any, ...]:
        """Run all to their end, and give their values. Then raises the first error in their order, if there is one."""
        return cast("tuple[Any, ...]", await self._join("parallel", awaitables))

    def scope(self, *, timeout: timedelta | None = None, until: datetime | None = None) -> Scope:
        """`async with process.scope() as scope:`. Raises Timeout from the block when the time is over."""
        self._instance.scheduler.check_alive()
        return Scope(self._instance, self._due(timeout, until))

    async def atomic(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function(connection, *arguments)` in the transaction of the step.

        It returns what JSON can hold. If it raises, its work is rolled back and the error is raised here.
        """
        line = self._line()
        if iscoroutinefunction(function) or not hasattr(function, "__call__"):  # noqa: B004
            raise self._instance.misuse("process.atomic takes a plain function and its arguments", line)
        number = self._instance.number("atomic")
        self._instance.journal.command("atomic", name_of(function), line, map(_content, arguments))
        return cast(T, await Performing(self._instance, number, function, arguments, line))

    async def suspend(self, reason: str) -> None:
        """Suspend the instance, until somebody resumes it."""
        line = self._line()
        self._instance.journal.command("suspend", "", line, [reason.encode()])
        await Suspending(self._instance, reason, line)

    async def continue_with(self, *state: Any) -> NoReturn:
        """Begin the function anew with these arguments after `process`, in the same instance, without its history.

        An argument is a message that was received, or what JSON can hold. Sets and messages that nobody took stay.
        """
        line, running = self._line(), self._instance.scheduler.current
        if running is not self._instance.scheduler.root or running is None or running.scope is not None:
            raise self._instance.misuse(
                "continue_with cannot be called in a scope or in a branch of parallel or listen"
            )
        try:
            continued(self._instance, state)
        except DocumentError as error:
            raise self._instance.misuse(f"continue_with cannot keep its arguments: {error}", line) from error
        self._instance.journal.command("continue_with", "", line, map(_content, state))
        self._instance.continues_with = state
        self._instance.scheduler.stopped = True
        await Wait(line)
        raise AssertionError("the instance goes on with a new run")

    # What is the same in every replay

    def now(self) -> datetime:
        """The time of the step."""
        self._instance.scheduler.check_alive()
        assert self._instance.at is not None  # code runs only in a step
        return self._instance.at

    def uuid(self) -> UUID:
        """A new one."""
        self._instance.scheduler.check_alive()
        return _uuid(self._instance.draw("uuid", 16))

    @property
    def id(self) -> UUID:
        """The id of the instance."""
        return self._instance.id

    @property
    def random(self) -> Random:
        """Random numbers, as in `process.random.choice(names)`. Not for secrets."""
        self._instance.scheduler.check_alive()
        return self._instance.random

    @property
    def log(self) -> Log:
        """A logger that is silent in a replay."""
        return self._log

    def patched(self, name: str) -> bool:
        """True in an instance that meets this change for the first time with it; False in one that went past before."""
        self._instance.scheduler.check_alive()
        patches, journal = self._instance.patches, self._instance.journal
        if name not in patches:
            patches[name] = not journal.replaying or journal.expects("patched", name)
            if patches[name]:
                journal.command("patched", name, self._instance.scheduler.line())
        return patches[name]

    def _line(self) -> str:
        """The author's line that calls. Every verb begins with it: code that is being left may call nothing."""
        self._instance.scheduler.check_alive()
        return self._instance.scheduler.line()

    def _due(self, timeout: timedelta | None, until: datetime | None) -> datetime | None:
        if timeout is not None and until is not None:
            raise self._instance.misuse("give a timeout or until, not both")
        if timeout is not None:
            return self.now() + self._checked(timeout, timedelta)
        if until is not None and self._checked(until, datetime).tzinfo is None:
            raise self._instance.misuse(f"until={until!r} has no time zone; count from process.now()")
        return until

    def _checked(self, time: object, kind: type[T]) -> T:
        if not isinstance(time, kind):
            raise self._instance.misuse(f"{time!r} is not a {kind.__name__}")
        return time

    def _distinct(self, parts: Sequence[Part | StreamedPart]) -> Iterator[Part | StreamedPart]:
        """Each with a name of its own, by which it is found again."""
        names = {"body"}
        for part in parts:
            if not isinstance(part, Part | StreamedPart):
                raise self._instance.misuse(f"a part is made by Part(name, content), and this is {type(part).__name__}")
            if isinstance(part, Part) and not isinstance(part.body, bytes):
                raise self._instance.misuse(f"the content of part {part.name!r} is not bytes")
            if not part.name or part.name in names:
                raise self._instance.misuse(f"{part.name!r} is not a name that no other part of the message has")
            names.add(part.name)
            yield part

    def _answered(self, request: Message | None, line: str) -> UUID:
        waiting = self._instance.open_requests
        id_ = next(iter(waiting), None) if request is None else request.id
        if id_ is None or id_ not in waiting:
            raise self._instance.misuse("no two-way request waits for this reply", line)
        del waiting[id_]
        return id_

    async def _join(self, kind: str, awaitables: Sequence[object]) -> Any:
        try:
            line = self._line()
            coroutines = self._instance.scheduler.coroutines(awaitables)
            if kind == "listen" and not coroutines:
                raise TypeError("it is given nothing to wait for")
        except BaseException as error:
            for each in awaitables:
                getattr(each, "close", lambda: None)()  # nobody will await it
            if isinstance(error, TypeError):
                raise self._instance.misuse(f"process.{kind} cannot be called so: {error}") from None
            raise
        self._instance.journal.command("listen" if kind == "listen" else "parallel", str(len(coroutines)), line)
        return await Join(self._instance.scheduler, coroutines, first=kind == "listen", line=line)


def _uuid(drawn: bytes) -> UUID:
    return UUID(bytes=drawn, version=4)


def _content(argument: object) -> bytes:
    """For the digest: what JSON can hold, the id of a message, else only the type."""
    if isinstance(argument, Message):
        return argument.id.bytes
    try:
        return write_json(argument)
    except DocumentError:
        return type(argument).__qualname__.encode()
