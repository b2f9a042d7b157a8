"""The router: which subscriptions of an epoch a message's promoted properties satisfy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crossdock.message.property import Value
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter


@dataclass(frozen=True, slots=True)
class Subscription:
    """A filter on behalf of a service; its host's queue gets the reference, or the suspended queue if it is stopped."""

    id: int
    service_id: int
    service: str
    host_id: int
    state: Literal["started", "stopped"]
    priority: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class Router:
    """All subscriptions of one epoch. Every matching subscription is given once, however many of its groups match."""

    epoch: int
    subscriptions: Sequence[Subscription]
    matcher: Matcher

    def route(self, promoted: Mapping[str, Value]) -> list[Subscription]:
        return [each for each in self.subscriptions if self.matcher.matches(each.filter, promoted)]
