"""One send port in full: its filter, what waits at it and why, and what is suspended there by code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from crossdock.administration.suspended import Selection, SuspendedRow
from crossdock.errors import UsageError
from crossdock.messagebox.overview import PortOverview, SubscriptionOverview, WaitingOverview

_LOOKED_AT = 1_000
_NEXT = 5


class Lists(Protocol):
    """The lists that it is made of: those of the service, or of a console."""

    def ports(self) -> Sequence[PortOverview]: ...
    def subscriptions(self) -> Sequence[SubscriptionOverview]: ...
    def waiting(self, *, port: str | None = None, limit: int = 100) -> Sequence[WaitingOverview]: ...
    def suspended(
        self, selection: Selection | None = None, *, limit: int | None = None, after: int = 0
    ) -> Sequence[SuspendedRow]: ...


@dataclass(frozen=True, slots=True)
class DescribedPort:
    """A send port. `filter` is None while it is not enlisted, and empty if it gets only what names it.

    `codes` counts the oldest 1,000 deliveries that are suspended there. `next` are those that are due first.
    """

    name: str
    application: str
    host: str
    state: str
    filter: str | None
    delivered: int
    ready: int
    waiting: int
    suspended: int
    blocked: str | None
    codes: Mapping[str, int]
    next: Sequence[WaitingOverview]


def describe_port(lists: Lists, name: str) -> DescribedPort:
    """Raises UsageError if there is no such port."""
    ports = {each.name: each for each in lists.ports()}
    if name not in ports:
        close = get_close_matches(name, ports, 1)
        meant = f" Did you mean the send port {close[0]!r}?" if close else ""
        raise UsageError(
            f"{name!r} is not a message id, nor an instance, nor a send port.{meant} "
            "List them with: crossdock get messages|instances|ports"
        )
    port = ports[name]
    chosen = Selection(port=name, everything=True)
    found = lists.suspended(chosen, limit=_LOOKED_AT) if port.suspended else ()
    return DescribedPort(
        port.name,
        port.application,
        port.host,
        port.state,
        next((each.filter for each in lists.subscriptions() if (each.name, each.kind) == (name, "activation")), None),
        port.delivered,
        port.ready,
        port.waiting,
        port.suspended,
        port.blocked,
        dict(Counter(each.code for each in found).most_common()),
        lists.waiting(port=name, limit=_NEXT) if port.waiting or port.blocked else (),
    )
