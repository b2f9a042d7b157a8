"""Notes what goes wrong for whom, and what works again, for whoever says so. It logs nothing and asks nobody.

Each process has one. Where nothing goes wrong it costs a look at each outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Literal, NamedTuple

from crossdock.errors import TransientError, UnroutedError
from crossdock.message.publication import Express, FromSource, InPlaceOf, Publication
from crossdock.messagebox.rows import Published
from crossdock.messagebox.settle import Complete, Hold, Retry, Settlement, Suspend
from crossdock.messagebox.step import Step, Stepped

Artefact = Literal["service", "location"]
AWAY = TransientError.code  # the partner: deliveries are tried again


class Trouble(NamedTuple):
    """So many messages of a service or a receive location failed with this code; or it `works`, and code is empty."""

    artefact: Artefact
    id: int
    code: str
    messages: int

    @property
    def works(self) -> bool:
        return not self.code


class Troubles:
    """Threads share it. `drain` gives what has happened since it was called last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._new: Counter[tuple[Artefact, int, str]] = Counter()
        self._troubled: set[tuple[Artefact, int]] = set()
        self._works: set[tuple[Artefact, int]] = set()

    def add(self, trouble: Trouble) -> None:
        """Something failed, here or in another process of ours; or it works again."""
        with self._lock:
            key = trouble.artefact, trouble.id
            if trouble.works:
                self._works.add(key)
            else:
                self._new[trouble.artefact, trouble.id, trouble.code] += trouble.messages
                self._troubled.add(key)
                self._works.discard(key)

    def works(self, artefact: Artefact, id_: int) -> None:
        """It just did. Whoever was in no trouble is not noted."""
        if (artefact, id_) in self._troubled:
            self.add(Trouble(artefact, id_, "", 0))

    def drain(self) -> list[Trouble]:
        """What failed, then who works again."""
        if not self._troubled:  # nearly always
            return []
        with self._lock:
            found = [Trouble(*key, count) for key, count in self._new.items()]
            found += [Trouble(*key, "", 0) for key in self._works]
            self._troubled -= self._works
            self._new.clear()
            self._works.clear()
        return found

    def settled(self, outcomes: Sequence[Settlement]) -> None:
        """These are recorded."""
        failed = Counter(_failure(each) for each in outcomes if type(each) is not Complete)
        del failed[None]
        for key, count in failed.items():
            if key is not None:
                self.add(Trouble("service", *key, count))
        if self._troubled:
            for service in {each.reference.service_id for each in outcomes if isinstance(each, Complete | Hold)}:
                self.works("service", service)

    def stepped(self, steps: Iterable[Step], done: Iterable[Stepped]) -> None:
        """These are committed."""
        for step, each in zip(steps, done, strict=True):
            if each.done:
                change = step.change
                if change is not None and change.state == "suspended" and not change.parks:
                    self.add(Trouble("service", change.service_id, change.code or "failed", 1))
                else:
                    self.settled(step.settles)

    def published(self, publications: Sequence[Publication], published: Published) -> None:
        """These are committed, or were before."""
        if published.suspended:
            self._note_failures(publications)
        if published.unrouted:
            self._note_unrouted(publications, published)
        if self._troubled and published.published:
            for id_ in {location for each in publications if (location := _location(each)) is not None}:
                self.works("location", id_)

    def _note_failures(self, publications: Sequence[Publication]) -> None:
        failed = Counter((_location(each), failure.code) for each in publications for failure in each.failures)
        for (location, code), count in failed.items():
            if location is not None:
                self.add(Trouble("location", location, code, count))

    def _note_unrouted(self, publications: Sequence[Publication], published: Published) -> None:
        """By the messages that nobody was given, where it is known which those are."""
        counts = iter(published.reference_counts)
        unrouted: Counter[int | None] = Counter()
        for each in publications:
            unrouted[_location(each)] += sum(1 for _, given in zip(each.messages, counts, strict=False) if not given)
        for location, count in unrouted.items():
            if location is not None and count:
                self.add(Trouble("location", location, UnroutedError.code, count))


def _failure(outcome: Settlement) -> tuple[int, str] | None:
    match outcome:
        case Suspend(reference, code=code):
            return reference.service_id, code
        case Retry(reference, tried=True):
            return reference.service_id, AWAY
        case _:
            return None


def _location(publication: Publication) -> int | None:
    match publication.cause:
        case FromSource(location_id=location) | InPlaceOf(location_id=location) | Express(location_id=location):
            return location
        case _:
            return None
