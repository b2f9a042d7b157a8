"""What a step makes of a running instance, and how it is written for many instances at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import psycopg

from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.rows import storable
from crossdock.messagebox.statement import quick

if TYPE_CHECKING:
    from crossdock.messagebox.step import Step

WAKE_UP = 0
_TRACEBACK_CHARACTERS = 16_000
# A reference that others move meanwhile is passed on by a later look.
_LOOKS = 20


@dataclass(frozen=True, slots=True)
class InstanceChange:
    """An instance that has done `expected` steps, and is `stored` unless this is its first one.

    It does a step for each of the `records`; one that only `parks` messages is suspended, and does none. `given` are
    numbers of held references that its code was given now. `timers` are new, each due in so long; those in
    `timers_done` have fired or are cancelled. Where it is `timed`, nothing but a timer brings the step about.

    When it `ends`, the messages in `left` are those that it holds and nobody took. With a `successor` they begin that
    one, if there are any. When it `restarts`, it keeps the messages in `kept` and no history.
    """

    id: UUID
    service_id: int
    version: str
    activation: UUID
    expected: int = 0
    stored: bool = False
    records: Sequence[bytes] = ()
    parks: bool = False
    state: Literal["running", "suspended"] = "running"
    waiting_for: str = ""
    line: str = ""
    code: str | None = None
    reason: str | None = None
    traceback: str | None = None
    given: Sequence[int] = ()
    timers: Sequence[tuple[int, timedelta]] = ()
    timers_done: Sequence[int] = ()
    timed: bool = False
    ends: bool = False
    left: Sequence[UUID] = ()
    successor: UUID | None = None
    restarts: bool = False
    kept: Sequence[UUID] = ()

    @property
    def step(self) -> int:
        """How many steps it has done then."""
        return self.expected + len(self.records)


def lock_instances(connection: psycopg.Connection, changes: Sequence[tuple[int, InstanceChange]]) -> set[UUID]:
    """The instances that are as these changes expect them."""
    locked: set[UUID] = set()
    for host in sorted({host for host, change in changes if change.stored}):
        mine = {change.id: change for host_id, change in changes if host_id == host and change.stored}
        parameters = {
            "host": host,
            "id": list(mine),
            "step": [change.expected for change in mine.values()],
            "parks": [change.parks for change in mine.values()],
        }
        locked.update(id_ for (id_,) in connection.execute(host_statement("lock_instances", host), quick(parameters)))
    return locked


def list_given(connection: psycopg.Connection, host: int, steps: Collection[Step]) -> set[UUID]:
    """Of the instances of these steps those that are given messages besides the ones that the steps settle."""
    parameters = {
        "host": host,
        "instance": [step.change.id for step in steps if step.change is not None],
        "sequence": [outcome.reference.sequence for step in steps for outcome in step.settles],
    }
    return {id_ for (id_,) in connection.execute(host_statement("list_given", host), quick(parameters))}


def write_changes(connection: psycopg.Connection, host: int, changes: Sequence[InstanceChange]) -> bool:
    """Write what instances of a host have become; whether some have begun that have references waiting for them."""
    run = _Writer(connection, host).run
    living = [change for change in changes if not change.ends and not change.parks]
    if restarting := [change for change in living if change.restarts]:
        kept = _pairs(restarting, lambda change: change.kept)
        run("restart_instances", {"instance": _ids(restarting), "kept_instance": kept[0], "kept_message": kept[1]})
    if living:
        run("write_instances", _columns(living))
    records = [
        (change.id, change.step - len(change.records) + number, record)
        for change in living
        for number, record in enumerate(change.records, start=1)
    ]
    if records:
        run("write_history", _unzipped(records, "instance", "step", "record"))
    if given := [(change.id, sequence, change.step) for change in living for sequence in change.given]:
        run("give_held", _unzipped(given, "instance", "sequence", "step"))
    made = [(change.id, number, due) for change in living for number, due in change.timers]
    done = _pairs(living, lambda change: change.timers_done)
    if made or done[0]:
        timers = _unzipped(made, "instance", "number", "due_in")
        run("change_timers", {**timers, "done_instance": done[0], "done_number": done[1]})
    if suspended := [change.id for change in living if change.state == "suspended"]:
        run("pause_timers", {"instance": suspended})
    return _end(run, [change for change in changes if change.ends and change.stored])


_Run = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class _Writer:
    connection: psycopg.Connection
    host: int

    def run(self, verb: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        where = {"host": self.host, "at": [self.host]}
        cursor = self.connection.execute(host_statement(verb, self.host), quick(parameters) | where)
        return cursor.fetchall() if cursor.description else []


def _end(run: _Run, ending: Sequence[InstanceChange]) -> bool:
    if not ending:
        return False
    left = _pairs(ending, lambda change: change.left)
    begun: list[tuple[Any, ...]] = []
    if passing := [change for change in ending if change.successor is not None]:
        successors = {"ending": _ids(passing), "successor": [change.successor for change in passing]}
        for _ in range(_LOOKS):
            begun += run("pass_on", {**successors, "left_instance": left[0], "left_message": left[1]})
            if not run("list_unpassed", {"instance": _ids(passing)}):
                break
        run("end_instance", {"instance": _ids(passing)})  # what was not passed on
    run("end_instances", {"instance": _ids(ending), "left_instance": left[0], "left_message": left[1]})
    return bool(begun)


def _columns(changes: Sequence[InstanceChange]) -> dict[str, Any]:
    return {
        "id": _ids(changes),
        "service": [change.service_id for change in changes],
        "version": [change.version for change in changes],
        "activation": [change.activation for change in changes],
        "step": [change.step for change in changes],
        "state": [change.state for change in changes],
        "waiting_for": [storable(change.waiting_for) for change in changes],
        "line": [storable(change.line) for change in changes],
        "code": [change.code for change in changes],
        "reason": [None if change.reason is None else storable(change.reason) for change in changes],
        "traceback": [None if change.traceback is None else _shortened(change.traceback) for change in changes],
    }


def _shortened(traceback: str) -> str:
    """The end says most."""
    kept = traceback[-_TRACEBACK_CHARACTERS:]
    return kept.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _ids(changes: Iterable[InstanceChange]) -> list[UUID]:
    return [change.id for change in changes]


def _pairs(
    changes: Iterable[InstanceChange], of: Callable[[InstanceChange], Iterable[Any]]
) -> tuple[list[UUID], list[Any]]:
    found = [(change.id, each) for change in changes for each in of(change)]
    return [id_ for id_, _ in found], [each for _, each in found]


def _unzipped(rows: Sequence[tuple[Any, ...]], *names: str) -> dict[str, list[Any]]:
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}
