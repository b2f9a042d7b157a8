"""Running instances of orchestrations: list them, show one in full, resume, terminate or cancel it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from uuid import UUID

from msgspec import DecodeError

from crossdock.administration.condition import filter_of, search_personal
from crossdock.administration.rows import row_of
from crossdock.errors import ContextError, UsageError
from crossdock.message.context import Context
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.instance_rows import InstanceDetail, InstanceRow
from crossdock.orchestration.history import (
    Activated,
    Arrived,
    AtomicDone,
    Cancelled,
    CommandDigest,
    Continued,
    Event,
    RequestFailed,
    Resumed,
    TimerFired,
    decode_record,
)
from crossdock.subscription.explain import MASKED
from crossdock.subscription.match import Matcher

SHORT_VERSION = 12
STATES = ("running", "suspended", "cancelling")


@dataclass(frozen=True, slots=True)
class Instance:
    """A running instance. `last_line` is the line of its source at which it waits, or failed.

    `correlated` are the values of the properties by which it is given messages, by the name of each correlation.
    """

    id: str
    orchestration: str
    host: str
    state: str
    waits_for: str
    correlated: Mapping[str, Mapping[str, str]]
    since: datetime
    version: str
    last_line: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Did:
    """Something that the code did, and the line of its source."""

    what: str
    line: str


@dataclass(frozen=True, slots=True)
class ShownStep:
    """One step: when it was, what had happened, what the code did then. `at` is None if its record is unreadable."""

    number: int
    at: datetime | None
    events: Sequence[str]
    did: Sequence[Did]


@dataclass(frozen=True, slots=True)
class InstanceMessage:
    """A message that the instance was given. `step` is the step in which the code took it; None if it did not yet."""

    id: str
    type: str | None
    step: int | None


@dataclass(frozen=True, slots=True)
class DescribedInstance:
    """Everything that is known of an instance. `version` is the whole digest of its code."""

    id: str
    orchestration: str
    host: str
    state: str
    version: str
    activated_at: datetime
    since: datetime
    waits_for: str
    correlated: Mapping[str, Mapping[str, str]]
    last_line: str
    code: str | None
    reason: str | None
    traceback: str | None
    timers: Sequence[datetime]
    steps: Sequence[ShownStep]
    messages: Sequence[InstanceMessage]


@dataclass(frozen=True, slots=True)
class InstanceResult:
    """What became of an instance that a command was about."""

    id: str
    orchestration: str
    result: str


def list_instances(
    agent: Agent, *, state: str | None = None, where: str | None = None, personal: bool = False
) -> list[Instance]:
    """The oldest first. `where` is a filter on what the activating message has promoted. Raises UsageError.

    A filter on `personal` properties has to say so, and is recorded.
    """
    if state is not None and state not in STATES:
        raise UsageError(f"No instance is ever {state!r}. Choose one of: {', '.join(STATES)}.")
    filter_ = None if where is None else filter_of(agent, where)
    search_personal(agent, filter_, agreed=personal, of="instances")
    matcher = Matcher(agent.configuration.case_sensitive())
    masked = agent.configuration.personal()
    return [
        shown_instance(row, masked)
        for row in agent.instances.list()
        if (state is None or row.state == state) and (filter_ is None or matcher.matches(filter_, row.promoted))
    ]


def describe_instance(agent: Agent, id_: str) -> DescribedInstance:
    """Raises UsageError if there is none."""
    found = agent.instances.describe(UUID(id_))
    if found is None:
        raise UsageError(f"There is no instance {id_}: it has ended, or never was. See: crossdock get instances")
    row = found.row
    return row_of(
        DescribedInstance,
        row,
        id=str(row.id),
        waits_for=row.waiting_for,
        correlated=_correlated(row, agent.configuration.personal()),
        last_line=row.line,
        timers=[due for number, due in found.timers if number],
        steps=list(_steps(found)),
        messages=[InstanceMessage(str(message), _type(context), step) for message, step, context in found.messages],
    )


def _type(context: str | None) -> str | None:
    """The type of a stored message, if its context is there and can be read."""
    try:
        kind = None if context is None else Context.from_json(context).get("BTS.MessageType")
    except ContextError:
        return None
    return None if kind is None else str(kind)


def resume_instances(agent: Agent, ids: Sequence[str]) -> list[InstanceResult]:
    """Let suspended instances go on; what failed is tried again."""
    return _done(agent, ids, agent.instances.resume, "resumed", "is not suspended, or its application is undeployed")


def terminate_instances(agent: Agent, ids: Sequence[str]) -> list[InstanceResult]:
    """End instances without running their code."""
    return _done(agent, ids, agent.instances.terminate, "terminated", "has ended meanwhile")


def cancel_instances(agent: Agent, ids: Sequence[str]) -> list[InstanceResult]:
    """Let instances undo what they have done, and end."""
    return _done(agent, ids, agent.instances.cancel, "is being cancelled", "cannot be cancelled: it is, or has ended")


def _done(
    agent: Agent, ids: Sequence[str], verb: Callable[[Sequence[UUID]], Iterable[UUID]], done: str, otherwise: str
) -> list[InstanceResult]:
    wanted = [UUID(text) for text in ids]
    found = {row.id: row for row in agent.instances.list(ids=wanted)}
    missing = [id_ for id_ in wanted if id_ not in found]
    if missing:
        raise UsageError(f"There is no instance {missing[0]}: it has ended, or never was. See: crossdock get instances")
    changed = set(verb(wanted))
    rights = agent.access.rights() if len(changed) < len(found) else None

    def result(id_: UUID) -> str:
        if id_ in changed or rights is None or rights.allow("operator", found[id_].application):
            return done if id_ in changed else otherwise
        return f"refused: you may not act on application {found[id_].application}"

    return [InstanceResult(str(id_), found[id_].orchestration, result(id_)) for id_ in dict.fromkeys(wanted)]


def _correlated(row: InstanceRow, personal: frozenset[str]) -> dict[str, dict[str, str]]:
    """The values by which it is correlated, as people may see them: personal ones are masked."""
    return {
        correlation: {name: MASKED if name in personal else value for name, value in values.items()}
        for correlation, values in row.correlated.items()
    }


def shown_instance(row: InstanceRow, personal: frozenset[str]) -> Instance:
    shown = {"id": str(row.id), "waits_for": row.waiting_for, "version": row.version[:SHORT_VERSION]}
    return row_of(Instance, row, **shown, correlated=_correlated(row, personal), last_line=row.line)


# History


def _steps(found: InstanceDetail) -> Iterator[ShownStep]:
    for number, stored in enumerate(found.records, start=1):
        try:
            record = decode_record(stored)
        except DecodeError as error:
            yield ShownStep(number, None, [f"this record cannot be read: {error}"], [])
            continue
        yield ShownStep(
            number,
            record.at,
            [_shown_event(each) for each in record.events],
            [_shown(each) for each in record.commands],
        )


def _shown(command: CommandDigest) -> Did:
    return Did(f"{command.kind} {command.name}".strip(), command.line)


def _shown_event(event: Event) -> str:
    match event:
        case Activated(message=message):
            return f"activated by message {message}"
        case Arrived(message=message, request=int(request)):
            return f"message {message} answers request {request}"
        case Arrived(message=message, correlation=correlation):
            return f"message {message} arrived for {correlation}"
        case TimerFired(number=number):
            return f"timer {number} was due"
        case RequestFailed(request=request, reason=reason):
            return f"request {request} failed: {reason}"
        case AtomicDone(number=number, error=None):
            return f"atomic {number} was done"
        case AtomicDone(number=number, error=error):
            assert error is not None
            return f"atomic {number} failed: {error.text}"
        case Cancelled():
            return "cancelled"
        case Resumed():
            return "resumed"
        case Continued():
            return "continued with new arguments"
        case _:
            assert_never(event)
