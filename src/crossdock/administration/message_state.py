"""What became of one copy of a message, and of a message as a whole, in one word with the facts that belong to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from crossdock.administration.known_message import Delivery
from crossdock.messagebox.track import Event
from crossdock.messagebox.whereabouts import Copy

# A reference that was moved and is found nowhere has just been moved again.
_AFTER: Mapping[str, str] = {
    "retried": "waiting",
    "postponed": "waiting",
    "resumed": "queued",
    "given-back": "queued",
    "died": "queued",
    "answered": "delivered",
}
# What a person has to look at comes first.
_WORST_FIRST = (
    "suspended",
    "unrouted",
    "waiting",
    "claimed",
    "queued",
    "held",
    "discarded",
    "terminated",
    "settled",
    "replaced",
    "completed",
    "delivered",
)
STATES = _WORST_FIRST


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """`at` is when it came about; of a copy that waits, when it is due. `attempt` is the one it is at, or was."""

    state: str
    at: datetime | None = None
    attempt: int | None = None
    code: str | None = None
    reason: str | None = None
    instance: str | None = None
    host: str | None = None


def state_of(delivery: Delivery) -> DeliveryState:
    """Where the copy is now; of one that is settled, what was the last that happened to it."""
    if delivery.copy is not None:
        return _present(delivery.copy)
    if not delivery.events:
        return DeliveryState("settled", reason="what became of it is not known any more")
    return _past(delivery.events[-1])


def worst(states: Iterable[str]) -> str | None:
    """The one of these states that says most about the whole; None if there are none."""
    ranks = {state: rank for rank, state in enumerate(_WORST_FIRST)}
    return min(states, key=lambda state: ranks.get(state, len(ranks)), default=None)


def _present(copy: Copy) -> DeliveryState:
    state = "unrouted" if copy.kind == "unrouted" else copy.place
    attempt = copy.attempt
    if attempt is not None and copy.place in ("queued", "claimed", "waiting"):
        attempt += 1  # the next one, or the one under way
    instance = None if copy.instance is None else str(copy.instance)
    return DeliveryState(state, copy.at, attempt or None, copy.code, copy.reason, instance, copy.host)


def _past(event: Event) -> DeliveryState:
    instance = None if event.instance is None else str(event.instance)
    state = _AFTER.get(event.event, event.event)
    return DeliveryState(state, event.at, event.attempt, event.code, event.reason, instance)
