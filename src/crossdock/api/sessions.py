"""Who has signed in with a browser. Sessions live in the memory of the process, and end after twelve hours."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

COOKIE = "crossdock_session"  # and the port: a browser gives a cookie to every port of a host
LIFETIME_SECONDS = 12 * 3600
_MOST, _MOST_OF_ONE = 10_000, 100


@dataclass(frozen=True, slots=True)
class Session:
    """A person who has signed in. `limit` are its rights at most; None: those of the database user.

    `token` is the digest of the API token that it signed in with: the session ends with it.
    """

    person: str
    limit: frozenset[str] | None
    ends_at: float
    token: bytes | None = None


class Sessions:
    """Threads may share it. The cookie itself is not kept, only its digest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._sessions: dict[bytes, Session] = {}
        self._once: bytes | None = None

    def begin(self, person: str, limit: frozenset[str] | None, token: bytes | None = None) -> str:
        """The value of the cookie of a new session."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._forget_ended()
            own = [key for key, each in self._sessions.items() if each.person == person]
            for key in own[: max(0, len(own) - _MOST_OF_ONE + 1)]:  # nobody signs the others out by signing in
                del self._sessions[key]
            self._sessions[_digest(cookie)] = Session(person, limit, self._clock() + LIFETIME_SECONDS, token)
        return cookie

    def find(self, cookie: str) -> Session | None:
        """The session of this cookie, unless it has ended."""
        session = self._sessions.get(_digest(cookie))
        return session if session is not None and session.ends_at > self._clock() else None

    def end(self, cookie: str) -> None:
        with self._lock:
            self._sessions.pop(_digest(cookie), None)

    def accept_once(self, token: str) -> None:
        """Let this token sign in, once."""
        self._once = _digest(token)

    def use(self, token: str) -> bool:
        """Whether this is the one-time token; it is none any more."""
        with self._lock:
            if self._once is None or not secrets.compare_digest(self._once, _digest(token)):
                return False
            self._once = None
            return True

    def _forget_ended(self) -> None:
        now = self._clock()
        self._sessions = {key: each for key, each in self._sessions.items() if each.ends_at > now}
        while len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]  # the oldest


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
