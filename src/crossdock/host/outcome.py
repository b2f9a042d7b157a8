"""What can come of a delivery. A service returns one of these; it does not raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

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
    """Not now: try again at this time."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Postpone:
    """Not tried: it has to wait until this time. That is no attempt."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """It will not work by itself. `stops`: nothing after it in its line is delivered until somebody has dealt with it.

    `report` is published in its stead, if anybody wants it.
    """

    reason: str
    stops: bool = False
    report: Message | None = None


Outcome = Complete | Answer | Retry | Postpone | Suspend


class Service(Protocol):
    """Whoever is given messages: a send port. Threads share it."""

    @property
    def name(self) -> str:
        """The same in every process."""

    @property
    def in_flight(self) -> int | None:
        """How many deliveries it takes at once, from all instances of its host; None if it does not say."""

    def deliver(self, message: Message, *, attempt: int, now: datetime) -> Outcome:
        """Deliver one message; `attempt` counts the attempts before this one."""


@runtime_checkable
class BatchService(Service, Protocol):
    """One that may be quicker with many at once."""

    @property
    def batches(self) -> bool:
        """Whether it is."""

    def deliver_batch(self, messages: Sequence[tuple[Message, int]], *, now: datetime) -> Sequence[Outcome]:
        """The same for several (message, attempts before), in their order."""


@runtime_checkable
class RepeatingService(Service, Protocol):
    """One that cares whether a message may have been delivered before, or half so."""

    def deliver_again(self, message: Message, *, attempt: int, now: datetime) -> Outcome:
        """As `deliver`, where a process has ended that had the message in hand."""


@runtime_checkable
class StoppingService(Service, Protocol):
    """One whose line waits where a delivery failed for good."""

    @property
    def stops_on_failure(self) -> bool:
        """Whether it does."""
