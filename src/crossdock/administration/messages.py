"""Messages that were published, also those that are delivered: search them, and show one in full."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from crossdock.administration.audit import since_of
from crossdock.administration.condition import filter_of, search_personal
from crossdock.administration.known_message import (
    Delivery,
    KnownMessage,
    LookedAt,
    deliveries_of,
    kept_back,
    known_message,
    look_at,
)
from crossdock.administration.message_state import STATES, state_of, worst
from crossdock.errors import UsageError
from crossdock.message.property import Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.track import Tracked
from crossdock.subscription.predicate import Filter, Group, Operator, Predicate

_TYPE = "BTS.MessageType"
_PAGE = 500
_LOOKED_AT = 20_000


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message in a list. `state` is that of the copy that most needs looking at; `ports` were given one."""

    id: str
    type: str | None
    received_at: datetime
    location: str | None
    state: str
    ports: Sequence[str]
    application: str | None
    source: str | None
    code: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """The newest first. `before` goes on where the page ends; None at the end. `looked_at` messages were compared."""

    messages: Sequence[MessageRow]
    before: str | None
    looked_at: int


@dataclass(frozen=True, slots=True)
class DescribedPart:
    """A part of a message that is still in the box."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class DescribedCopy:
    """One copy of a message, and where it is."""

    port: str | None
    state: str
    at: datetime | None
    attempt: int | None
    code: str | None
    reason: str | None
    instance: str | None


@dataclass(frozen=True, slots=True)
class DescribedMessage:
    """Everything that is known of a message, except why. Personal values are masked.

    `in_box`: it is still stored, with its parts. `parents` are what published it: messages, and an instance.
    """

    id: str
    type: str | None
    received_at: datetime
    location: str | None
    source: str | None
    application: str | None
    state: str
    code: str | None
    reason: str | None
    labels: Sequence[str]
    tracked: bool
    in_box: bool
    promoted: Mapping[str, str]
    written: Mapping[str, str]
    parts: Sequence[DescribedPart]
    copies: Sequence[DescribedCopy]
    parents: Sequence[str]
    children: int


def list_messages(
    agent: Agent,
    *,
    where: str | None = None,
    type_: str | None = None,
    port: str | None = None,
    state: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: int = 100,
    before: str | None = None,
    personal: bool = False,
    look_at: int = _LOOKED_AT,
) -> MessagePage:
    """The newest first. `where` is a filter on promoted properties; `since` and `until` are times, or how long ago.

    `port` is a send port, an orchestration or a receive location. Whoever searches by a `personal` property has to say
    so, and is recorded in the audit. A page ends where it is full, or `look_at` messages were compared with the port
    and the state. Raises UsageError for what cannot be asked.
    """
    if state is not None and state not in STATES:
        raise UsageError(f"No message is ever {state!r}. Choose one of: {', '.join(STATES)}.")
    condition = _condition(None if where is None else filter_of(agent, where), type_)
    personal = search_personal(agent, condition, agreed=personal)
    now = agent.configuration.clock()
    search = partial(
        agent.track.search,
        condition,
        personal=personal,
        since=_time("--since", since, now),
        until=_time("--until", until, now),
    )
    names = _Names(agent)
    given = None if port is None else names.subscriptions_of(port)
    found: list[MessageRow] = []
    looked_at = 0
    while looked_at < look_at:
        size = limit - len(found) if (port, state) == (None, None) else _PAGE
        page = search(limit=size, before=before)
        rows = names.rows(page.messages)
        kept = [
            place
            for place, (tracked, row) in enumerate(zip(page.messages, rows, strict=True))
            if (given is None or _concerns(tracked, str(port), given)) and (state is None or row.state == state)
        ]
        looked_at += len(rows)
        room = limit - len(found)
        found += [rows[place] for place in kept[:room]]
        if len(kept) > room:  # the page goes on behind the last that is shown: the next one begins there
            cut = search(limit=kept[room - 1] + 1, before=before)
            return MessagePage(found, cut.before, looked_at)
        before = page.before
        if before is None or len(found) >= limit:
            break
    return MessagePage(found, before, looked_at)


def describe_message(agent: Agent, id_: UUID) -> DescribedMessage:
    """Raises UsageError if nothing is known of it."""
    return described(look_at(agent, id_))


def described(looked: LookedAt) -> DescribedMessage:
    """The same of a message that was looked at already."""
    message, deliveries = looked.message, looked.deliveries
    tracked, stored = message.tracked, message.stored
    return DescribedMessage(
        str(message.id),
        message.type,
        message.at,
        message.location,
        message.source,
        None if tracked is None else tracked.application,
        _state(message, deliveries),
        *kept_back(message, deliveries),
        sorted(message.context.labels),
        tracked is not None,
        stored is not None,
        _shown(message, message.context.promoted),
        _shown(message, message.context.written),
        [] if stored is None else [DescribedPart(name, size) for name, size in stored.parts],
        [_copy(each) for each in deliveries],
        [] if tracked is None else [str(each) for each in tracked.parents],
        len(looked.children),
    )


class _Names:
    """Which subscriptions had which names; kept for the pages of one list."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._services = {number: name for number, (_, name) in agent.subscriptions.services().items()}

    def subscriptions_of(self, port: str) -> set[int]:
        """All that a service of this name ever had; none if it is a receive location. Raises UsageError."""
        found = {number for number, name in self._services.items() if name == port}
        if not found and port not in {each.name for each in self._agent.configuration.list_locations()}:
            raise UsageError(
                f"There is no send port, orchestration or receive location {port!r}. "
                "See: crossdock get ports|orchestrations|locations"
            )
        return found

    def rows(self, messages: Sequence[Tracked]) -> list[MessageRow]:
        known = [known_message(each, None) for each in messages]
        deliveries = deliveries_of(self._agent, known) if known else {}
        return [self._row(each, deliveries[each.id]) for each in known]

    def _row(self, message: KnownMessage, deliveries: Sequence[Delivery]) -> MessageRow:
        tracked = message.tracked
        assert tracked is not None
        given = [self._services.get(route.subscription_id) for route in message.routes if route.instance is None]
        ports = dict.fromkeys(
            [*(name for name in given if name), *(each.service for each in deliveries if each.service)]
        )
        return MessageRow(
            str(message.id),
            message.type,
            message.at,
            message.location,
            _state(message, deliveries),
            list(ports),
            tracked.application,
            message.source,
            tracked.code,
            tracked.reason,
        )


