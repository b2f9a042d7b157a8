"""The journey of a message as a picture: boxes from left to right, from its source to what came of it.

This module decides what is in the boxes and where they are. `templates/journey.html` draws them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from textwrap import wrap

from crossdock.administration.trace import Traced, TraceEvent
from crossdock.console.shown import file, short, tone, took

_WIDTH, _GAP_X, _GAP_Y = 207, 34, 14
_HEAD, _LINE, _FOOT = 46, 16, 10
_MOST_BOXES, _MOST_LINES, _MOST_CHARACTERS, _REASON_LINES = 80, 5, 32, 3
_STATES = {"retried": "waiting", "postponed": "waiting", "resumed": "queued", "given-back": "queued", "died": "queued"}
_PUBLISHING = ("answered", "replaced", "edited")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of small text. `at` is shown as a time in front of it."""

    text: str
    tone: str = ""
    at: datetime | None = None
    full: str | None = None


@dataclass(slots=True)
class Box:
    """A box, with those to its right. `word` is its state."""

    title: str
    word: str | None = None
    lines: Sequence[Line] = ()
    href: str | None = None
    kind: str = ""
    full: str | None = None
    children: list[Box] = field(default_factory=list)
    x: int = 0
    y: int = 0

    @property
    def height(self) -> int:
        return _HEAD + _LINE * len(self.lines) + (_FOOT if self.lines else 0)

    @property
    def tone(self) -> str:
        return "this" if self.kind == "this" else tone(self.word)


