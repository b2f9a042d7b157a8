"""The instances of a host share what a port takes at once: each has its part, by its place among those that live.

Nobody hands out anything: everybody looks at the same list and reckons the same. One that has just come, or inherits
from one that is gone, waits until it has looked twice, so that the others have made room by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

_Place = tuple[int, int]  # which of how many
_ALONE: _Place = (0, 1)


class Siblings:
    """Before the first look the instance is taken to be alone."""

    def __init__(self) -> None:
        self._instance = 0
        self._before: _Place | None = _ALONE
        self._now: _Place | None = _ALONE

    def look(self, instance: int, living: Sequence[int]) -> None:
        """Take in who lives, this instance among them; it has another id after a lost connection."""
        place = (living.index(instance), len(living)) if instance in living else None
        newborn = None if place != _ALONE else place
        self._before = self._now if instance == self._instance else newborn
        self._instance, self._now = instance, place

    def share(self, limit: int, name: str) -> int:
        """How many of a port's deliveries at once are for this instance, by this look and by the one before."""
        return min(_share(place, limit, name) for place in (self._before, self._now))


def _share(place: _Place | None, limit: int, name: str) -> int:
    if place is None:
        return 0
    rank, count = place
    # Turned by the name: else the first instance would have all the ports that take one at a time.
    turned = (rank + crc32(name.encode())) % count
    return limit // count + (turned < limit % count)
