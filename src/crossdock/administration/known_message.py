"""One message with everything that is known of it: from the track, and where it is tracked no longer, from the box."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from crossdock.administration.message_ids import unknown_message
from crossdock.errors import ContextError
from crossdock.message.context import Context
from crossdock.message.property import Value, format_value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.track import Event, Route, Tracked
from crossdock.messagebox.version import SubscriptionVersion
from crossdock.messagebox.whereabouts import Copy, StoredMessage
from crossdock.subscription.explain import MASKED

_T = TypeVar("_T")
ERASED = "(erased)"  # what is shown instead of a value that was erased
_PUBLISHING = ("answered", "replaced", "edited", "held", "completed")


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A message as it was published. `tracked` and `stored`: what says so, the track, the box or both.

    Of a message that is tracked no longer the epoch, the routes and the source are not known. `masked` are properties
    whose values the box does not show.
    """

    id: UUID
    at: datetime
    context: Context
    personal: frozenset[str]
    tracked: Tracked | None
    stored: StoredMessage | None
    masked: frozenset[str] = frozenset()

    @property
    def type(self) -> str | None:
        kind = self.context.get("BTS.MessageType")
        return None if kind is None else str(kind)

    @property
    def location(self) -> str | None:
        name = self.tracked.location if self.tracked is not None else None
        return name or _text(self.context.get("BTS.ReceiveLocationName"))

    @property
    def source(self) -> str | None:
        identity = self.tracked.source if self.tracked is not None else None
        return identity or _text(self.context.get("FILE.ReceivedFileName"))

    @property
    def routes(self) -> Sequence[Route]:
        return () if self.tracked is None else self.tracked.routes

    @property
    def refusals(self) -> Mapping[int, tuple[str, ...]]:
        """The labels that hosts lacked, by subscription."""
        known = self.tracked.refusals if self.tracked is not None else ()
        return dict(known or (() if self.stored is None else self.stored.refusals))

    @property
    def erased(self) -> bool:
        """Whether its properties were erased, but for what says nothing of its content."""
        return self.tracked is not None and bool(self.tracked.context.get("erased"))

    @property
    def hidden(self) -> frozenset[str]:
        """Properties whose values are not read, for lack of the right to."""
        marked = () if self.tracked is None else self.tracked.context.get("personal", ())
        return self.masked | frozenset(name for name in map(str, marked) if self.context.get(name) is None)

    def shown(self, name: str, value: Value | None) -> str | None:
        """A value as people may see it: a personal one is masked, one that was erased is said to be. None if none."""
        if value is None:
            return MASKED if name in self.hidden else ERASED if self.erased else None
        return MASKED if name in self.personal else format_value(value)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One reference of a message: where it is now, if it is not settled, and what happened to it."""

    sequence: int
    service_id: int | None
    service: str | None
    instance: UUID | None
    copy: Copy | None
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A message with its copies and what came of it, read once for everything that is said of it."""

    message: KnownMessage
    deliveries: Sequence[Delivery]
    children: Sequence[Tracked]


def kept_back(message: KnownMessage, deliveries: Sequence[Delivery]) -> tuple[str | None, str | None]:
    """(code, reason) why it was suspended at once, if so."""
    if message.tracked is not None:
        return message.tracked.code, message.tracked.reason
    copies = [each.copy for each in deliveries if each.copy is not None and each.copy.kind in ("receive", "unrouted")]
    return (copies[0].code, copies[0].reason) if copies else (None, None)


def look_at(agent: Agent, id_: UUID) -> LookedAt:
    """Raises UsageError if nothing is known of it."""
    message = find_message(agent, id_)
    deliveries = deliveries_of(agent, [message])[message.id]
    orchestrations = [number for number, *_ in agent.configuration.orchestrations()]
    return LookedAt(message, deliveries, came_of(agent, message, deliveries, orchestrations))


def came_of(
    agent: Agent, message: KnownMessage, deliveries: Sequence[Delivery], orchestrations: Collection[int]
) -> Sequence[Tracked]:
    """What a message led to. Nobody looks for it where ports have only taken the message, as of most messages."""
    may_publish = any(
        event.event in _PUBLISHING or event.service_id in orchestrations
        for delivery in deliveries
        for event in delivery.events
    )
    return agent.track.children(message.id) if may_publish else ()


def find_message(agent: Agent, id_: UUID) -> KnownMessage:
    """Raises UsageError if nothing is known of it."""
    found = find_messages(agent, [id_])
    if not found:
        raise unknown_message(str(id_))
    return found[0]


