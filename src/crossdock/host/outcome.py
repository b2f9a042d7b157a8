"""What can come of a delivery. A service returns one of these; it does not raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from crossdock.errors import TerminalError
from crossdock.message.message import Message


@dataclass(frozen=True, slots=True)
class Complete:
    """Delivered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Delivered, and this is what the partner answered: published in the transaction that settles the delivery.

    If it cannot be published the delivery is suspended, and `stops` is as there.
    """

    messages: tuple[Message, ...]
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now: try again in so long."""

    after: timedelta
    reason: str


@dataclass(frozen=True, slots=True)
class Postpone:
    """Not tried: it has to wait so long. That is no attempt."""

    after: timedelta
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """It will not work by itself. `stops`: nothing after it in its subqueue is delivered until
    somebody has dealt with it.

    `report` is published in its stead, if anybody wants it. `code` is that of the error.
    """

    reason: str
    stops: bool = False
    report: Message | None = None
    code: str = TerminalError.code

    @classmethod
    def because(cls, error: TerminalError, *, stops: bool = False) -> Suspend:
        return cls(str(error), stops, code=error.code)


Outcome = Complete | Answer | Retry | Postpone | Suspend


Clock = Callable[[], datetime]


class Service(Protocol):
    """Whoever is given messages: a send port. Threads share it."""

    @property
    def name(self) -> str:
        """The same in every process."""

    @property
    def in_flight(self) -> int | None:
        """How many deliveries it takes at once, from all instances of its host; None if it does not say."""

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:
        """Deliver one message. `attempt` counts the attempts before this one; `now` gives the time of the server."""


class Services(Protocol):
    """The directory of services: finds the one a reference is for; None if it is not deployed any more."""

    def __call__(self, service_id: int) -> Service | None: ...


class Elsewhere:
    """A service of another host, which we may not know more about: it has moved there with what waits for it.

    What was in hand here goes after it.
    """

    name = "elsewhere"
    in_flight = None

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:  # noqa: ARG002
        return Postpone(timedelta(0), "The send port has moved to another host.")


@runtime_checkable
class BatchService(Service, Protocol):
    """One that may be quicker with many at once."""

    @property
    def batches(self) -> bool:
        """Whether it is."""

    def deliver_batch(self, messages: Sequence[tuple[Message, int]], *, now: Clock) -> Sequence[Outcome]:
        """The same for several (message, attempts before), in their order."""


@runtime_checkable
class RepeatingService(Service, Protocol):
    """One that cares whether a message may have been delivered before, or half so."""

    def deliver_again(self, message: Message, *, attempt: int, now: Clock) -> Outcome:
        """As `deliver`, where a process has ended that had the message in hand."""


@runtime_checkable
class StoppingService(Service, Protocol):
    """One whose subqueue waits where a delivery failed for good."""

    @property
    def stops_on_failure(self) -> bool:
        """Whether it does."""
