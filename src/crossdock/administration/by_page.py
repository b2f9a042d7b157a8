"""What pages show of ports, locations, instances and suspensions: by page, with figures of the newest sample.

Nothing here counts a queue. What was counted is some seconds old, and says how old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from crossdock.administration.audit import since_of
from crossdock.administration.condition import filter_of, search_personal
from crossdock.administration.difference import printable_definition
from crossdock.administration.instances import STATES, Instance, shown_instance
from crossdock.administration.rows import row_of
from crossdock.administration.suspended import PAGE, Selection, SuspendedRow, fitting, list_suspended, shown
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.overview import InstanceOverview
from crossdock.messagebox.paged import LocationEntry, ServiceEntry, SuspendedStep
from crossdock.messagebox.sample import HostSample, LocationSample, Sample, ServiceSample
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Operator

_TYPE = "BTS.MessageType"
_STEPS = 24
_GROUPED = 20_000  # suspended references that are looked at to group them: so many take some 30 ms
_GROUPED_BY_TYPE = 1_000  # for a type the context has to be read
_SCANNED = 20  # pages of instances that a filter goes through before it says how far it came


@dataclass(frozen=True, slots=True)
class Port:
    """A send port or an orchestration. `types` are the message types that its filter asks for; none: any.

    `sample` is how it was some seconds ago; None if it is not among the busiest, or nobody has looked yet.
    """

    name: str
    application: str
    host: str
    kind: str
    state: str
    ordered: bool
    two_way: bool
    adapter: str | None
    address: str | None
    filter: str
    types: Sequence[str]
    sample: ServiceSample | None


@dataclass(frozen=True, slots=True)
class Location:
    """A receive location; `sample` as of a port."""

    name: str
    application: str
    host: str
    enabled: bool
    adapter: str | None
    address: str | None
    sample: LocationSample | None


@dataclass(frozen=True, slots=True)
class Host:
    """A host and its living instances; `sample` as of a port."""

    name: str
    labels: Sequence[str]
    instances: Sequence[InstanceOverview]
    sample: HostSample | None


@dataclass(frozen=True, slots=True)
class InstancePage:
    """The oldest first. `after` goes on where the page ends; None at the end. `looked_at` instances were compared."""

    instances: Sequence[Instance]
    after: str | None
    looked_at: int


@dataclass(frozen=True, slots=True)
class SuspendedPage:
    """The oldest first. `after` goes on where the page ends; None at the end. `looked_at` were compared."""

    rows: Sequence[SuspendedRow]
    after: int | None
    looked_at: int


@dataclass(frozen=True, slots=True)
class SuspendedTrend:
    """What is suspended that has something in common. `steps` are how many came in each hour, the oldest first."""

    group: str | None
    count: int
    first: datetime | None
    last: datetime | None
    sample: str
    steps: Sequence[int]


@dataclass(frozen=True, slots=True)
class SuspendedTrends:
    """The largest first. `complete`: all that is suspended was counted, and not only so many of the newest."""

    groups: Sequence[SuspendedTrend]
    complete: bool
    looked_at: int


def port_page(
    agent: Agent,
    *,
    limit: int = 50,
    after: str = "",
    application: str | None = None,
    state: str | None = None,
    search: str | None = None,
) -> list[Port]:
    """By name; the next page is `after` the last name."""
    found = agent.paged.services(limit=limit, after=after, application=application, state=state, search=search)
    return shown_ports(found, agent.samples.newest())


def find_ports(agent: Agent, names: Sequence[str]) -> list[Port]:
    return shown_ports(agent.paged.find_services(names), agent.samples.newest())


def location_page(
    agent: Agent, *, limit: int = 50, after: str = "", application: str | None = None, search: str | None = None
) -> list[Location]:
    """By name; likewise."""
    found = agent.paged.locations(limit=limit, after=after, application=application, search=search)
    return shown_locations(found, agent.samples.newest())


def living_hosts(agent: Agent) -> list[Host]:
    """With what each had to do when the newest sample was taken."""
    sample = agent.samples.newest()
    known = {} if sample is None else {each.name: each for each in sample.box.hosts}
    return [row_of(Host, each, sample=known.get(each.name)) for each in agent.paged.hosts()]


def shown_ports(found: Sequence[ServiceEntry], sample: Sample | None) -> list[Port]:
    known = {} if sample is None else {each.name: each for each in sample.details.services}
    return [_port(each, known) for each in found]


def shown_locations(found: Sequence[LocationEntry], sample: Sample | None) -> list[Location]:
    known = {} if sample is None else {each.name: each for each in sample.details.locations}
    return [row_of(Location, each, **_place(each), sample=known.get(each.name)) for each in found]


def _place(entry: ServiceEntry | LocationEntry) -> dict[str, str | None]:
    return {"adapter": entry.definition.get("adapter"), "address": printable_definition(entry.definition)}


def _port(entry: ServiceEntry, known: Mapping[str, ServiceSample]) -> Port:
    types = {
        str(each.value)
        for group in entry.filter.groups
        for each in group
        if each.property == _TYPE and each.operator is Operator.EQUAL
    }
    kind = "orchestration" if entry.class_ == "orchestration" else "port"
    shown = {"kind": kind, "filter": str(entry.filter), "types": sorted(types), "sample": known.get(entry.name)}
    return row_of(Port, entry, **_place(entry), **shown)


def instance_page(
    agent: Agent,
    *,
    limit: int = 50,
    after: str | None = None,
    state: str | None = None,
    orchestration: str | None = None,
    where: str | None = None,
    personal: bool = False,
) -> InstancePage:
    """`where` is a filter on what the activating message has promoted, `personal` as of `list_instances`.

    Raises UsageError for what cannot be asked.
    """
    if state is not None and state not in STATES:
        raise UsageError(f"No instance is ever {state!r}. Choose one of: {', '.join(STATES)}.")
    filter_ = None if where is None else filter_of(agent, where)
    search_personal(agent, filter_, agreed=personal, of="instances")
    matcher = Matcher(agent.configuration.case_sensitive())
    masked = agent.configuration.personal()
    last = None if after is None else _uuid(after)
    found: list[Instance] = []
    looked_at = 0
    size = limit + 1 if filter_ is None else 500
    for _ in range(_SCANNED):
        page = agent.paged.instances(limit=size, after=last, state=state, orchestration=orchestration)
        for row in page:
            if len(found) == limit:
                return InstancePage(found, str(last), looked_at)
            looked_at, last = looked_at + 1, row.id
            if filter_ is None or matcher.matches(filter_, row.promoted):
                found.append(shown_instance(row, masked))
        if len(page) < size:
            return InstancePage(found, None, looked_at)
    return InstancePage(found, str(last), looked_at)


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not where a page of instances ends.") from error


def suspended_page(
    agent: Agent, selection: Selection, *, limit: int = 50, after: int = 0, look_at: int = 5_000
) -> SuspendedPage:
    """The oldest first. A page ends where it is full, or `look_at` were compared with what the selection asks for."""
    fits = fitting(agent, selection)
    since = None if selection.since is None else since_of(selection.since)
    found: list[SuspendedRow] = []
    looked_at, size = 0, limit + 1 if selection.type is None and selection.where is None else PAGE
    while looked_at < look_at:
        page = agent.suspended.messages(limit=size, after=after, port=selection.port, code=selection.code, since=since)
        for row in page:
            if len(found) == limit:
                return SuspendedPage(found, after, looked_at)
            looked_at, after = looked_at + 1, row.sequence
            if fits(row):
                found.append(shown(row))
        if len(page) < size:
            return SuspendedPage(found, None, looked_at)
    return SuspendedPage(found, after, looked_at)


def suspended_trends(agent: Agent, by: str) -> SuspendedTrends:
    """By code, port or type, with how many came in each of the last 24 hours. Raises UsageError."""
    if by == "type":
        rows = list_suspended(agent, Selection(everything=True), limit=_GROUPED_BY_TYPE)
        steps = _steps_by_type(agent, rows)
        looked_at, limit = len(rows), _GROUPED_BY_TYPE
    elif by in ("code", "port"):
        steps = [
            (getattr(each, by), each)
            for each in agent.paged.suspended_steps(step=timedelta(hours=1), steps=_STEPS, limit=_GROUPED)
        ]
        looked_at, limit = sum(each.count for _, each in steps), _GROUPED
    else:
        raise UsageError(f"Nothing is grouped by {by!r}. Choose one of: code, port, type.")
    found: dict[str | None, list[SuspendedStep]] = {}
    for name, step in steps:
        found.setdefault(name, []).append(step)
    groups = [_trend(name, each) for name, each in found.items()]
    return SuspendedTrends(sorted(groups, key=lambda group: -group.count), looked_at < limit, looked_at)


def _steps_by_type(agent: Agent, rows: Sequence[SuspendedRow]) -> list[tuple[str | None, SuspendedStep]]:
    now = agent.configuration.clock()
    return [
        (row.type, SuspendedStep(row.code, row.port, _hours(now - at), 1, at, at, UUID(row.id)))
        for row in rows
        for at in ([] if row.suspended_at is None else [row.suspended_at])
    ]


def _hours(age: timedelta) -> int:
    return max(0, min(int(age.total_seconds() // 3600), _STEPS))


def _trend(name: str | None, steps: Sequence[SuspendedStep]) -> SuspendedTrend:
    counts = [0] * _STEPS
    for each in steps:
        if each.step < _STEPS:
            counts[_STEPS - 1 - each.step] += each.count
    return SuspendedTrend(
        name,
        sum(each.count for each in steps),
        min(each.first for each in steps),
        max(each.last for each in steps),
        str(steps[0].sample),
        counts,
    )
