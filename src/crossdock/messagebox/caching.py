"""The caching service: tells a process that subscriptions or configuration have changed, as soon as they have."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from crossdock.messagebox.lifeline import EPOCH_CHANNEL
from crossdock.messagebox.outage import outage


class EpochWatch:
    """Listens on a connection of its own, and looks by itself now and then, in case a call was missed."""

    def __init__(self, connect: Callable[[], psycopg.Connection], interval: float) -> None:
        self._connect = connect
        self._interval = interval
        self._connection: psycopg.Connection | None = None

    def wait(self) -> None:
        """Until something has changed, or until it is time to look. TransientError: PostgreSQL is away."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
                self._connection.execute(f"LISTEN {EPOCH_CHANNEL}")
                return  # it may have changed before we listened
            list(self._connection.notifies(timeout=self._interval, stop_after=1))
        except psycopg.Error as error:
            self.close()
            if (problem := outage(error)) is None:
                raise
            raise problem from error

    def close(self) -> None:
        if self._connection is not None and not self._connection.closed:
            self._connection.close()
