"""A service window: the hours of the day in which a send port sends."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, time, timedelta
from math import floor
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict

_DAY = timedelta(days=1)


class ServiceWindow(BaseModel):
    """From `start` until `end` by the clock of `zone`; over midnight, if the end is the earlier of the two.

    An hour that the clock has twice counts twice, and of one that it skips there is nothing.
    """

    model_config = ConfigDict(frozen=True)
    start: time
    end: time
    zone: str = "UTC"

    def opens(self, now: datetime) -> datetime | None:
        """When it opens next; None if it is open."""
        zone = ZoneInfo(self.zone)
        at = begin = now.astimezone(UTC)
        while not self._is_open(shown := at.astimezone(zone).time()):
            opening = at + _ahead(shown, self.start)
            at = _clock_change(zone, at, opening) or opening
        return None if at == begin else at

    def _is_open(self, shown: time) -> bool:
        return self.start <= shown < self.end if self.start < self.end else shown >= self.start or shown < self.end


def _ahead(shown: time, goal: time) -> timedelta:
    """How long until a clock that nobody changes shows the goal."""
    midnight = datetime.min
    return (datetime.combine(midnight, goal) - datetime.combine(midnight, shown)) % _DAY


def _clock_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """When the clock is changed meanwhile, if it is. No zone does that twice within a day."""
    seconds = range(floor(after.timestamp()), floor(until.timestamp()) + 1)
    offset = after.astimezone(zone).utcoffset()
    place = bisect_left(seconds, True, key=lambda each: datetime.fromtimestamp(each, zone).utcoffset() != offset)
    return None if place == len(seconds) else datetime.fromtimestamp(seconds[place], UTC)
