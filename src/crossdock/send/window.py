"""A service window: the hours of the day in which a send port sends."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict


class ServiceWindow(BaseModel):
    """From `start` until `end` by the clock of `zone`; over midnight, if the end is the earlier of the two."""

    model_config = ConfigDict(frozen=True)
    start: time
    end: time
    zone: str = "UTC"

    def opens(self, now: datetime) -> datetime | None:
        """When it opens next; None if it is open."""
        local = now.astimezone(ZoneInfo(self.zone))
        at = local.time().replace(tzinfo=None)
        inside = self.start <= at < self.end if self.start < self.end else at >= self.start or at < self.end
        if inside:
            return None
        days = 0 if at < self.start else 1
        opening = datetime.combine(local.date() + timedelta(days=days), self.start, local.tzinfo)
        if days == 0:  # in the hour that a clock put back has twice, the second time is meant
            opening = opening.replace(fold=local.fold)
        # A clock that was put forward may have skipped the hour: then it opens with the first one there is.
        return max(opening.astimezone(UTC), now + timedelta(seconds=1))
