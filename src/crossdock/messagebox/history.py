"""Tells whether a connection leads to the MessageBox that a process knows, as it was or later.

A restore, a copy that takes the place of the original or a promoted standby may lead back in time. What a process
remembers is then wrong. Not every restore can be told by this, and neither message ids nor epochs nor the ids of host
instances rest on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

import psycopg

from crossdock.messagebox.statement import statement

logger = logging.getLogger(__name__)


class Moment(NamedTuple):
    """A position in the log of a server, as seen from one of its databases."""

    server: int
    database: int
    timeline: str
    position: int

    def may_follow(self, before: Moment) -> bool:
        return self[:3] == before[:3] and self.position >= before.position


class History:
    """What one process has seen. `forget` is called when a new connection leads elsewhere, before it is used."""

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._lock = Lock()
        self._latest: Moment | None = None

    def meet(self, connection: psycopg.Connection) -> None:
        """Look where a new connection leads. A standby is not looked at: nobody works there."""
        before = self._latest  # before asking: others may see a later moment while this one waits for its answer
        row = connection.execute(statement("read_moment")).fetchone()
        if row is None or row[3] is None:
            return
        met = Moment(*row)
        with self._lock:
            elsewhere = before is not None and not met.may_follow(before)
            if elsewhere and self._latest is before:
                logger.warning(
                    "The MessageBox is not the one of before, or has gone back in time: "
                    "what this process remembers of it is forgotten"
                )
                self._forget()
            if elsewhere or self._latest is None or met.may_follow(self._latest):
                self._latest = met

    def reached(self, position: int | None) -> None:
        """Somebody saw this position, over a connection that was met."""
        with self._lock:
            if position is not None and self._latest is not None and position > self._latest.position:
                self._latest = self._latest._replace(position=position)
