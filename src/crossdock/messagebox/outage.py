"""Which errors mean that PostgreSQL is away or refuses to write, and not that something is wrong with a message.

The SQLSTATE decides. What has none comes from our side of the connection: then the connection is the trouble, unless it
is about the data. Everything else is permanent: trying it again gives the same, and whatever caused it is suspended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

import psycopg

from crossdock.errors import OutageError, TransientError

_SAY_AGAIN_SECONDS = 60.0
# Reading may work while writing does not: only if nobody has failed for so long it is over.
_QUIET_SECONDS = 10.0

logger = logging.getLogger(__name__)

_AWAY = "The MessageBox cannot be reached"
_REFUSES = "The MessageBox refuses to write"
_MOMENTARY = "The MessageBox asks to try again"
# By the SQLSTATE, or by its class: the first two characters.
_KINDS = {
    "08": _AWAY,
    "25006": f"{_REFUSES}, its database is read-only",
    "25P03": _AWAY,  # a session was ended for sleeping inside a transaction
    "25P04": _AWAY,  # or for too long a transaction, as in a failover
    "40": _MOMENTARY,  # deadlocks and the like
    "53": f"{_REFUSES}, its server is short of something",
    "53100": f"{_REFUSES}, the disk of its database is full",
    "53200": f"{_REFUSES}, its server is out of memory",
    "53300": _AWAY,  # too many connections
    "55006": _MOMENTARY,
    "55P03": _MOMENTARY,
    "57": _AWAY,
    "58": f"{_REFUSES}, its server cannot use its files",
}


def outage(error: psycopg.Error) -> OutageError | None:
    """The error to raise instead, if it may work later; None if it never will."""
    if error.sqlstate is None:
        connection = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        kind = _AWAY if connection else None
    else:
        kind = _KINDS.get(error.sqlstate, _KINDS.get(error.sqlstate[:2]))
    return None if kind is None else OutageError(kind, one_line(error))


def unusable(error: Exception) -> str | None:
    """What is wrong with a value that somebody gave, if PostgreSQL cannot hold it: a NUL, a time out of range."""
    if isinstance(error, psycopg.DataError):
        return one_line(error)
    return "a text is not Unicode" if isinstance(error, UnicodeEncodeError) else None


def is_refusal(error: Exception) -> bool:
    """Whether the MessageBox refuses something for good, such as a row that cannot be. The others go on."""
    return isinstance(error, psycopg.DatabaseError)


class Outage:
    """Says that everybody waits for the MessageBox, and why: once, then now and then; and once that it works again.

    Each process has one, whoever waits. Threads share it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._since: float | None = None
        self._last = 0.0
        self._said: dict[str, float] = {}

    def waits(self, error: TransientError) -> None:
        """Somebody waits because of this, and will try again."""
        kind = error.kind if isinstance(error, OutageError) else str(error)
        if kind == _MOMENTARY:
            logger.debug("%s", error)
            return
        with self._lock:
            now = self._last = self._clock()
            self._since = now if self._since is None else self._since
            if now - self._said.get(kind, -_SAY_AGAIN_SECONDS) < _SAY_AGAIN_SECONDS:
                return
            self._said[kind] = now
        logger.warning("%s. Everything waits, and goes on by itself.", str(error).rstrip("."))

    def worked(self) -> None:
        """The MessageBox has just done something."""
        if not self._said:  # nearly always, and then it must cost nothing
            return
        with self._lock:
            since = self._since
            if since is None or self._clock() - self._last < _QUIET_SECONDS:
                return
            self._since = None
            self._said.clear()
            seconds = self._last - since
        logger.warning("The MessageBox works again, after %.0f s.", seconds)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())
