"""The routes as a picture: receive locations, message types and subscribers in three columns, and what goes between.

This module places the boxes and lines. `templates/graph.html` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from crossdock.administration.by_page import Location, Port
from crossdock.administration.routes import Edge, Routes
from crossdock.console.journey import cut
from crossdock.console.shown import age, number, query, rate

_WIDTH, _GAP_X, _HEIGHT, _GAP_Y, _TOP = 240, 92, 44, 12, 28
_BUSY, _BUSIEST = 0.1, 0.5  # of all messages that were looked at


@dataclass(frozen=True, slots=True)
class GraphBox:
    """A box with its place. `detail` is a line below its title."""

    title: str
    full: str
    detail: str
    word: str | None
    href: str
    x: int
    y: int

    @property
    def middle(self) -> int:
        return self.y + _HEIGHT // 2


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A line from one box to another; `says` how much went there, and when last."""

    path: str
    kind: str
    says: str


@dataclass(frozen=True, slots=True)
class Graph:
    boxes: Sequence[GraphBox]
    edges: Sequence[GraphEdge]
    headings: Sequence[tuple[str, int]]
    width: int
    height: int
    box_width: int
    box_height: int


def graph_of(routes: Routes, now: datetime) -> Graph:
    """Three columns, each ordered so that few lines cross."""
    types = _ordered(routes.types, routes.received, [each.name for each in routes.locations], forward=True)
    ports = _ordered([each.name for each in routes.ports], routes.matched, types, forward=True)
    known_ports = {each.name: each for each in routes.ports}
    columns = [
        [_location_box(each, place) for place, each in enumerate(routes.locations)],
        [_type_box(each, place, routes) for place, each in enumerate(types)],
        [_port_box(known_ports[name], place) for place, name in enumerate(ports)],
    ]
    placed = [{box.full: box for box in column} for column in columns]
    edges = [
        *_lines(routes.received, placed[0], placed[1], routes, now),
        *_lines(routes.matched, placed[1], placed[2], routes, now),
    ]
    longest = max((len(column) for column in columns), default=0)
    names = ("Receive locations", "Message types", "Subscribers")
    return Graph(
        [box for column in columns for box in column],
        sorted(edges, key=lambda edge: edge.kind == "unused", reverse=True),
        [(name, _x(place)) for place, name in enumerate(names)],
        _x(2) + _WIDTH + 4,
        _TOP + max(longest, 1) * (_HEIGHT + _GAP_Y),
        _WIDTH,
        _HEIGHT,
    )


def _x(column: int) -> int:
    return 2 + column * (_WIDTH + _GAP_X)


def _y(place: int) -> int:
    return _TOP + place * (_HEIGHT + _GAP_Y)


def _ordered(names: Sequence[str], edges: Sequence[Edge], before: Sequence[str], *, forward: bool) -> list[str]:
    """By the middle of what leads there."""
    places = {name: place for place, name in enumerate(before)}

    def middle(name: str) -> tuple[float, str]:
        found = [places[each.source] for each in edges if each.target == name and each.source in places]
        return (sum(found) / len(found) if found else len(places), name)

    return sorted(names, key=middle) if forward else list(names)


def _location_box(location: Location, place: int) -> GraphBox:
    detail = location.address or location.adapter or ""
    word = "enabled" if location.enabled else "disabled"
    return GraphBox(
        cut(location.name, 30),
        location.name,
        _end_of(detail, 36),
        word,
        f"/messages{query(port=location.name)}",
        _x(0),
        _y(place),
    )


def _end_of(address: str, most: int) -> str:
    """Addresses differ at their end."""
    return address if len(address) <= most else f"…{address[-most + 1 :]}"


def _type_box(name: str, place: int, routes: Routes) -> GraphBox:
    came = sum(each.count for each in routes.received if each.target == name)
    went = max((each.count for each in routes.matched if each.source == name), default=0)
    count = came or went
    detail = f"{number(count)} of the last {number(routes.looked_at)} messages" if count else "none lately"
    return GraphBox(cut(name, 30), name, detail, None, f"/messages{query(type_=name)}", _x(1), _y(place))


def _port_box(port: Port, place: int) -> GraphBox:
    sample = port.sample
    detail = port.kind
    if sample is not None:
        waiting = sample.ready + sample.claimed + sample.waiting
        told = [f"{rate(sample.delivered_per_second)} / s", f"{number(waiting)} waiting"]
        if sample.suspended + sample.suspended_instances:
            told.append(f"{number(sample.suspended + sample.suspended_instances)} suspended")
        detail = ", ".join(told)
    return GraphBox(
        cut(port.name, 30), port.name, detail, port.state, f"/ports/try{query(port=port.name)}", _x(2), _y(place)
    )


def _lines(
    edges: Sequence[Edge], left: dict[str, GraphBox], right: dict[str, GraphBox], routes: Routes, now: datetime
) -> list[GraphEdge]:
    made = []
    for edge in edges:
        if edge.source in left and edge.target in right:
            a, b = left[edge.source], right[edge.target]
            x1, x2 = a.x + _WIDTH, b.x
            middle = (x1 + x2) // 2
            path = f"M{x1} {a.middle}C{middle} {a.middle} {middle} {b.middle} {x2} {b.middle}"
            made.append(GraphEdge(path, _kind(edge, routes), _says(edge, routes, now)))
    return made


def _kind(edge: Edge, routes: Routes) -> str:
    if not edge.count:
        return "unused"
    share = edge.count / max(routes.looked_at, 1)
    return "used busiest" if share >= _BUSIEST else "used busy" if share >= _BUSY else "used"


def _says(edge: Edge, routes: Routes, now: datetime) -> str:
    if edge.last is None:
        return f"{edge.source} to {edge.target}: no match lately"
    return (
        f"{edge.source} to {edge.target}: {number(edge.count)} messages, "
        f"{rate(edge.count / routes.seconds)} / s, last match {age((now - edge.last).total_seconds())} ago"
    )
