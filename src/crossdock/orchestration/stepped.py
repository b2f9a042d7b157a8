"""What comes of a step: what the code wants published, awaited and timed, and the state it is left in.

The engine stores all of it in one transaction, together with the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

from crossdock.message.message import Message, Part, StreamedPart
from crossdock.message.property import Value
from crossdock.orchestration.declare import Correlation, Port
from crossdock.orchestration.history import Event, StepRecord

MadeMessage = tuple[bytes, Mapping[str, Value], Mapping[str, Value]]


class Tools(Protocol):
    """What a run needs from outside. None of it may depend on the time or on anything that changes."""

    def load(self, message: UUID) -> Message:
        """A message that this instance was given. Called when the code takes it, and for its type."""

    def make(self, type: str, body: object, promote: Mapping[str, Value]) -> MadeMessage:  # noqa: A002
        """Body, promoted and written properties of a new message, through the schema of its type if it has one.

        `body` is bytes, a text, or values for JSON (see `body.encode_body`). Raises a CrossdockError.
        """

    def map(self, name: str, message: Message) -> tuple[str, bytes]:
        """The type and the body that the map of this name makes of a message. Raises a CrossdockError."""


@dataclass(frozen=True, slots=True)
class Send:
    """A message that the code sends. `promoted` has BTS.MessageType; properties of the way it came are taken out.

    kind     other fields
    send     `port`; with `address` to a dynamic port; `initializes` are in `Stepped.subscribes` of the same step
    request  `port`; `request` is the number that the response's Arrived, or RequestFailed, names
    reply    `reply_to` is the id of the two-way request that is answered; `fault`; no port
    start    `port`, bound to an orchestration; with `reply_to` the started one answers that two-way request
    """

    kind: Literal["send", "request", "reply", "start"]
    port: Port | None
    type: str
    parts: tuple[Part | StreamedPart, ...]
    promoted: Mapping[str, Value]
    written: Mapping[str, Value]
    labels: frozenset[str]
    request: int | None = None
    initializes: tuple[Correlation, ...] = ()
    address: str | None = None
    reply_to: UUID | None = None
    fault: bool = False
    line: str = ""

    @property
    def body(self) -> bytes:
        return b"".join(self.parts[0].chunks())


@dataclass(frozen=True, slots=True)
class Waiting:
    """For messages or timers. `what` is for people: `receive case, at most until 2026-11-18T06:00:00Z`."""

    what: str
    line: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The function has returned, or was cancelled and has compensated."""

    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised: this run cannot go on. The engine does nothing of the step, and may run the step again."""

    error: str
    traceback: str
    line: str
    code: str


@dataclass(frozen=True, slots=True)
class AtomicWanted:
    """Call `atomic.perform(wanted, connection)` in the transaction of the step; its AtomicDone is the next event."""

    number: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    line: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """By `process.suspend`, or because a compensation failed, which the event Resumed lets the code try again."""

    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class ContinuedWith:
    """Drop the history, keep sets, subscriptions and inbox, and go on with `run.step(at, state.events)`.

    The first event is Continued; `events[0].messages` are the messages that have to stay.
    """

    events: Sequence[Event]


State = Waiting | Completed | Failed | AtomicWanted | Suspended | ContinuedWith


@dataclass(slots=True)
class Stepped:
    """`subscribes` are the sets that were initialized in this step, with the full names of their properties.

    It has the sets of an activation too; their publisher has usually subscribed them already. `timers` are new, and
    `cancelled_timers` are from earlier steps. `taken` are the messages that the code has received in this step.
    """

    record: StepRecord
    state: State
    sends: list[Send] = field(default_factory=list)
    subscribes: list[tuple[Correlation, Mapping[str, Value]]] = field(default_factory=list)
    timers: list[tuple[int, datetime]] = field(default_factory=list)
    cancelled_timers: list[int] = field(default_factory=list)
    taken: list[UUID] = field(default_factory=list)