def find_messages(agent: Agent, ids: Sequence[UUID]) -> list[KnownMessage]:
    """Those of which anything is known, in the order in which they were published."""
    tracked = {each.id: each for each in agent.track.find(ids, personal=agent.access.rights().allow("bodies", None))}
    stored = agent.whereabouts.stored(ids)
    personal = agent.configuration.personal()
    known = [
        known_message(tracked.get(id_), stored.get(id_), personal)
        for id_ in dict.fromkeys(ids)
        if id_ in tracked or id_ in stored
    ]
    return sorted(known, key=lambda each: (each.at, each.id))


def known_message(
    tracked: Tracked | None, stored: StoredMessage | None, personal: frozenset[str] = frozenset()
) -> KnownMessage:
    """At least one of the two is there. `personal` are the properties whose values are not shown."""
    if tracked is not None:
        marked = personal.union(map(str, tracked.context.get("personal", ())))
        return KnownMessage(tracked.id, tracked.at, _context(tracked.context), marked, tracked, stored)
    assert stored is not None
    try:
        context = Context.from_json(stored.context)
    except ContextError:
        context = Context({})
    masked = frozenset(name for name in personal if context.get(name) == MASKED)
    if masked:
        promoted = {name: value for name, value in context.promoted.items() if name not in masked}
        written = {name: value for name, value in context.written.items() if name not in masked}
        context = Context(promoted, written, context.labels)
    return KnownMessage(stored.id, stored.at, context, personal, None, stored, masked)


def deliveries_of(agent: Agent, messages: Sequence[KnownMessage]) -> dict[UUID, list[Delivery]]:
    """The references of each message, in the order of their numbers."""
    tracked = [each.tracked for each in messages if each.tracked is not None]
    events = agent.track.events(tracked) if tracked else []
    copies = _copies(agent, messages)
    names = agent.configuration.service_names()
    happened: dict[tuple[UUID, int], list[Event]] = {}
    for event in events:
        happened.setdefault((event.message_id, event.sequence), []).append(event)
    located = {(copy.message_id, copy.sequence): copy for copy in copies}
    found: dict[UUID, list[Delivery]] = {each.id: [] for each in messages}
    for message, sequence in sorted(happened.keys() | located.keys(), key=lambda each: each[1]):
        own, copy = happened.get((message, sequence), []), located.get((message, sequence))
        found[message].append(_delivery(sequence, names, copy, own))
    return found


def _delivery(sequence: int, names: Mapping[int, str], copy: Copy | None, events: Sequence[Event]) -> Delivery:
    service = _first(event.service_id for event in events)
    instance = _first(event.instance for event in reversed(events))
    if copy is not None:
        service, instance = service or copy.service_id, copy.instance or instance
    return Delivery(sequence, service, None if service is None else names.get(service), instance, copy, tuple(events))


def _copies(agent: Agent, messages: Sequence[KnownMessage]) -> list[Copy]:
    """By the numbers of their references where these are known; a message that is tracked no longer is looked for."""
    ranges: dict[UUID, tuple[int, int]] = {}
    for each in messages:
        if each.tracked is not None:
            numbers = [number for pair in (each.tracked.references, *each.tracked.rerouted) for number in pair]
            ranges[each.id] = (min(numbers), max(numbers))
    unknown = [each.id for each in messages if each.id not in ranges]
    found = agent.whereabouts.locate(unknown) if unknown else []
    if ranges:
        within = (min(first for first, _ in ranges.values()), max(last for _, last in ranges.values()))
        instances = {route.instance for each in messages for route in each.routes if route.instance is not None}
        routed = {route.subscription_id for each in messages for route in each.routes}
        services = sorted({service for service, _ in agent.subscriptions.services(routed).values()})
        rerouted = any(each.tracked is not None and each.tracked.rerouted for each in messages)
        found += agent.whereabouts.locate(
            list(ranges),
            references=within,
            services=None if rerouted else services,
            instances=sorted(instances),
        )
    return found


def subscriptions_of(agent: Agent, message: KnownMessage) -> list[SubscriptionVersion]:
    """The subscriptions of its day: of the epoch in which it was matched, or of the time when it was stored."""
    if message.tracked is not None:
        return agent.subscriptions.versions(epoch=message.tracked.epoch)
    return agent.subscriptions.versions(at=message.at)


def _context(document: Mapping[str, Any]) -> Context:
    try:
        return Context.from_json(msgspec.json.encode(document))
    except ContextError:
        return Context({})


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _text(value: Value | None) -> str | None:
    return None if value is None else str(value)
