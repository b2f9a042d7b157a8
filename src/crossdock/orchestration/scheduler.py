"""Drives the coroutines of one instance by `send`: first ready, first run, so that every replay takes the same turns.

A branch is a coroutine: the function itself, or one awaitable of `parallel` or `listen`. It runs until it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import suppress
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from crossdock.errors import CancelledError, DroppedError, Interruption, MisuseError, ScopeOverError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.orchestration.line import here, raised_in, raising_line, waiting_line

if TYPE_CHECKING:
    from crossdock.orchestration.scope import Scope

_CLOSING_ATTEMPTS = 10
_NO_LOOP = "no running event loop"
_NO_LOOP_ERRORS = frozenset({"AsyncLibraryNotFoundError", "NoEventLoopError"})  # of sniffio and anyio


class Wait:
    """What a branch waits for. To await it gives what ends the wait."""

    branch: Branch

    def __init__(self, line: str) -> None:
        self.line = line

    def __await__(self) -> Generator[Wait, Any, Any]:
        return (yield self)

    def begin(self) -> None:
        """The branch waits from now on."""

    def end(self) -> None:
        """The branch no longer waits: it goes on, or is closed."""

    def timer_fired(self) -> None:
        """The time is over."""

    def described(self) -> str:
        """For people."""
        return ""


class Branch:
    """One line of control. `shielded`: it compensates, and what would interrupt it is kept until that is done."""

    __slots__ = ("closed", "coroutine", "error", "join", "line", "pending", "scope", "shielded", "value", "wait")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], line: str, join: Join | None, scope: Scope | None) -> None:
        self.coroutine = coroutine
        self.line = line
        self.join = join
        self.scope = scope
        self.wait: Wait | None = None
        self.shielded = 0
        self.pending: BaseException | None = None
        self.closed = False
        self.value: Any = None
        self.error: BaseException | None = None


class Join(Wait):
    """Waits for branches: for the first to end (`listen`), or for all (`parallel`, and whatever was interrupted)."""

    def __init__(self, scheduler: Scheduler, branches: Sequence[Coroutine[Any, Any, Any]], *, first: bool, line: str):
        super().__init__(line)
        assert scheduler.current is not None  # only running code can join
        self.branches = [Branch(each, line, self, scheduler.current.scope) for each in branches]
        self.first = first
        self.interrupted = False
        self._scheduler = scheduler
        self._left = len(branches)

    def begin(self) -> None:
        for branch in self.branches:
            self._scheduler.make_ready(branch)
        if not self.branches:
            self._scheduler.wake(self, ())

    def branch_ended(self, branch: Branch) -> None:
        self._left -= 1
        if self.first and not self.interrupted:
            for other in self.branches:
                self._scheduler.close(other)
            self._scheduler.wake(self, (self.branches.index(branch), branch.value), branch.error)
        elif self._left == 0:
            error = self._first_error()
            values = tuple(each.value for each in self.branches)
            self._scheduler.wake(self, (0, values[0]) if self.first else values, error)

    def _first_error(self) -> BaseException | None:
        """The first in the order of the branches, the others as notes; an interruption goes before the others."""
        errors = [(number, each.error) for number, each in enumerate(self.branches) if each.error is not None]
        errors.sort(key=lambda numbered: not isinstance(numbered[1], Interruption))
        if not errors:
            return None
        for number, other in errors[1:]:
            if not isinstance(other, Interruption):
                errors[0][1].add_note(f"Branch {number} failed too: {described(other)}")
        return errors[0][1]


class Scheduler:
    """`closing` is above 0 while code is left where it waits: whatever it calls then is refused."""

    def __init__(self, fail: Callable[[str, str], MisuseError]) -> None:
        self.current: Branch | None = None
        self.root: Branch | None = None
        self.closing = 0
        self.stopped = False
        self._fail = fail
        self._ready: deque[tuple[Branch, Any, BaseException | None]] = deque()

    def start(self, coroutine: Coroutine[Any, Any, Any], line: str) -> None:
        self.root = Branch(coroutine, line, None, None)
        self.make_ready(self.root)

    def run(self) -> None:
        """Until every branch waits, has ended, or the instance is stopped."""
        while self._ready and not self.stopped:
            self._advance(*self._ready.popleft())

    def make_ready(self, branch: Branch, value: Any = None, error: BaseException | None = None) -> None:
        self._ready.append((branch, value, error))

    def wake(self, wait: Wait, value: Any = None, error: BaseException | None = None) -> None:
        wait.end()
        wait.branch.wait = None
        self.make_ready(wait.branch, value, error)

    def interrupt(self, branch: Branch, error: Callable[[], BaseException]) -> None:
        """Raise where the branch waits, or where the branches wait that it waits for."""
        if branch.closed:
            return
        if branch.shielded:
            branch.pending = branch.pending or error()
        elif isinstance(branch.wait, Join):
            branch.wait.interrupted = True
            for each in branch.wait.branches:
                self.interrupt(each, error)
        elif branch.wait is not None:
            self.wake(branch.wait, error=error())

    def close(self, branch: Branch) -> None:
        """Leave a branch where it waits. Its `finally` blocks run, but whatever they call is refused."""
        if branch.closed:
            return
        branch.closed = True
        if branch.wait is not None:
            branch.wait.end()
            for each in branch.wait.branches if isinstance(branch.wait, Join) else ():
                self.close(each)
        self.closing += 1
        running, self.current = self.current, branch
        try:
            for _ in range(_CLOSING_ATTEMPTS):  # a `finally` that waits for something foreign needs more than one
                with suppress(Exception, Interruption), FOREIGN_CODE:
                    branch.coroutine.close()
                    break
        finally:
            self.closing -= 1
            self.current = running

    def waiting(self) -> Iterator[Wait]:
        """What the instance waits for, in the order of the branches."""
        if self.root is not None:
            yield from _waits(self.root)

    def check_alive(self) -> None:
        """Every verb of `process` asks first."""
        if self.closing:
            raise DroppedError
        if self.current is None:
            raise self._fail(
                "`process` is used while its code does not run; an atomic function, for one, has no use of it", ""
            )

    def line(self) -> str:
        """The author's line that runs now; for a verb that is a branch itself, that of its `parallel` or `listen`."""
        return here(_ADVANCE) or ("" if self.current is None else self.current.line)

    def coroutines(self, awaitables: Sequence[object]) -> list[Coroutine[Any, Any, Any]]:
        """Each as a coroutine that has not begun. Raises TypeError for what cannot be awaited, or is given twice."""
        for position, each in enumerate(awaitables):
            if not isinstance(each, Awaitable):
                raise TypeError(f"it is given {type(each).__name__}; leave out the `await` of what it is to wait for")
            if any(each is other for other in awaitables[:position]):
                raise TypeError("it is given the same awaitable twice; call the function once for each branch")
        return [each if iscoroutine(each) else _awaiting(each) for each in awaitables]  # type: ignore[arg-type]

    def _advance(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        if branch.closed:
            return
        self.current = branch
        try:
            with FOREIGN_CODE:
                wait = branch.coroutine.send(value) if error is None else branch.coroutine.throw(error)
        except StopIteration as ended:
            self._end(branch, ended.value, None)
        except (Exception, CancelledError, ScopeOverError) as failed:
            if _needs_a_loop(failed):
                raise self._foreign_await("asyncio", raising_line(failed)) from failed
            self._end(branch, None, failed)
        else:
            if not isinstance(wait, Wait):
                raise self._foreign_await(type(wait).__name__, waiting_line(branch.coroutine) or branch.line)
            wait.branch = branch
            branch.wait = wait
            wait.begin()
        finally:
            self.current = None

    def _end(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        branch.closed = True
        branch.value, branch.error = value, error
        if branch.join is not None:
            branch.join.branch_ended(branch)

    def _foreign_await(self, what: str, line: str) -> MisuseError:
        return self._fail(
            f"it awaits something of {what!r}; an orchestration awaits only what `process` has, such as process.delay",
            line,
        )


def _needs_a_loop(error: BaseException) -> bool:
    """Whether code for asyncio, or for what stands on it, has looked for an event loop in vain."""
    match error:
        case RuntimeError():
            return str(error) == _NO_LOOP or type(error).__name__ in _NO_LOOP_ERRORS
        case AttributeError(obj=None):
            return raised_in(error, "asyncio")
        case _:
            return False


_ADVANCE = Scheduler._advance.__code__


def _waits(branch: Branch) -> Iterator[Wait]:
    if branch.closed or branch.wait is None:
        return
    if isinstance(branch.wait, Join):
        for each in branch.wait.branches:
            yield from _waits(each)
    else:
        yield branch.wait


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