def _concerns(tracked: Tracked, port: str, subscriptions: Collection[int]) -> bool:
    return tracked.location == port or any(route.subscription_id in subscriptions for route in tracked.routes)


def _state(message: KnownMessage, deliveries: Sequence[Delivery]) -> str:
    """That of the copy that most needs looking at."""
    states = [state_of(each).state for each in deliveries]
    if len(states) < len(message.routes):
        states.append("settled")
    return worst(states) or ("settled" if message.stored is None else "stored")


def _copy(delivery: Delivery) -> DescribedCopy:
    state = state_of(delivery)
    return DescribedCopy(
        delivery.service, state.state, state.at, state.attempt, state.code, state.reason, state.instance
    )


def _shown(message: KnownMessage, values: Mapping[str, Value]) -> dict[str, str]:
    return {name: message.shown(name, value) or "" for name, value in sorted(values.items())}


def _condition(where: Filter | None, type_: str | None) -> Filter | None:
    """Both together; every group of a filter holds for messages of this type only."""
    if type_ is None:
        return where
    wanted = Predicate(_TYPE, Operator.EQUAL, type_)
    groups: Sequence[Group] = ((),) if where is None else where.groups
    return Filter(tuple((wanted, *group) for group in groups))


def _time(option: str, text: str | None, now: datetime) -> datetime | None:
    """A time as it is written, or so long ago: `2d`, `90m`."""
    if text is None:
        return None
    when = since_of(text, option)
    return when if isinstance(when, datetime) else now - when
