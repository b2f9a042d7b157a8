"""The instances of a host share the limit of a port: each takes its part, by its place among the living instances.

Nobody hands out anything: every instance reads the same list and computes the same parts. A part is used from the
second reading on, so that an instance that comes, or that takes over a part, waits until the others have made room.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

_Place = tuple[int, int]  # which of how many
_ALONE: _Place = (0, 1)


class LimitShare:
    """Before the first reading the instance is taken to be alone."""

    def __init__(self) -> None:
        self._host_instance = 0
        self._before: _Place | None = _ALONE
        self._now: _Place | None = _ALONE

    def read(self, host_instance: int, living: Sequence[int]) -> None:
        """Take in which instances live, this one among them; it has another id after a lost connection."""
        place = (living.index(host_instance), len(living)) if host_instance in living else None
        first = None if place != _ALONE else place
        self._before = self._now if host_instance == self._host_instance else first
        self._host_instance, self._now = host_instance, place

    def of(self, limit: int, name: str) -> int:
        """This instance's part of what a port takes at once: the smaller one of the last two readings."""
        return min(_part(place, limit, name) for place in (self._before, self._now))


def _part(place: _Place | None, limit: int, name: str) -> int:
    if place is None:
        return 0
    rank, count = place
    # Turned by the name: else the first instance would have all the ports that take one at a time.
    turned = (rank + crc32(name.encode())) % count
    return limit // count + (turned < limit % count)
