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
from functools import partial
from typing import Any, Protocol

from crossdock.adapter.contract import BatchAcknowledgeAdapter
from crossdock.errors import CrossdockError, UnansweredError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.receive.calls import AdapterCalls
from crossdock.receive.location import ReceiveLocation

_FIRST_BACK_OFF_SECONDS = 1.0
_LONGEST_BACK_OFF_SECONDS = 60.0
_ITEMS_PER_TRANSACTION = 5_000
_LIST_ALL_SECONDS = 60.0
_SAY_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Ledger(Protocol):
    """What the intake needs of the MessageBox."""

    def enter(self, items: Sequence[tuple[int, bytes, int]]) -> int: ...
    def published(self, *, after: int, limit: int = 1000) -> list[tuple[int, int, bytes]]: ...
    def forget(self, sequences: Sequence[int]) -> None: ...


@dataclass(slots=True)
class _BackOff:
    """How long to leave a location alone that keeps failing."""

    until: float = 0.0
    seconds: float = _FIRST_BACK_OFF_SECONDS

    def again(self, now: float) -> None:
        self.until = now + self.seconds
        self.seconds = min(self.seconds * 2, _LONGEST_BACK_OFF_SECONDS)


@dataclass(slots=True)
class Intake:
    """One process's view of the sources. `round()` does everything there is to do now.

    `incomplete` sources are waited for, and so is an adapter that has not answered yet. What is `held` is complete once
    its writer lets go of it, whenever that is.
    """

    ledger: Ledger
    clock: Callable[[], float] = time.monotonic
    calls: AdapterCalls = field(default_factory=AdapterCalls)
    incomplete: int = 0
    held: int = 0
    _known: dict[int, set[bytes]] = field(default_factory=dict)
    _failing: dict[int, _BackOff] = field(default_factory=dict)
    _stuck: set[bytes] = field(default_factory=set)
    _awaited_since: dict[int, float] = field(default_factory=dict)
    _held: dict[tuple[str, str], float] = field(default_factory=dict)
    _list_all_at: float = 0.0

    def round(self, locations: Mapping[int, ReceiveLocation], disabled: Mapping[int, ReceiveLocation]) -> int:
        """Remove what is published, also at disabled locations; list what is new; gives how many sources were new."""
        self.incomplete = 0
        self.acknowledge({**disabled, **locations})
        if self.clock() >= self._list_all_at:
            self.forget()  # whoever reads a source and finds it changed takes it out of the ledger
            self._list_all_at = self.clock() + _LIST_ALL_SECONDS
        for gone in self._failing.keys() - locations.keys():
            del self._failing[gone]  # nobody waits for a location that is disabled
        held, self._held = self._held, {}
        new = sum(self._list(location) for location in locations.values())
        self.held = len(self._held)
        self._held = {each: held.get(each, since) for each, since in self._held.items()}
        self.name_held(after=_SAY_SECONDS)
        return new

    def name_held(self, *, after: float = 0.0) -> None:
        """Say, once, what somebody has held open for so many seconds."""
        for (location, source), since in self._held.items():
            if self.clock() - since >= after:
                self._held[location, source] = math.inf
                logger.warning("Receive location %r waits for %s: somebody has it open for writing", location, source)

    def acknowledge(self, locations: Mapping[int, ReceiveLocation]) -> None:
        """Remove every published source, then its ledger row, in that order."""
        after = 0
        while settled := self.ledger.published(after=after):
            rows: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
            for sequence, location_id, identity in settled:
                rows[location_id].append((sequence, identity))
            self.ledger.forget(
                [
                    sequence
                    for location_id, published in rows.items()
                    if location_id in locations
                    for sequence in self._answered_removal(locations[location_id], published)
                ]
            )
            after = settled[-1][0]

    def _answered_removal(self, location: ReceiveLocation, published: Sequence[tuple[int, bytes]]) -> list[int]:
        """As `_removed`; or what an earlier call has removed that was not answered in time."""
        try:
            return self.calls.acknowledge(location.adapter, partial(self._removed, location, published))
        except UnansweredError as error:
            self.incomplete += not error.late
            return []

    def _removed(self, location: ReceiveLocation, published: Sequence[tuple[int, bytes]]) -> list[int]:
        """Remove sources, many at once where that is quicker; gives the sequences of those that are gone."""
        together = [each for each in published if each[1] not in self._stuck]  # one that fails would keep all of them
        if together and isinstance(location.adapter, BatchAcknowledgeAdapter):
            with suppress(Exception):  # one by one, the others are not held up
                with FOREIGN_CODE:
                    location.adapter.acknowledge_batch([identity for _, identity in together])
                self._known.get(location.id, set()).difference_update(identity for _, identity in together)
                alone = [each for each in published if each[1] in self._stuck]
                return [sequence for sequence, _ in together] + self._removed_alone(location, alone)
        return self._removed_alone(location, published)

    def _removed_alone(self, location: ReceiveLocation, published: Sequence[tuple[int, bytes]]) -> list[int]:
        return [sequence for sequence, identity in published if self._remove(location, identity)]

    def forget(self) -> None:
        """The ledger is not what it was: list everything again."""
        self._known.clear()

    @property
    def failing(self) -> int:
        """Locations that cannot be listed at the moment."""
        return len(self._failing)

    def _list(self, location: ReceiveLocation) -> int:
        back_off = self._failing.get(location.id)
        if back_off is not None and back_off.until > self.clock():
            return 0
        known = self._known.get(location.id, set())
        try:
            listing = self.calls.list(location.adapter, location.adapter.list)
            with FOREIGN_CODE:
                incomplete, held = int(listing.incomplete), [str(name) for name in listing.held]
                new = [(location.id, each.identity, each.size) for each in listing.ready if each.identity not in known]
                _check_sources(new)
        except UnansweredError as error:
            self._wait_for(location, error)
            return 0
        except Exception as error:  # whatever one adapter raises, the others go on
            if back_off is None:
                logger.warning("Receive location %r waits: %s", location.definition.name, _described(location, error))
            self._failing.setdefault(location.id, _BackOff()).again(self.clock())
            return 0
        if self._failing.pop(location.id, None) is not None:
            logger.warning("Receive location %r can be listed again", location.definition.name)
        self.incomplete += incomplete
        self._held |= dict.fromkeys(((location.definition.name, name) for name in held), self.clock())
        for start in range(0, len(new), _ITEMS_PER_TRANSACTION):
            self.ledger.enter(new[start : start + _ITEMS_PER_TRANSACTION])
        self._known[location.id] = {each.identity for each in listing.ready}
        self._say_what_is_awaited(location, incomplete, new=bool(new))
        return len(new)

    def _wait_for(self, location: ReceiveLocation, error: UnansweredError) -> None:
        """A slow adapter is waited for; one that is late is said once, and counts as failing until it is back."""
        if not error.late:
            self.incomplete += 1
        elif location.id not in self._failing:
            logger.warning("Receive location %r waits: %s", location.definition.name, error)
            self._failing[location.id] = _BackOff()

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
            with FOREIGN_CODE:
                location.adapter.acknowledge(identity)
            self._known.get(location.id, set()).discard(identity)
            self._stuck.discard(identity)
            return True
        except Exception as error:
            if identity not in self._stuck:
                name, problem = location.definition.name, _described(location, error)
                logger.warning("Receive location %r: %s; it is published and stays", name, problem)
            self._stuck.add(identity)
            return False


def _described(location: ReceiveLocation, error: Exception) -> str:
    """One sentence; what no adapter should raise is named by its type."""
    if isinstance(error, CrossdockError):
        return location.without_secrets(str(error))
    return location.without_secrets(f"its adapter failed: {described(error)}")


def _check_sources(listed: Sequence[tuple[int, Any, Any]]) -> None:
    """What the ledger cannot hold would stop every location."""
    for _, identity, size in listed:
        if type(identity) is not bytes or type(size) is not int or not 0 <= size < 2**63:
            raise TypeError(f"a source has bytes for its identity and a size, not {identity!r:.100} and {size!r:.100}")
