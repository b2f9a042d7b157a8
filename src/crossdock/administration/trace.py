"""The journey of a message as a tree: where it came from, each delivery with its attempts, what they published in turn.

A tree may be large, and a partner may send back what we send it: how deep and how wide it is shown has bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from crossdock.administration.known_message import (
    Delivery,
    KnownMessage,
    LookedAt,
    came_of,
    deliveries_of,
    known_message,
    look_at,
)
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.track import Tracked

DEPTH_LIMIT = 20
CHILD_LIMIT = 100
NODE_LIMIT = 1_000
_NO_ATTEMPT = ("resumed", "terminated", "given-back", "discarded", "postponed", "edited")
_WAITING = ("retried", "postponed")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that happened to the message. `port` is whose copy it happened to; `sequence` tells copies apart."""

    at: datetime
    event: str
    port: str | None = None
    attempt: int | None = None
    code: str | None = None
    reason: str | None = None
    instance: str | None = None
    location: str | None = None
    source: str | None = None
    copies: int | None = None
    claimed_at: datetime | None = None
    sequence: int | None = None


@dataclass(slots=True)
class Traced:
    """A message, or an instance that was given it, and what each published.

    `type` is the message type, or the orchestration. `again`: it is shown in full elsewhere in the tree. `left_out` is
    how many of its children are not shown.
    """

    id: str
    kind: Literal["message", "instance"]
    type: str | None
    at: datetime
    events: Sequence[TraceEvent] = ()
    children: list[Traced] = field(default_factory=list)
    again: bool = False
    left_out: int = 0


def trace_message(agent: Agent, id_: UUID) -> Traced:
    """The journey of one message from here on. Raises UsageError for an unknown one."""
    return trace_from(agent, look_at(agent, id_))


def trace_from(agent: Agent, first: LookedAt) -> Traced:
    """The same for a message that was looked at already."""
    return _Journey(agent).trace(first)


class _Journey:
    """Goes level by level, so that each level is one question for all of its messages."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._shown: set[UUID] = set()
        self._nodes = 0
        self._orchestrations = {id_ for id_, *_ in agent.configuration.orchestrations()}

    def trace(self, first: LookedAt) -> Traced:
        root = _node(first.message)
        self._shown.add(first.message.id)
        level = self._below(first.message, root, first.deliveries, first.children)
        for _ in range(DEPTH_LIMIT - 1):
            if not level:
                return root
            level = self._next(level)
        for message, node in level:  # too deep: what is below is only counted
            node.left_out = len(self._agent.track.children(message.id))
        return root

    def _next(self, level: Sequence[tuple[KnownMessage, Traced]]) -> list[tuple[KnownMessage, Traced]]:
        """Fill in what happened to these messages; gives their children, with their places in the tree."""
        deliveries = deliveries_of(self._agent, [message for message, _ in level])
        below: list[tuple[KnownMessage, Traced]] = []
        for message, node in level:
            own = deliveries[message.id]
            below += self._below(message, node, own, came_of(self._agent, message, own, self._orchestrations))
        return below

    def _below(
        self, message: KnownMessage, node: Traced, deliveries: Sequence[Delivery], children: Sequence[Tracked]
    ) -> list[tuple[KnownMessage, Traced]]:
        """The same for one message."""
        below: list[tuple[KnownMessage, Traced]] = []
        node.events = [*_beginning(message), *_happened(message, deliveries)]
        published = {each.id: each for each in children}
        for instance in self._instances(deliveries, node):
            sent = self._sent(instance, deliveries)
            below += self._placed(instance, sent)
            published = {id_: each for id_, each in published.items() if id_ not in {one.id for one in sent}}
        return below + self._placed(node, list(published.values()))

    def _instances(self, deliveries: Sequence[Delivery], node: Traced) -> Iterator[Traced]:
        """A node for each running instance that was given the message."""
        for delivery in deliveries:
            if delivery.instance is not None and delivery.events:
                at = delivery.events[0].at
                made = Traced(str(delivery.instance), "instance", delivery.service, at)
                node.children.append(made)
                if delivery.instance in self._shown:
                    made.again = True
                else:
                    self._shown.add(delivery.instance)
                    yield made

    def _sent(self, instance: Traced, deliveries: Sequence[Delivery]) -> list[Tracked]:
        """What an instance published since it was given the message."""
        given = [each.events[0].at for each in deliveries if str(each.instance) == instance.id and each.events]
        sent = self._agent.track.children(UUID(instance.id))
        return [each for each in sent if each.at >= min(given)]

    def _placed(self, node: Traced, messages: Sequence[Tracked]) -> list[tuple[KnownMessage, Traced]]:
        """Put messages below a node, as many as there is room for; gives those that are new in the tree."""
        room = max(0, min(CHILD_LIMIT, NODE_LIMIT - self._nodes))
        node.left_out += max(0, len(messages) - room)
        placed = []
        for tracked in messages[:room]:
            known = known_message(tracked, None)
            child = _node(known)
            child.again = tracked.id in self._shown
            node.children.append(child)
            self._nodes += 1
            if not child.again:
                self._shown.add(tracked.id)
                placed.append((known, child))
        return placed


def _node(message: KnownMessage) -> Traced:
    return Traced(str(message.id), "message", message.type, message.at)


def _beginning(message: KnownMessage) -> Iterator[TraceEvent]:
    """How it came in, and what was decided then."""
    tracked = message.tracked
    if message.location is not None:
        yield TraceEvent(message.at, "received", location=message.location, source=message.source)
    if tracked is not None and tracked.code is not None:
        event = "unrouted" if tracked.code == "no-subscriber" else "suspended"
        yield TraceEvent(message.at, event, code=tracked.code, reason=tracked.reason)
    elif tracked is not None:
        yield TraceEvent(message.at, "published", copies=len(tracked.routes))
    else:
        yield TraceEvent(message.at, "published")


def _happened(message: KnownMessage, deliveries: Sequence[Delivery]) -> list[TraceEvent]:
    """What happened to the copies, in the order of time; of those that wait to be delivered or are, that too.

    What waits for another attempt has an event that says so. What waits behind others of an ordered port has none yet.
    """
    events = [
        TraceEvent(
            event.at,
            event.event,
            delivery.service,
            None if event.event in _NO_ATTEMPT else event.attempt,
            event.code,
            event.reason,
            None if event.instance is None else str(event.instance),
            claimed_at=event.claimed_at,
            sequence=event.sequence,
        )
        for delivery in deliveries
        for event in delivery.events
    ]
    for delivery in deliveries:
        copy = delivery.copy
        if copy is None or copy.place not in ("queued", "claimed", "waiting"):
            continue
        if copy.place == "waiting" and delivery.events and delivery.events[-1].event in _WAITING:
            continue
        since = (delivery.events[-1].at if delivery.events else message.at) if copy.place != "claimed" else copy.at
        attempt = None if copy.attempt is None else copy.attempt + 1
        place, why = ("queued", copy.reason) if copy.place == "waiting" else (copy.place, None)
        events.append(
            TraceEvent(since or message.at, place, delivery.service, attempt, reason=why, sequence=delivery.sequence)
        )
    return sorted(events, key=lambda each: (each.at, each.sequence))
