"""Where a benchmark delivers to: nowhere, and it is counted. Each port has a service of its own, as it has anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from crossdock.host.outcome import Clock, Complete, Outcome, Service
from crossdock.message.message import Message


class Counter:
    """Counts deliveries; appending is safe from many threads, counting up is not."""

    def __init__(self) -> None:
        self._sent: deque[None] = deque()

    def add(self) -> None:
        self._sent.append(None)

    @property
    def sent(self) -> int:
        return len(self._sent)


class Nowhere:
    """An adapter that does nothing with a message but count it."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def send(self, message: Message, *, attempt: int) -> None:  # noqa: ARG002
        self._counter.add()

    def close(self) -> None:
        """Nothing is open."""


class NoService:
    """A service that does nothing with a message but count it."""

    in_flight = None

    def __init__(self, name: str, counter: Counter) -> None:
        self.name = name
        self._counter = counter

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:  # noqa: ARG002
        self._counter.add()
        return Complete()


class One:
    """A service for each id that is asked for."""

    def __init__(self, make: Callable[[str], Service]) -> None:
        self._make = make
        self._made: dict[int, Service] = {}

    def __call__(self, service_id: int) -> Service:
        made = self._made.get(service_id)
        return made if made is not None else self._made.setdefault(service_id, self._make(f"Port{service_id}"))
