"""Where a benchmark delivers to: nowhere, and it is counted."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from crossdock.host.outcome import Complete, Outcome
from crossdock.message.message import Message


class Counted:
    """Counts what it is given."""

    name = "Nowhere"
    in_flight = None

    def __init__(self) -> None:
        self._sent: deque[None] = deque()  # appending is safe from many threads, counting up is not

    @property
    def sent(self) -> int:
        return len(self._sent)


class Nowhere(Counted):
    """An adapter that does nothing with a message but count it."""

    def send(self, message: Message, *, attempt: int) -> None:  # noqa: ARG002
        self._sent.append(None)

    def close(self) -> None:
        """Nothing is open."""


class NoService(Counted):
    """A service that does nothing with a message but count it."""

    def deliver(self, message: Message, *, attempt: int, now: datetime) -> Outcome:  # noqa: ARG002
        self._sent.append(None)
        return Complete()
