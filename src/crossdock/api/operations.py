"""Acts on many things in two steps: look at what they would be about, then do it and watch it. Pages use the same.

What was looked at is what is done: it is kept in the memory of the process, for a quarter of an hour.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Event, Lock, Thread

from crossdock.administration.open_box import OpenBox
from crossdock.administration.operating import Action, Operation, Preview, State
from crossdock.administration.service import Administration, Chosen, Outcome, Selection
from crossdock.api.gate import Person
from crossdock.api.problems import ProblemError
from crossdock.errors import CrossdockError

logger = logging.getLogger(__name__)

__all__ = ["Action", "Operation", "Operations", "Preview"]

_SAMPLE = 10
_PREVIEW_SECONDS, _KEPT_SECONDS = 900.0, 3600.0
_MOST_PREVIEWS, _MOST_OPERATIONS, _MOST_RUNNING = 20, 200, 8
_MOST_OUTCOMES = 100_000


@dataclass(slots=True)
class _Prepared:
    action: Action
    person: str
    chosen: Chosen
    expires: float


@dataclass(slots=True)
class _Running:
    """What a thread writes and others read."""

    id: str
    action: Action
    person: str
    chosen: Chosen
    begun_at: datetime
    stop: Event = field(default_factory=Event)
    state: State = "running"
    ended_at: datetime | None = None
    forget_at: float | None = None
    done: int = 0
    failed: int = 0
    results: Counter[str] = field(default_factory=Counter)
    outcomes: list[Outcome] = field(default_factory=list)
    problem: str | None = None

    @property
    def total(self) -> int:
        return self.chosen.total

    def add(self, outcome: Outcome) -> None:
        self.done, self.failed = self.done + outcome.done, self.failed + (not outcome.done)
        self.results[outcome.result[:200]] += 1
        if len(self.outcomes) < _MOST_OUTCOMES or not outcome.done:
            self.outcomes.append(outcome)

    def shown(self, after: int = 0) -> Operation:
        return Operation(
            self.id,
            self.action,
            self.person,
            str(self.chosen.selection),
            self.total,
            self.state,
            self.begun_at,
            self.ended_at,
            self.done,
            self.failed,
            dict(self.results.most_common(50)),
            tuple(self.outcomes[after:]),
            self.problem,
        )


class Operations:
    """Threads may share it."""

    def __init__(self, box: OpenBox, clock: Callable[[], float] = time.monotonic) -> None:
        self._box = box
        self._clock = clock
        self._lock = Lock()
        self._prepared: dict[str, _Prepared] = {}
        self._running: dict[str, _Running] = {}
        self._threads: list[Thread] = []

    def preview(self, service: Administration, person: Person, action: Action, selection: Selection) -> Preview:
        """What the selection means now. Nothing is done yet. Raises UsageError if that is nothing."""
        chosen = _slim(service.choose(action, selection))
        token = secrets.token_urlsafe(24)
        with self._lock:
            now = self._clock()
            self._prepared = {key: each for key, each in self._prepared.items() if each.expires > now}
            while len(self._prepared) >= _MOST_PREVIEWS:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[token] = _Prepared(action, person.name, chosen, now + _PREVIEW_SECONDS)
        return Preview(token, action, str(chosen.selection), chosen.total, chosen.rows(_SAMPLE))

    def execute(self, service: Administration, person: Person, token: str, *, rate: float | None = None) -> Operation:
        """Begin what was looked at; at most `rate` in a second. Watch it with `find`."""
        now = service.now()
        with self._lock:
            prepared = self._prepared.get(token)
            if prepared is None or prepared.person != person.name or prepared.expires <= self._clock():
                raise ProblemError(410, "preview-gone", "This preview is over, or was used. Make it again.")
            if sum(each.state == "running" for each in self._running.values()) >= _MOST_RUNNING:
                raise ProblemError(429, "too-many-operations", "Too many operations are running: wait for one of them.")
            del self._prepared[token]
            self._forget()
            made = _Running(secrets.token_urlsafe(12), prepared.action, person.name, prepared.chosen, now)
            self._running[made.id] = made
        thread = Thread(target=self._run, args=(service, made, rate), name=f"operation {made.id}", daemon=True)
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        thread.start()
        return made.shown()

    def _run(self, service: Administration, running: _Running, rate: float | None) -> None:
        verb = service.resume if running.action == "resume" else service.terminate
        began = self._clock()
        try:
            for outcome in verb(running.chosen, rate=rate, stop=running.stop):
                running.add(outcome)
            finished = running.done + running.failed == running.total
            state: State = "done" if finished else "cancelled"
        except CrossdockError as error:
            running.problem, state = str(error), "failed"
        except Exception as error:
            logger.exception("Operation %s failed", running.id)
            running.problem, state = f"Unexpected {type(error).__name__}.", "failed"
        ended = self._clock()
        running.ended_at, running.forget_at = running.begun_at + timedelta(seconds=ended - began), ended + _KEPT_SECONDS
        running.state = state  # last: whoever sees it sees all of it

    def find(self, person: Person, id_: str, *, after: int = 0) -> Operation:
        """With the outcomes after the first so many. ProblemError 404 if there is none, or not any more.

        Everybody sees those of everybody.
        """
        del person
        return self._found(id_).shown(after)

    def list(self) -> list[Operation]:
        """The newest first, without outcomes of single things."""
        return [replace(each.shown(), outcomes=()) for each in reversed(list(self._running.values()))]

    def cancel(self, person: Person, id_: str) -> Operation:
        """Begin no further batch. What is done stays done. Only for whoever began it, and administrators."""
        if not person.rights.any("operator"):
            raise person.rights.refusal("cancel an operation", "operator")
        running = self._found(id_)
        if running.person != person.name and not person.rights.is_owner:
            raise person.rights.refusal("cancel an operation of somebody else", "administrator")
        running.stop.set()
        return running.shown()

    def close(self) -> None:
        """The process ends: batches that are begun are finished."""
        for each in list(self._running.values()):
            each.stop.set()
        for thread in self._threads:
            thread.join(10)

    def _found(self, id_: str) -> _Running:
        running = self._running.get(id_)
        if running is None:
            raise ProblemError(404, "not-found", f"There is no operation {id_!r}, or not any more.")
        return running

    def _forget(self) -> None:
        now = self._clock()
        over = [key for key, each in self._running.items() if each.forget_at is not None and each.forget_at <= now]
        ended = [key for key, each in self._running.items() if each.forget_at is not None and key not in over]
        for key in [*over, *ended[: max(0, len(self._running) - len(over) - _MOST_OPERATIONS)]]:
            del self._running[key]


def _slim(chosen: Chosen) -> Chosen:
    """Without what may be large and nobody needs to act: there may be a hundred thousand of them."""
    return replace(
        chosen,
        deliveries=[
            each if n < _SAMPLE or each.promoted is None else replace(each, promoted={}, nearest_misses=None, reason="")
            for n, each in enumerate(chosen.deliveries)
        ],
    )
