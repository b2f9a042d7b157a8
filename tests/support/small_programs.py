"""Small orchestrations as data: drawn by Hypothesis, run as a real coroutine, and by a reference without coroutines.

The reference calls back: each statement is given what to do when it ends and when it fails. It shares nothing with
`crossdock.orchestration` but the rule that who is ready first runs first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from crossdock import Correlation, Message, Port, Process, Receive, orchestration
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.scope import Scope

out = Port("Out")
case = Correlation("OrderId", types=["A", "B"])


@dataclass(frozen=True)
class Tell:
    what: int


@dataclass(frozen=True)
class Take:
    kind: str | None
    minutes: int | None


@dataclass(frozen=True)
class Pause:
    minutes: int


@dataclass(frozen=True)
class Fail:
    what: int


@dataclass(frozen=True)
class Undo:
    block: Block


@dataclass(frozen=True)
class Repeat:
    times: int
    block: Block


@dataclass(frozen=True)
class Catch:
    block: Block


@dataclass(frozen=True)
class First:
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Every:
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Within:
    minutes: int | None
    block: Block


Statement = Tell | Take | Pause | Fail | Undo | Repeat | Catch | First | Every | Within
Block = tuple[Statement, ...]

# What a block is made of: often what waits, opens a scope or undoes; rarely what fails.
_LEAVES = ["tell", "take", "take", "pause", "pause", "fail"]
_COMPOUND = ["within", "within", "within", "first", "every", "every", "catch", "catch", "repeat"]
_minutes = st.integers(1, 5)
_simple = st.builds(Tell, st.integers(0, 9)) | st.builds(Pause, _minutes) | st.builds(Fail, st.just(0))


@st.composite
def programs(draw: st.DrawFn, depth: int = 4, scoped: bool = False) -> Block:
    """A block. In a scope it undoes things; every other one at the top catches what fails in it."""
    kinds = _LEAVES + (["undo"] * 4 if scoped else []) + (_COMPOUND if depth else [])
    block = tuple(_drawn(draw, draw(st.sampled_from(kinds)), depth, scoped) for _ in range(draw(st.integers(1, 3))))
    return (Catch(block), *draw(programs(depth=1))) if depth == 4 and draw(st.booleans()) else block


def _drawn(draw: st.DrawFn, kind: str, depth: int, scoped: bool) -> Statement:
    inner = programs(depth=max(depth - 1, 0), scoped=scoped)
    blocks = st.lists(inner, min_size=2, max_size=3).map(tuple)
    match kind:
        case "tell":
            return Tell(draw(st.integers(0, 9)))
        case "take":
            return Take(draw(st.sampled_from(["A", "B", None])), draw(st.none() | _minutes))
        case "pause":
            return Pause(draw(_minutes))
        case "fail":
            return Fail(0)
        case "undo":
            return Undo(draw(st.lists(_simple, min_size=1, max_size=2).map(tuple)))
        case "repeat":
            return Repeat(draw(st.integers(0, 3)), draw(inner))
        case "catch":
            return Catch(draw(inner))
        case "first":
            return First(draw(blocks))
        case "every":
            return Every(draw(blocks))
        case _:
            return Within(draw(st.none() | _minutes), draw(programs(depth=max(depth - 1, 0), scoped=True)))


# As data

_STATEMENTS = {each.__name__: each for each in (Tell, Take, Pause, Fail, Undo, Repeat, Catch, First, Every, Within)}


def as_data(program: object) -> Any:
    """What JSON can hold, from which `from_data` makes the program again."""
    if isinstance(program, tuple):
        return [as_data(each) for each in program]
    if not is_dataclass(program):
        return program
    return {"statement": type(program).__name__} | {
        each.name: as_data(getattr(program, each.name)) for each in fields(program)
    }


def from_data(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(from_data(each) for each in data)
    if not isinstance(data, dict):
        return data
    given = {name: from_data(value) for name, value in data.items() if name != "statement"}
    return _STATEMENTS[data["statement"]](**given)


class FailError(Exception):
    pass


# As a coroutine


def as_orchestration(program: Block) -> Orchestration:
    @orchestration(Receive("Order", initializes=case))
    async def drawn(process: Process, order: Message) -> None:  # noqa: ARG001
        await run(process, program)

    return drawn


async def run(process: Process, program: Block) -> None:
    await _block(process, program, None)


async def _tell(process: Process, *what: object) -> None:
    await process.send(out, process.message("Told", list(what)))


async def _block(process: Process, block: Block, scope: Scope | None) -> None:
    for statement in block:
        await _statement(process, statement, scope)


async def _statement(process: Process, statement: Statement, scope: Scope | None) -> None:  # noqa: C901
    match statement:
        case Tell(what):
            await _tell(process, what)
        case Take(kind, None):
            taken: Message | None = await process.receive(case, type=kind)
            await _tell(process, "got", taken and taken.json())
        case Take(kind, int(minutes)):
            taken = await process.receive(case, type=kind, timeout=timedelta(minutes=minutes))
            await _tell(process, "got", taken and taken.json())
        case Pause(minutes):
            await process.delay(timedelta(minutes=minutes))
        case Fail(what):
            raise FailError(what)
        case Undo(block):
            if scope is not None:
                scope.compensate(_block, process, block, None)
        case Repeat(times, block):
            for _ in range(times):
                await _block(process, block, scope)
        case Catch(block):
            try:
                await _block(process, block, scope)
            except Exception as error:
                await _tell(process, "caught", type(error).__name__)
        case First(blocks):
            index, _ = await process.listen(*(_block(process, each, scope) for each in blocks))
            await _tell(process, "first", index)
        case Every(blocks):
            await process.parallel(*(_block(process, each, scope) for each in blocks))
        case Within(minutes, block):
            limit = None if minutes is None else timedelta(minutes=minutes)
            async with process.scope(timeout=limit) as inner:
                await _block(process, block, inner)


# By the reference

Then = Callable[[], None]
Error = tuple[str, int]  # its name, and the number of the scope whose time is over
Catching = Callable[[Error], None]


@dataclass(eq=False)
class Line:
    """A line of control."""

    alive: bool = True
    waits: Hold | None = None
    children: list[Line] = field(default_factory=list)
    shielded: int = 0
    interrupted: bool = False
    pending: Error | None = None
    scope: Area | None = None


@dataclass(eq=False)
class Hold:
    """A wait of a line; one without `fail` is for its children."""

    line: Line
    then: Callable[[object], None]
    fail: Catching
    kind: str | None = None
    timer: int | None = None
    receives: bool = False
    suspends: bool = False


@dataclass(eq=False)
class Area:
    number: int
    line: Line
    outer: Area | None
    undo: list[Block] = field(default_factory=list)
    timer: int | None = None


class Reference:
    """`told` is what the program has sent, `ended` how it ended, `timers` what is due when."""

    def __init__(self, program: Block, now: datetime) -> None:
        self.told: list[list[object]] = []
        self.ended: str | None = None
        self.timers: dict[int, datetime] = {}
        self._now = now
        self._owners: dict[int, Hold | Area] = {}
        self._inbox: list[tuple[str, int]] = []
        self._holds: list[Hold] = []
        self._ready: deque[tuple[Line, Then]] = deque()
        self._numbers = 0
        self._areas = 0
        self._cancelled = False
        self._root = Line()
        self._soon(
            self._root, lambda: self._block(program, self._root, None, lambda: self._end("completed"), self._fail)
        )
        self._run()

    @property
    def suspended(self) -> bool:
        return self.ended is None and any(hold.suspends for hold in self._holds)

    def message(self, now: datetime, kind: str, number: int) -> None:
        self._now = now
        hold = next((each for each in self._holds if each.receives and each.kind in (None, kind)), None)
        if hold is None:
            self._inbox.append((kind, number))
        else:
            self._wake(hold, number)
        self._run()

    def fire(self, now: datetime, number: int) -> None:
        self._now = now
        del self.timers[number]
        owner = self._owners.pop(number)
        if isinstance(owner, Area):
            self._interrupt(owner.line, ("over", owner.number))
        else:
            self._wake(owner, None)
        self._run()

    def resume(self, now: datetime) -> None:
        self._now = now
        for hold in [each for each in self._holds if each.suspends]:
            self._wake(hold, None)
        self._run()

    def cancel(self, now: datetime) -> None:
        self._now = now
        if not self._cancelled:
            self._cancelled = True
            self._interrupt(self._root, ("cancelled", 0))
        self._run()

    def _run(self) -> None:
        while self._ready:
            line, then = self._ready.popleft()
            if line.alive:
                then()

    def _soon(self, line: Line, then: Then) -> None:
        self._ready.append((line, then))

    def _end(self, how: str) -> None:
        self._root.alive = False
        self.ended = how

    def _fail(self, error: Error) -> None:
        self._end(error[0])

    # Waiting

    def _hold(self, hold: Hold) -> None:
        hold.line.waits = hold
        self._holds.append(hold)

    def _release(self, hold: Hold) -> None:
        self._stop(hold.timer)
        hold.line.waits = None
        if hold in self._holds:
            self._holds.remove(hold)

    def _wake(self, hold: Hold, value: object) -> None:
        self._release(hold)
        self._soon(hold.line, lambda: hold.then(value))

    def _throw(self, hold: Hold, error: Error) -> None:
        self._release(hold)
        self._soon(hold.line, lambda: hold.fail(error))

    def _start(self, minutes: int, owner: Hold | Area) -> int:
        self._numbers += 1
        self.timers[self._numbers] = self._now + timedelta(minutes=minutes)
        self._owners[self._numbers] = owner
        return self._numbers

    def _stop(self, timer: int | None) -> None:
        if timer is not None:
            self.timers.pop(timer, None)
            self._owners.pop(timer, None)

    def _interrupt(self, line: Line, error: Error) -> None:
        if not line.alive:
            return
        if line.shielded:
            line.pending = line.pending or error
        elif line.children:
            line.interrupted = True
            for child in line.children:
                self._interrupt(child, error)
        elif line.waits is not None:
            self._throw(line.waits, error)

    def _kill(self, line: Line) -> None:
        if not line.alive:
            return
        line.alive = False
        if line.waits is not None:
            self._release(line.waits)
        area = line.scope
        while area is not None and area.line is line:
            self._stop(area.timer)
            area = area.outer
        for child in line.children:
            self._kill(child)

    # Statements

    def _block(self, block: Block, line: Line, area: Area | None, then: Then, fail: Catching) -> None:
        if not block:
            then()
            return
        self._statement(block[0], line, area, lambda: self._block(block[1:], line, area, then, fail), fail)

    def _statement(self, statement: Statement, line: Line, area: Area | None, then: Then, fail: Catching) -> None:
        match statement:
            case Tell(what):
                self.told.append([what])
                then()
            case Take(kind, minutes):
                self._take(Hold(line, lambda got: self._told(["got", got], then), fail, kind, receives=True), minutes)
            case Pause(minutes):
                hold = Hold(line, lambda _: then(), fail)
                hold.timer = self._start(minutes, hold)
                self._hold(hold)
            case Fail():
                fail(("FailError", 0))
            case Undo(block):
                if area is not None:
                    area.undo.append(block)
                then()
            case Repeat(times, block):
                self._block(block * times, line, area, then, fail)
            case Catch(block):
                self._block(block, line, area, then, lambda error: self._caught(error, then, fail))
            case First(blocks):
                self._join(blocks, line, area, lambda won: self._told(["first", won], then), fail, first=True)
            case Every(blocks):
                self._join(blocks, line, area, lambda _: then(), fail, first=False)
            case Within(minutes, block):
                self._within(minutes, block, line, then, fail)

    def _told(self, what: list[object], then: Then) -> None:
        self.told.append(what)
        then()

    def _caught(self, error: Error, then: Then, fail: Catching) -> None:
        if error[0] in ("over", "cancelled"):
            fail(error)
        else:
            self._told(["caught", error[0]], then)

    def _take(self, hold: Hold, minutes: int | None) -> None:
        if minutes is not None:
            hold.timer = self._start(minutes, hold)
        found = next((each for each in self._inbox if hold.kind in (None, each[0])), None)
        if found is None:
            self._hold(hold)
        else:
            self._inbox.remove(found)
            self._wake(hold, found[1])

    def _join(
        self,
        blocks: Sequence[Block],
        line: Line,
        area: Area | None,
        then: Callable[[object], None],
        fail: Catching,
        *,
        first: bool,
    ) -> None:
        errors: dict[int, Error] = {}
        left = [len(blocks)]
        line.interrupted = False
        children = line.children = [Line(scope=line.scope) for _ in blocks]

        def ended(number: int, error: Error | None) -> None:
            children[number].alive = False
            left[0] -= 1
            if error is not None:
                errors[number] = error
            whole = not first or line.interrupted
            if whole and left[0]:
                return
            for child in children:
                self._kill(child)
            line.children = []
            worst = sorted(errors, key=lambda each: (errors[each][0] not in ("over", "cancelled"), each))
            if worst:
                self._soon(line, lambda: fail(errors[worst[0]]))
            else:
                self._soon(line, lambda: then(0 if whole else number))

        for number, block in enumerate(blocks):
            self._soon(children[number], self._branch(block, children[number], area, number, ended))

    def _branch(
        self, block: Block, child: Line, area: Area | None, number: int, ended: Callable[[int, Error | None], None]
    ) -> Then:
        return lambda: self._block(block, child, area, lambda: ended(number, None), lambda error: ended(number, error))

    def _within(self, minutes: int | None, block: Block, line: Line, then: Then, fail: Catching) -> None:
        self._areas += 1
        area = Area(self._areas, line, line.scope)
        line.scope = area
        if minutes is not None:
            area.timer = self._start(minutes, area)

        def completed() -> None:
            self._stop(area.timer)
            line.scope = area.outer
            if area.outer is not None:
                area.outer.undo += area.undo
            then()

        def failed(error: Error) -> None:
            self._stop(area.timer)
            line.scope = area.outer
            line.shielded += 1
            self._undo(area, lambda: undone(error))

        def undone(error: Error) -> None:
            line.shielded -= 1
            if line.pending is not None and not line.shielded:
                pending, line.pending = line.pending, None
                fail(pending)
            else:
                fail(("Timeout", 0) if error == ("over", area.number) else error)

        self._block(block, line, area, completed, failed)

    def _undo(self, area: Area, then: Then) -> None:
        if not area.undo:
            then()
            return

        def done() -> None:
            area.undo.pop()
            self._undo(area, then)

        def again(_: Error) -> None:
            self._hold(Hold(area.line, lambda _: self._undo(area, then), again, suspends=True))

        self._block(area.undo[-1], area.line, None, done, again)
