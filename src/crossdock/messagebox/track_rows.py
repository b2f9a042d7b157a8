"""What readers of the track are given: plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Route:
    """One reference that was given. `instance`: it went to this running instance, or began it."""

    subscription_id: int
    instance: UUID | None = None


@dataclass(frozen=True, slots=True)
class Tracked:
    """A message as it was published, or as it was suspended on its way in.

    `context` is the stored document: `promoted`, `written` and perhaps `labels`; a list `personal` has the names of
    properties whose values are kept apart. `refusals` are subscriptions with the labels that their host lacked. `code`
    and `reason` say why the message was suspended at once, if so. `parents` are the messages that were settled by the
    step or the answer which published it, and the instance of that step. `references` are the lowest and the highest
    number of a reference of its transaction, `rerouted` those of later ones that gave it references again.
    """

    id: UUID
    at: datetime
    epoch: int
    application: str | None
    location: str | None
    source: str | None
    labels: tuple[str, ...]
    context: Mapping[str, Any]
    routes: tuple[Route, ...]
    refusals: tuple[tuple[int, tuple[str, ...]], ...]
    code: str | None
    reason: str | None
    parents: tuple[UUID, ...]
    references: tuple[int, int]
    rerouted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """What became of one reference. `attempt` counts this one, where it was one.

    `event` is delivered, answered, replaced, retried, postponed, suspended, resumed, terminated, given-back, died,
    held, completed, discarded or edited.
    """

    at: datetime
    event: str
    message_id: UUID
    host_id: int
    sequence: int
    service_id: int | None
    attempt: int | None
    claimed_at: datetime | None
    code: str | None
    reason: str | None
    instance: UUID | None


@dataclass(frozen=True, slots=True)
class Found:
    """Messages, the newest first; `before` goes on where they end, and is None at the end of the window."""

    messages: Sequence[Tracked]
    before: str | None
