"""A MessageBox that a process keeps open for many people: the console. Each of them acts within rights of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread

from crossdock.administration.service import Actor, Administration
from crossdock.administration.tokens import FoundToken
from crossdock.application.store import Store, existing
from crossdock.errors import CrossdockError, UsageError
from crossdock.messagebox.console import Console as Answers
from crossdock.messagebox.outage import unusable
from crossdock.settings import Settings

__all__ = ["Answers", "OpenBox"]


class OpenBox:
    """Open from `open()` to `close()`. It creates no MessageBox: UsageError if there is none in the home."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._store = Store(existing(settings))
        self._lock = Lock()
        self._is_open = False
        self._reviving: Thread | None = None

    def open(self) -> None:
        """Nothing, if it is open."""
        if self._is_open:
            return
        self._agent = self._store.open()
        self._is_open = True
        self._service = Administration(self._agent, text_limit=self.settings.text_limit, settings=self.settings)

    def close(self) -> None:
        if self._reviving is not None:
            self._reviving.join()
        if self._is_open:
            self._store.close()
        self._is_open = False

    @property
    def service(self) -> Administration:
        """Acts for whoever runs this process, with all rights of the database user."""
        return self._service

    @property
    def person(self) -> str:
        """Who runs this process."""
        return self._store.actor.person

    def acting_for(self, person: str, limit: frozenset[str] | None, reason: str = "") -> Administration:
        """The service for a person, with these rights at most; None: with those of the database user."""
        return self._service.acting_for(Actor(person, reason, limit))

    @contextmanager
    def asked(self) -> Iterator[None]:
        """What people ask with a value that no database can hold is their mistake: UsageError."""
        try:
            yield
        except Exception as error:
            if (reason := unusable(error)) is None:
                raise
            raise UsageError(f"A value of the request cannot be used: {reason}.") from error

    def find_token(self, digest: bytes) -> FoundToken | None:
        """Whom an API token names, by its SHA-256."""
        return self._agent.console.find_token(digest)

    @property
    def answers(self) -> Answers:
        """What was answered to requests, to be given again."""
        return self._agent.console

    def revive(self) -> None:
        """Begin to start the embedded PostgreSQL again if it is gone. Whoever asks meanwhile hears that it is away."""
        with self._lock:
            if self._reviving is None or not self._reviving.is_alive():
                self._reviving = Thread(target=self._revive, name="revive", daemon=True)
                self._reviving.start()

    def _revive(self) -> None:
        with suppress(CrossdockError, OSError):
            self._store.revive()
