"""The intake: lists the sources of all locations into the ledger, and removes those whose messages are safe.

Order of steps for every source: list, publish (elsewhere), remove, forget. A crash between any two is made good by the
next round, since each step can be done again.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from crossdock.adapter.contract import BatchReceiveAdapter
from crossdock.errors import CrossdockError
from crossdock.receive.location import ReceiveLocation

_FIRST_BACK_OFF_SECONDS = 1.0
_LONGEST_BACK_OFF_SECONDS = 60.0
_ITEMS_PER_TRANSACTION = 5_000
_LIST_ALL_SECONDS = 60.0
_SAY_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Ledger(Protocol):
    """What the intake needs of the MessageBox."""

    def list_intake(self, items: Sequence[tuple[int, bytes, int]]) -> int: ...
    def settled_intake(self, *, after: int, limit: int = 1000) -> list[tuple[int, int, bytes]]: ...
    def forget_intake(self, sequences: Sequence[int]) -> None: ...
    def abandon_intake(self, sequences: Sequence[int]) -> bool: ...


@dataclass(slots=True)
class _BackOff:
    """How long to leave something alone that keeps failing."""

    until: float = 0.0
    seconds: float = _FIRST_BACK_OFF_SECONDS

    def again(self, now: float) -> None:
        self.until = now + self.seconds
        self.seconds = min(self.seconds * 2, _LONGEST_BACK_OFF_SECONDS)


@dataclass(slots=True)
class Intake:
    """One process's view of the sources. `round()` does everything there is to do now.

    `stalled`: a source that is published in part can be tried again, and whoever reads the ledger has gone past it.
    """

    ledger: Ledger
    clock: Callable[[], float] = time.monotonic
    incomplete: int = 0
    stalled: bool = False
    _known: dict[int, set[bytes]] = field(default_factory=dict)
    _failing: dict[int, _BackOff] = field(default_factory=dict)
    _postponed: dict[int, _BackOff] = field(default_factory=dict)
    _unreadable: dict[bytes, _BackOff] = field(default_factory=dict)
    _stuck: set[bytes] = field(default_factory=set)
    _awaited_since: dict[int, float] = field(default_factory=dict)
    _list_all_at: float = 0.0

    def round(self, locations: Mapping[int, ReceiveLocation], disabled: Mapping[int, ReceiveLocation]) -> int:
        """Remove what is published, also at disabled locations; list what is new; gives how many sources were new."""
        self.acknowledge({**disabled, **locations})
        self._retry_postponed()
        for gone in self._failing.keys() - locations.keys():
            del self._failing[gone]  # nobody waits for a location that is disabled
        self.incomplete = 0
        return sum(self._list(location) for location in locations.values())

    def acknowledge(self, locations: Mapping[int, ReceiveLocation]) -> None:
        """Remove every published source, then its ledger row, in that order."""
        after = 0
        while settled := self.ledger.settled_intake(after=after):
            rows: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
            for sequence, location_id, identity in settled:
                rows[location_id].append((sequence, identity))
            self.ledger.forget_intake(
                [
                    sequence
                    for location_id, published in rows.items()
                    if location_id in locations
                    for sequence in self._removed(locations[location_id], published)
                ]
            )
            after = settled[-1][0]

    def _removed(self, location: ReceiveLocation, published: Sequence[tuple[int, bytes]]) -> list[int]:
        """Remove sources, many at once where that is quicker; gives the sequences of those that are gone."""
        if isinstance(location.adapter, BatchReceiveAdapter):
            with suppress(Exception):  # one by one, the others are not held up
                location.adapter.acknowledge_batch([identity for _, identity in published])
                self._known.get(location.id, set()).difference_update(identity for _, identity in published)
                return [sequence for sequence, _ in published]
        return [sequence for sequence, identity in published if self._remove(location, identity)]

    def postpone(self, sequence: int, identity: bytes, reason: str) -> None:
        """A source could not be read: leave it alone for a while, then list it again."""
        logger.warning("%s; trying again later", reason)
        back_off = self._unreadable.setdefault(identity, _BackOff())
        back_off.again(self.clock())
        self._postponed[sequence] = back_off

    @property
    def failing(self) -> int:
        """Locations that cannot be listed at the moment."""
        return len(self._failing)

    @property
    def postponed(self) -> int:
        """Sources in the ledger that are not readable at the moment."""
        return len(self._postponed)

    def _retry_postponed(self) -> None:
        # A copy: Spark's sink postpones from a thread of its own.
        due = [sequence for sequence, back_off in list(self._postponed.items()) if back_off.until <= self.clock()]
        self.stalled |= self.ledger.abandon_intake(due)
        for sequence in due:
            self._postponed.pop(sequence, None)
        if due or self.clock() >= self._list_all_at:
            self._known.clear()  # now and then list everything: another process may have abandoned a row
            self._list_all_at = self.clock() + _LIST_ALL_SECONDS

    def _list(self, location: ReceiveLocation) -> int:
        back_off = self._failing.get(location.id)
        if back_off is not None and back_off.until > self.clock():
            return 0
        try:
            listing = location.adapter.list()
        except Exception as error:  # whatever one adapter raises, the others go on
            if back_off is None:
                logger.warning("Receive location %r waits: %s", location.definition.name, _described(error))
            self._failing.setdefault(location.id, _BackOff()).again(self.clock())
            return 0
        self._failing.pop(location.id, None)
        self.incomplete += listing.incomplete
        known = self._known.get(location.id, set())
        new = [(location.id, each.identity, each.size) for each in listing.ready if each.identity not in known]
        for start in range(0, len(new), _ITEMS_PER_TRANSACTION):
            self.ledger.list_intake(new[start : start + _ITEMS_PER_TRANSACTION])
        self._known[location.id] = {each.identity for each in listing.ready}
        self._say_what_is_awaited(location, listing.incomplete, new=bool(new))
        return len(new)

    def _say_what_is_awaited(self, location: ReceiveLocation, incomplete: int, *, new: bool) -> None:
        """Once, where nothing has come for a while and only what is not complete yet is there."""
        if new or not incomplete:
            self._awaited_since.pop(location.id, None)
        elif self.clock() - self._awaited_since.setdefault(location.id, self.clock()) >= _SAY_SECONDS:
            self._awaited_since[location.id] = math.inf
            what = "a source that changed" if incomplete == 1 else f"{incomplete:,} sources that changed"
            logger.warning(
                "Receive location %r waits for %s too recently to be complete", location.definition.name, what
            )

    def _remove(self, location: ReceiveLocation, identity: bytes) -> bool:
        try:
            location.adapter.acknowledge(identity)
            self._known.get(location.id, set()).discard(identity)
            return True
        except Exception as error:
            if identity not in self._stuck:
                name, problem = location.definition.name, _described(error)
                logger.warning("Receive location %r: %s; it is published and stays", name, problem)
            self._stuck.add(identity)
            return False


def _described(error: Exception) -> str:
    """One sentence; what no adapter should raise is named by its type."""
    if isinstance(error, CrossdockError):
        return str(error)
    logger.debug("An adapter failed", exc_info=error)
    return f"its adapter failed: {type(error).__name__}: {error}"
