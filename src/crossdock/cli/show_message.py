"""How messages are printed: lists, one in full, why it went where it did, and its journey as a tree."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.tree import Tree

from crossdock.cli.output import Format, columns_of, console, print_json, print_rows, short, table_of, time
from crossdock.printable import printable

if TYPE_CHECKING:
    from crossdock.administration.explain import ExplainedSubscription
    from crossdock.administration.messages import DescribedMessage, MessagePage
    from crossdock.administration.service import ExplainedMessage, Traced
    from crossdock.administration.trace import TraceEvent

_MISSES = 20
_SENTENCES = {
    "queued": "waits in the queue{host}",
    "claimed": "is being delivered{attempt}{since}",
    "waiting": "waits for{next}{at}",
    "suspended": "is suspended{since}",
    "unrouted": "is unrouted{since}",
    "held": "is held by its instance",
    "delivered": "was delivered{attempt}{at}",
    "completed": "was taken by its instance, which has ended{at}",
    "terminated": "was terminated{at}",
    "discarded": "was left over when its instance ended{at}",
    "replaced": "was replaced by what was published in its place{at}",
    "settled": "is settled",
    "refused": "was refused",
    "not given": "was not given",
    "unknown": "is not in the box: it was delivered, was ended, or was never given",
}


def print_messages(page: MessagePage, format_: Format) -> None:
    """A list, in the width of a terminal; JSON has all of each. More is said on standard error."""
    shown: Sequence[Any] = page.messages
    if format_ is Format.TABLE:
        shown = [
            {
                "id": row.id,
                "type": row.type,
                "received": time(row.received_at),
                "location": row.location,
                "state": row.state,
                "ports": list(row.ports),
            }
            for row in page.messages
        ]
    print_rows(shown, format_, empty="There are no such messages.")
    if page.before is not None:
        sys.stderr.write(f"There may be more. Go on with: --before {quote(page.before)}\n")


def print_explanation(explained: ExplainedMessage, format_: Format, *, in_full: bool) -> None:
    """Who got it, who did not and why; `in_full` with every predicate."""
    if format_ is Format.JSON:
        print_json(columns_of(explained))
        return
    _say(_head(explained, in_full=in_full))
    if explained.reason is not None:
        _say(f"It was suspended at once ({explained.code}): {explained.reason}")
    given = [row for row in explained.subscriptions if row.matched or row.state != "not matched"]
    missed = [row for row in explained.subscriptions if row not in given]
    _table([{"subscription": row.name, "copy": _copy(row)} for row in given])
    if in_full:
        for row in explained.subscriptions:
            _table([{"group": group, "holds": holds, "predicate": text} for group, holds, text in _predicates(row)])
        return
    nearest = {miss.name: place for place, miss in enumerate(explained.nearest)}
    missed.sort(key=lambda row: (nearest.get(row.name, len(nearest)), len(row.failed), row.name))
    rows = [{"not matched": row.name, "because": _because(row)} for row in missed[:_MISSES]]
    _table(rows)
    if len(missed) > _MISSES:
        _say(f"... and {len(missed) - _MISSES:,} more that did not match; see them all with -o json")


def print_trace(traced: Traced, format_: Format) -> None:
    """A tree of messages and instances, below each what happened to it."""
    if format_ is Format.JSON:
        print_json(columns_of(traced))
        return
    tree = Tree(_node(traced), guide_style="dim")
    _grow(tree, traced)
    console().print(tree, markup=False, highlight=False)


def print_message(described: DescribedMessage, format_: Format) -> None:
    """What it is, its properties, its parts and its copies."""
    columns = columns_of(described)
    if format_ is Format.JSON:
        print_json(columns)
        return
    parts = ("promoted", "written", "parts", "copies", "parents")
    head: dict[str, Any] = {name: value for name, value in columns.items() if name not in parts and value is not None}
    head |= {"received_at": time(described.received_at), "parents": [short(each) for each in described.parents]}
    _table([{"": name.replace("_", " "), " ": value} for name, value in head.items()])
    for title, values in (("Promoted", described.promoted), ("Written", described.written)):
        _table([{"property": name, "value": value} for name, value in values.items()], title)
    _table([columns_of(part) for part in described.parts], "Parts")
    _table([{"port": each.port, "copy": _copy(each)} for each in described.copies], "Copies")
    short_id = short(described.id)
    _say(f"Why: crossdock explain {short_id}. Its journey: crossdock trace {short_id}")


def _head(explained: ExplainedMessage, *, in_full: bool) -> str:
    kind = f" of type {explained.type}" if explained.type else ""
    place = f" at {explained.location}" if explained.location else ""
    matched = sum(row.matched for row in explained.subscriptions)
    day = "of now" if explained.filters == "now" else "of its day" if explained.tracked else "of the time it was stored"
    source = "" if explained.tracked else " It is not tracked, or not any more: this is what the box says."
    if explained.erased:
        source = " Its properties were erased: what matched is what was decided then."
    verb = "matches" if matched == 1 else "match"
    said = f"Of {len(explained.subscriptions):,} subscriptions {day}, {matched:,} {verb}."
    if in_full:
        row = explained.subscriptions[0]
        said = f"{row.name} {'matches' if row.matched else 'does not match'}, by its filter {day}."
    return f"Message {short(explained.id)}{kind} was published{place} on {time(explained.received_at)}. {said}{source}"


def _copy(row: Any) -> str:
    """Where a copy is, as a sentence without its subject."""
    host = f" of host {row.host}" if getattr(row, "host", None) else ""
    attempt = f" at attempt {row.attempt}" if row.attempt else ""
    at = f" at {time(row.at)}" if row.at else ""
    facts = {
        "host": host,
        "attempt": attempt,
        "next": f" attempt {row.attempt}" if row.attempt else " its time",
        "at": at,
        "since": at.replace(" at ", " since ", 1),
    }
    said = _SENTENCES.get(row.state, row.state).format(**facts)
    instance = f" ({row.instance})" if row.instance else ""
    code = f" [{row.code}]" if row.code else ""
    reason = f": {row.reason}" if row.reason else ""
    return f"{said}{instance}{code}{reason}"


def _because(row: ExplainedSubscription) -> str:
    if row.only_addressed:
        return "it has no filter: only messages that name it go there"
    return "; ".join(f"{each.predicate} (is {'absent' if each.actual is None else each.actual})" for each in row.failed)


def _predicates(row: ExplainedSubscription) -> Iterator[tuple[int, str, str]]:
    for number, group in enumerate(row.groups, start=1):
        for each in group:
            actual = "absent" if each.actual is None else each.actual
            yield number, "yes" if each.holds else "no", f"{each.predicate} (is {actual})"


def _node(traced: Traced) -> str:
    if traced.kind == "instance":
        said = f"instance {traced.id} of {traced.type}"
    else:
        said = f"{traced.type or 'message'} {short(traced.id)}  {time(traced.at)}"
    return printable(f"{said} (shown above)" if traced.again else said)


def _grow(tree: Tree, traced: Traced) -> None:
    by_copy: dict[int | None, list[TraceEvent]] = {}
    for event in traced.events:
        by_copy.setdefault(event.sequence, []).append(event)
    for events in sorted(by_copy.values(), key=lambda each: each[0].port or ""):  # always in the same order
        if events[0].port is None:
            for event in events:
                tree.add(printable(_event(event)))
        else:
            branch = tree.add(printable(str(events[0].port)))
            for count, event in _folded(events):
                branch.add(printable(_event(event) + (f"  {count:,} times" if count > 1 else "")))
    for child in traced.children:
        _grow(tree.add(_node(child)), child)
    if traced.left_out:
        tree.add(f"... and {traced.left_out:,} more")


def _folded(events: Sequence[TraceEvent]) -> Iterator[tuple[int, TraceEvent]]:
    """What a host put back untried, several times in a row, is one line: the last of them."""
    for kind, each in groupby(events, key=lambda event: event.event):
        same = list(each)
        if kind == "given-back":
            yield len(same), same[-1]
        else:
            yield from ((1, event) for event in same)


def _event(event: TraceEvent) -> str:
    facts = [
        f"attempt {event.attempt}" if event.attempt else "",
        f"at {event.location}" if event.location else "",
        f"from {event.source}" if event.source else "",
        f"{event.copies:,} {'copy' if event.copies == 1 else 'copies'}" if event.copies is not None else "",
        f"instance {event.instance}" if event.instance else "",
        f"[{event.code}]" if event.code else "",
        event.reason or "",
    ]
    return "  ".join([time(event.at), event.event, *(fact for fact in facts if fact)])


def _table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    if rows:
        console().print()
        console().print(table_of(rows, title))


def _say(sentence: str) -> None:
    console().print(printable(sentence), markup=False, highlight=False)
