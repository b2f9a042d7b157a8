"""Says that receiving works on the same sources for long: the others wait, and else nothing would show why."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

_LONG_SECONDS = 30.0


class SlowBatch:
    """Told again and again whether a micro-batch is under way, and when one has ended."""

    def __init__(self, time_limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._time_limit = time_limit
        self._clock = clock
        self._since: float | None = None
        self._say_at = 0.0

    def seen(self, *, busy: bool) -> None:
        now = self._clock()
        if not busy:
            self._since = None
        elif self._since is None:
            self._since, self._say_at = now, now + _LONG_SECONDS
        elif now >= self._say_at:
            logger.warning(
                "Receiving has worked on the same sources for %d seconds, and other files and rows wait. The pipeline "
                "may take %g seconds for each source (CROSSDOCK_TIME_LIMIT)",
                now - self._since,
                self._time_limit,
            )
            self._say_at = now + 2 * (now - self._since)

    def ended(self) -> None:
        self._since = None
