"""Scopes: what was done in one is undone, last first, when the scope fails. A scope may have a time limit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from crossdock.errors import ScopeOverError, Timeout
from crossdock.foreign import described
from crossdock.orchestration.atomic import name_of
from crossdock.orchestration.scheduler import Branch
from crossdock.orchestration.waits import Suspending

if TYPE_CHECKING:
    from crossdock.orchestration.instance import Instance

Compensation = tuple[Callable[..., Any], tuple[Any, ...]]


class Scope:
    """`async with process.scope() as scope:`. A scope that completes hands its compensations to the one around it."""

    def __init__(self, instance: Instance, due: datetime | None) -> None:
        self._instance = instance
        self._due = due
        self._compensations: list[Compensation] = []
        self._open = False
        self._outer: Scope | None = None
        self._timer: int | None = None
        self._branch: Branch

    def compensate(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call `function(*arguments)`, and await what it gives, if the scope fails. The last one is called first.

        One that fails suspends the instance. It is called again when somebody resumes the instance.
        """
        self._instance.scheduler.check_alive()
        if not self._open:
            raise self._instance.misuse(
                "the scope has ended, or was not entered, so nothing can be added to its compensations; write "
                "async with process.scope() as scope"
            )
        if not callable(function):
            raise self._instance.misuse(
                "scope.compensate takes a function and its arguments: scope.compensate(process.send, port, message)"
            )
        self._compensations.append((function, arguments))

    async def __aenter__(self) -> Scope:
        scheduler = self._instance.scheduler
        scheduler.check_alive()
        assert scheduler.current is not None  # it is the code of an instance that runs
        if self._open:
            raise self._instance.misuse("the scope is open already; call process.scope() for each `async with`")
        self._open = True
        self._branch = scheduler.current
        self._outer, self._branch.scope = self._branch.scope, self
        if self._due is not None:
            self._timer = self._instance.waits.start_timer("scope", self._due, self, scheduler.line())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._branch.scope = self._outer
        self._instance.waits.stop_timer(self._timer)
        if self._instance.scheduler.closing:
            return
        if error is None:
            if self._outer is not None:
                self._outer._compensations += self._compensations
            return
        line = self._instance.scheduler.line()
        await self._undo(line)
        if self._branch.pending is not None and not self._branch.shielded:
            pending, self._branch.pending = self._branch.pending, None
            raise pending
        if isinstance(error, ScopeOverError) and error.args == (id(self),):
            raise Timeout(f"the scope at {line} has not ended in time", line=line) from None

    def timer_fired(self) -> None:
        self._instance.scheduler.interrupt(self._branch, lambda: ScopeOverError(id(self)))

    async def _undo(self, line: str) -> None:
        self._branch.shielded += 1
        try:
            while self._compensations:
                function, arguments = self._compensations[-1]
                try:
                    made = function(*arguments)
                    if isawaitable(made):
                        await made
                except Exception as error:
                    name = name_of(function)
                    reason = f"The compensation {name!r} of the scope at {line} failed: {described(error)}"
                    self._instance.journal.command("suspend", "compensation", line, [name.encode()])
                    await Suspending(self._instance, reason, line)
                else:
                    self._compensations.pop()
        finally:
            self._branch.shielded -= 1