@dataclass(frozen=True, slots=True)
class Edge:
    path: str
    tone: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes that have their places, and the lines between them. `left_out` boxes are not shown."""

    boxes: Sequence[Box]
    edges: Sequence[Edge]
    width: int
    height: int
    box_width: int
    left_out: int


def picture_of(traced: Traced) -> Picture:
    """Everything from the source of the message to the last that came of it, as far as there is room."""
    counted = _Count()
    message = _message(traced, counted, is_this=True)
    received = next((each for each in traced.events if each.event == "received"), None)
    root = message
    if received is not None:
        lines = [Line(cut(file(received.source)), full=received.source)] if received.source else []
        root = Box(cut(received.location, 26) or "received", "received", lines, kind="source", full=received.location)
        root.children.append(message)
    bottom = _place(root, 0, 0)
    boxes = list(_all(root))
    edges = [edge for box in boxes for edge in _edges(box)]
    width = max(box.x for box in boxes) + _WIDTH
    return Picture(boxes, edges, width + 4, bottom + 4, _WIDTH, counted.left_out)


class _Count:
    """How many boxes there are, and how many had no room."""

    def __init__(self) -> None:
        self.boxes = 0
        self.left_out = 0

    def room(self) -> bool:
        if self.boxes >= _MOST_BOXES:
            self.left_out += 1
            return False
        self.boxes += 1
        return True


def _message(traced: Traced, counted: _Count, *, is_this: bool = False) -> Box:
    counted.boxes += 1
    counted.left_out += traced.left_out
    first = next((each for each in traced.events if each.event in ("published", "unrouted", "suspended")), None)
    word = "published" if first is None or first.port is not None else first.event
    lines = [Line(f"message {short(traced.id)}", at=traced.at)]
    if first is not None and first.copies is not None:
        lines.append(Line(f"matched {first.copies} subscription{'' if first.copies == 1 else 's'}"))
    if first is not None and first.code is not None and first.port is None:
        lines += [Line(first.code, "bad"), *_reason_lines(first.reason or "", "")]
    if traced.again:
        lines.append(Line("shown elsewhere in the picture"))
    box = Box(
        cut(traced.type, 26) or "message",
        word,
        lines,
        None if is_this else f"/messages/{traced.id}",
        "this" if is_this else "message",
        traced.type,
    )
    copies = list(_copies(traced, counted))
    box.children = [copy for copy, _ in copies]
    for child in traced.children:
        if counted.room():
            counted.boxes -= 1
            _owner(box, copies, child).children.append(_child(child, counted))
    return box


def _child(traced: Traced, counted: _Count) -> Box:
    if traced.kind == "message":
        return _message(traced, counted)
    counted.boxes += 1
    counted.left_out += traced.left_out
    lines = [Line("instance", at=traced.at)] + ([Line("shown elsewhere in the picture")] if traced.again else [])
    box = Box(cut(traced.type, 26) or "orchestration", None, lines, f"/instances/{traced.id}", "instance", traced.type)
    box.children = [_message(each, counted) for each in traced.children if counted.boxes < _MOST_BOXES]
    counted.left_out += len(traced.children) - len(box.children)
    return box


def _owner(message: Box, copies: Sequence[tuple[Box, Sequence[TraceEvent]]], child: Traced) -> Box:
    """The copy from which a child came, where that can be told; else the message."""
    if child.kind == "instance":
        found = [box for box, events in copies if any(each.instance == child.id for each in events)]
    else:
        found = [box for box, events in copies if any(each.event in _PUBLISHING for each in events)]
    return found[0] if found else message


def _copies(traced: Traced, counted: _Count) -> Iterator[tuple[Box, Sequence[TraceEvent]]]:
    grouped: dict[int, list[TraceEvent]] = {}
    for event in traced.events:
        if event.sequence is not None and event.port is not None:
            grouped.setdefault(event.sequence, []).append(event)
    for events in grouped.values():
        if counted.room():
            last = events[-1]
            word = _STATES.get(last.event, last.event)
            early = len(events) - _MOST_LINES
            lines = [Line(f"{early} earlier events")] if early > 0 else []
            lines += [_event_line(each) for each in events[-_MOST_LINES:]]
            if last.code and tone(word) in ("bad", "wait"):
                lines.append(Line(cut(last.code), tone(word)))
            if last.reason and tone(word) in ("bad", "wait"):
                lines += _reason_lines(last.reason, tone(word))
            yield (
                Box(cut(last.port, 26), word, lines, f"#why-{last.port}", "copy", last.port),
                events,
            )


def _event_line(event: TraceEvent) -> Line:
    attempt = f"try {event.attempt} " if event.attempt else ""
    spent = f", {took((event.at - event.claimed_at).total_seconds())}" if event.claimed_at is not None else ""
    text = f"{attempt}{event.event}{spent}"
    return Line(cut(text, 25), tone(event.event), event.at, f"{text} {event.code or ''}".strip())


def _reason_lines(reason: str, tone_: str) -> Sequence[Line]:
    """The beginning of a reason; all of it is shown to who points at it."""
    wrapped = wrap(reason, _MOST_CHARACTERS, max_lines=_REASON_LINES, placeholder="…")
    return [Line(text, tone_, full=reason) for text in wrapped]


def cut(text: str | None, most: int = _MOST_CHARACTERS) -> str:
    """As much of a text as a box has room for."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _place(box: Box, depth: int, top: int) -> int:
    """Put a box and all to its right below `top`; gives where they end."""
    box.x = 2 + depth * (_WIDTH + _GAP_X)
    below = top
    for child in box.children:
        below = _place(child, depth + 1, below) + _GAP_Y
    if not box.children:
        box.y = top + 2
        return box.y + box.height
    below -= _GAP_Y
    middle = (box.children[0].y + box.children[-1].y + box.children[-1].height) // 2
    box.y = max(top + 2, middle - box.height // 2)
    return max(below, box.y + box.height)


def _all(box: Box) -> Iterator[Box]:
    yield box
    for child in box.children:
        yield from _all(child)


def _edges(box: Box) -> Iterator[Edge]:
    for child in box.children:
        x1, y1, x2, y2 = box.x + _WIDTH, box.y + 23, child.x, child.y + 23
        middle = (x1 + x2) // 2
        yield Edge(f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}", "calm" if child.kind == "this" else child.tone)
