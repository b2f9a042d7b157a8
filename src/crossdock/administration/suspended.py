"""What waits for a person: list it by page, by group, or as a selection. Acts on it are in `deliveries.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from crossdock.administration.audit import since_of
from crossdock.administration.condition import filter_of, personal_names, search_personal
from crossdock.administration.message_ids import read_message_ids
from crossdock.administration.rows import row_of
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import SuspendedMessage
from crossdock.subscription.match import Matcher

PAGE = 500


@dataclass(frozen=True, slots=True)
class SuspendedRow:
    """A suspended delivery, or a message without one. What cannot be read of it is None, and its reason says so.

    `sequence` is its number, by which the next page is asked for.
    """

    id: str
    kind: str
    code: str
    reason: str
    source_file: str | None
    receive_location: str | None
    port: str | None
    type: str | None
    bytes: int
    suspended_at: datetime | None
    nearest_misses: Sequence[Mapping[str, Any]] | None
    attempt: int
    application: str | None
    sequence: int


@dataclass(frozen=True, slots=True)
class SuspendedGroup:
    """How many are suspended that have something in common, since when, and the oldest of them."""

    group: str | None
    count: int
    first: datetime | None
    last: datetime | None
    sample: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which suspended deliveries are meant: of these messages, at a port, with a code, of a type, whose promoted
    properties a filter matches, since when. `everything`: all of them, also where a message has several. `sequences`:
    of the deliveries of these messages only those with these numbers. `personal`: the filter may ask for personal
    properties, which is recorded.
    """

    ids: Sequence[str] = ()
    port: str | None = None
    code: str | None = None
    type: str | None = None
    where: str | None = None
    since: str | None = None
    everything: bool = False
    sequences: Set[int] = frozenset()
    personal: bool = False

    @property
    def is_by_id(self) -> bool:
        return bool(self.ids)

    def __str__(self) -> str:
        """As it was written on the command line."""
        names = ("port", "code", "type", "where", "since")
        said = [f"--{name} {getattr(self, name)}" for name in names if getattr(self, name) is not None]
        flags = [flag for flag, given in (("--personal", self.personal), ("--all", self.everything)) if given]
        return " ".join([*self.ids, *said, *flags])

    @property
    def names_nothing(self) -> bool:
        wanted = (self.port, self.code, self.type, self.where, self.since)
        return not (self.ids or self.everything or any(each is not None for each in wanted))


def list_suspended(
    agent: Agent, selection: Selection | None = None, *, limit: int | None = None, after: int = 0
) -> list[SuspendedRow]:
    """The oldest first. The next page is `after` the sequence of the last row."""
    found = select(agent, selection or Selection(everything=True), after=after)
    return [shown(row) for row in islice(found, limit)]


def select(agent: Agent, selection: Selection, *, after: int = 0) -> Iterator[SuspendedMessage]:
    """Page by page, the oldest first. Raises UsageError for a filter or a time that cannot be asked for."""
    fits = fitting(agent, selection)
    ids = read_message_ids(agent, selection.ids) if selection.ids else None
    since = None if selection.since is None else since_of(selection.since)
    while page := agent.suspended.messages(
        ids=ids, limit=PAGE, after=after, port=selection.port, code=selection.code, since=since
    ):
        yield from (row for row in page if fits(row))
        after = page[-1].sequence


def list_groups(agent: Agent, by: str) -> list[SuspendedGroup]:
    """The largest first. Raises UsageError for what nothing can be grouped by."""
    found: dict[str | None, SuspendedGroup] = {}

    def add(name: str | None, count: int, first: datetime | None, last: datetime | None, sample: UUID) -> None:
        known = found.get(name)
        if known is None:
            found[name] = SuspendedGroup(name, count, first, last, str(sample))
            return
        firsts = [each for each in (known.first, first) if each is not None]
        lasts = [each for each in (known.last, last) if each is not None]
        oldest = known.sample if first is None or (known.first is not None and known.first <= first) else str(sample)
        found[name] = SuspendedGroup(
            name, known.count + count, min(firsts, default=None), max(lasts, default=None), oldest
        )

    if by == "type":
        for row in select(agent, Selection(everything=True)):
            add(row.type, 1, row.suspended_at, row.suspended_at, row.id)
    elif by in ("code", "port"):
        for group in agent.suspended.groups():
            add(getattr(group, by), group.count, group.first, group.last, group.sample)
    else:
        raise UsageError(f"Nothing is grouped by {by!r}. Choose one of: code, port, type.")
    return sorted(found.values(), key=lambda group: -group.count)


def told(agent: Agent, selection: Selection) -> Selection:
    """As everybody may hear of it: of a condition on personal properties only their names, since the audit is kept."""
    if selection.where is None:
        return selection
    try:
        names = personal_names(agent, filter_of(agent, selection.where))
    except UsageError:
        return replace(selection, where="a condition that cannot be read")
    return replace(selection, where=f"a condition on {', '.join(names)}") if names else selection


def shown(row: SuspendedMessage) -> SuspendedRow:
    return row_of(SuspendedRow, row, id=str(row.id))


def fitting(agent: Agent, selection: Selection) -> Callable[[SuspendedMessage], bool]:
    """What the database cannot say: it does not read contexts. A search by personal properties is recorded."""
    filter_ = None if selection.where is None else filter_of(agent, selection.where)
    search_personal(agent, filter_, agreed=selection.personal, of="suspended messages")
    matcher = None if filter_ is None else Matcher(agent.configuration.case_sensitive())

    def fits(row: SuspendedMessage) -> bool:
        if selection.type is not None and row.type != selection.type:
            return False
        return filter_ is None or matcher is None or matcher.matches(filter_, row.promoted or {})

    return fits
