"""The routes as a graph: receive locations, message types, and the ports and orchestrations that get them.

Edges come from two sources. Recent messages say what was matched, how often and when last. Filters say which types a
port asks for, also where no message came.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from crossdock.administration.by_page import Location, Port, shown_locations, shown_ports
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.track import Tracked

ANY_TYPE = "any type"
UNKNOWN_TYPE = "without a type"
_LOOKED_AT = 500
_MOST = 40


@dataclass(frozen=True, slots=True)
class Edge:
    """What went from a location to a type, or from a type to a port, among recent messages; `count` 0: nothing did."""

    source: str
    target: str
    count: int
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Routes:
    """`ports_left_out` and so on: there are more than are shown. `looked_at` recent messages, since `since`."""

    locations: Sequence[Location]
    types: Sequence[str]
    ports: Sequence[Port]
    received: Sequence[Edge]
    matched: Sequence[Edge]
    looked_at: int
    since: datetime | None
    seconds: float
    left_out: bool


def read_routes(agent: Agent, *, application: str | None = None) -> Routes:
    """Of one application, or of all; the first few of each, and what went through recently."""
    sample = agent.samples.newest()
    ports = shown_ports(agent.paged.services(limit=_MOST + 1, application=application), sample)
    locations = shown_locations(agent.paged.locations(limit=_MOST + 1, application=application), sample)
    messages = agent.track.search(None, limit=_LOOKED_AT).messages
    left_out = len(ports) > _MOST or len(locations) > _MOST
    ports, locations = ports[:_MOST], locations[:_MOST]
    received, matched = _traffic(agent, messages)
    known = {each.name for each in ports}
    here = {each.name for each in locations}
    into = {pair: seen for pair, seen in received.items() if pair[0] in here}
    out = {pair: seen for pair, seen in matched.items() if pair[1] in known}
    for port in ports:
        for type_ in port.types or ([ANY_TYPE] if port.filter else []):
            if type_ != ANY_TYPE or not any(target == port.name for _, target in out):
                out.setdefault((type_, port.name), (0, None))
    types = dict.fromkeys([type_ for _, type_ in into] + [type_ for type_, _ in out])
    times = [each.at for each in messages]
    now = agent.configuration.clock()
    return Routes(
        locations,
        sorted(types)[:_MOST],
        ports,
        [Edge(*pair, *seen) for pair, seen in sorted(into.items())],
        [Edge(*pair, *seen) for pair, seen in sorted(out.items())],
        len(messages),
        min(times, default=None),
        max((now - min(times)).total_seconds(), 1.0) if times else 1.0,
        left_out or len(types) > _MOST,
    )


_Seen = dict[tuple[str, str], tuple[int, datetime | None]]


def _traffic(agent: Agent, messages: Sequence[Tracked]) -> tuple[_Seen, _Seen]:
    """From locations to types, and from types to services, with how often and when last."""
    names = {number: name for number, (_, name) in agent.subscriptions.services().items()}
    received: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
    matched: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
    for message in messages:
        type_ = _type(message)
        if message.location is not None:
            received[message.location, type_].append(message.at)
        for name in {names.get(route.subscription_id) for route in message.routes}:
            if name is not None:
                matched[type_, name].append(message.at)
    return _counted(received), _counted(matched)


def _counted(seen: dict[tuple[str, str], list[datetime]]) -> _Seen:
    return {pair: (len(times), max(times)) for pair, times in seen.items()}


def _type(message: Tracked) -> str:
    found = None
    for kept in ("promoted", "written"):
        found = found or (message.context.get(kept) or {}).get("BTS.MessageType")
    return str(found) if found else UNKNOWN_TYPE
