"""The ordered lines that a host instance has in hand: each is delivered by one worker, in order, under its lease.

Lines have room of their own, and so many of a line are claimed as are delivered in about half a second: a slow one
holds little, and every line gets its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from threading import Lock

from crossdock.host.flow import Share
from crossdock.host.outcome import Outcome, Postpone, Retry, Suspend
from crossdock.host.settler import Settler
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import LineOutcome, Reference

_ROOM = 2_000
_MOST, _FIRST, _LEAST = 100, 10, 4  # of one line: at most, as long as its pace is not known, where there is no room
_TURN_SECONDS = 0.5
# Lines that wait for a worker: what is quick waits behind them.
_MOST_WAITING = 8


class Lines:
    """`deliver` gives what is left to be recorded of one; `goes_on`, whether the lease is held and we are not to stop.

    `settled` hears how many references are done with; `wake`, that another line may be taken.
    """

    def __init__(
        self,
        agent: Agent,
        host_id: int,
        settler: Settler,
        *,
        clock: Callable[[], datetime],
        deliver: Callable[[int, Reference], Outcome | None],
        goes_on: Callable[[Share], bool],
        settled: Callable[[int], None],
        wake: Callable[[], None],
    ) -> None:
        self._agent = agent
        self._host_id = host_id
        self._settler = settler
        self._clock = clock
        self._deliver = deliver
        self._goes_on = goes_on
        self._settled = settled
        self._wake = wake
        self._lock = Lock()
        self._in_hand: dict[int, int] = {}  # how many references of each line
        self._begun: set[int] = set()
        self._paces: dict[int, float] = {}

    @property
    def in_hand(self) -> Sequence[int]:
        """Those whose lease is not known to be given up."""
        with self._lock:
            return list(self._in_hand)

    @property
    def held(self) -> int:
        """How many references they hold."""
        with self._lock:
            return sum(self._in_hand.values())

    @property
    def awaited(self) -> bool:
        """Whether another line would soon find a worker."""
        return len(self._in_hand) - len(self._begun) < _MOST_WAITING

    def size(self, line: int) -> int:
        """How many references of a line to claim."""
        pace = self._paces.get(line)
        wanted = _FIRST if pace is None else max(1, min(_MOST, int(_TURN_SECONDS / pace)))
        return min(wanted, max(_LEAST, _ROOM - self.held))

    def pace(self, line: int) -> float:
        """Seconds for one delivery, as it was last time; 0 if it is not known."""
        return self._paces.get(line, 0.0)

    def hold(self, instance: int, references: Sequence[Reference]) -> Share:
        """These are of a line whose lease was taken."""
        with self._lock:
            self._in_hand[references[0].line] = len(references)
        return Share(instance, references)

    def set_aside(self, share: Share) -> None:
        """It waits for something else than a worker, and the other lines need not wait for it."""
        with self._lock:
            if share.references[0].line in self._in_hand:
                self._begun.add(share.references[0].line)

    def deliver(self, share: Share) -> None:
        """In order, until one has to wait or stops the line, or the instance ends; then the lease is given up."""
        line = share.references[0].line
        crowded = not self.awaited
        self._begun.add(line)
        if crowded:
            self._wake()
        outcome = self._delivered(line, share)
        settle = partial(self._agent.settle_line, self._host_id, share.instance, line, outcome, now=self._clock())
        self._settler.persist(settle)
        with self._lock:
            held = self._in_hand.pop(line)
            self._begun.discard(line)
        self._settled(held)
        self._wake()

    def _delivered(self, line: int, share: Share) -> LineOutcome:
        completed: list[int] = []
        suspended: list[tuple[int, str]] = []
        failed: Retry | Postpone | None = None
        stopped_by: tuple[int, str] | None = None
        tried, began = 0, time.monotonic()
        while stopped_by is None and self._goes_on(share) and (reference := share.take()) is not None:
            outcome = self._deliver(share.instance, reference)
            self._paces[line] = max((time.monotonic() - began) / (tried + 1), 1e-6)
            if isinstance(outcome, Retry | Postpone):
                failed = outcome
                break
            tried += 1
            if isinstance(outcome, Suspend):
                suspended.append((reference.sequence, outcome.reason))
                stopped_by = (reference.sequence, outcome.reason) if outcome.stops else None
            elif outcome is not None:
                completed.append(reference.sequence)
        rest = [reference.sequence for reference in share.references[tried:]]
        return LineOutcome(
            completed,
            suspended,
            failed=rest[0] if failed else None,
            blocked_until=failed.at if failed else None,
            reason=failed.reason if failed else stopped_by[1] if stopped_by else None,
            untried=rest[1:] if failed else rest,
            tried=isinstance(failed, Retry),
            stopped_by=stopped_by[0] if stopped_by else None,
            claims={reference.sequence: reference.claim for reference in share.references},
        )
