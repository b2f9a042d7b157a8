"""Whom a command asks: the MessageBox itself, or with `--url` a console that may be on another machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

import typer

from crossdock.cli.options import settings_of

if TYPE_CHECKING:
    from crossdock.administration.operating import Preview
    from crossdock.administration.service import (
        ArtefactTransition,
        AuditRow,
        DeployedApplication,
        DescribedInstance,
        DescribedMessage,
        ExplainedMessage,
        GivenRight,
        GroupOverview,
        HostOverview,
        Instance,
        InstanceResult,
        LocationOverview,
        MessagePage,
        OrchestrationOverview,
        Outcome,
        PortOverview,
        Selection,
        StateVerb,
        SubscriptionOverview,
        SuspendedGroup,
        SuspendedRow,
        Traced,
        Transition,
        WaitingOverview,
    )
    from crossdock.client import Client, Page
    from crossdock.errors import CrossdockError

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="CROSSDOCK_URL", help="Ask the console there, instead of the MessageBox itself."),
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="CROSSDOCK_TOKEN", help="Our API token there; rather in the variable."),
]
Row = TypeVar("Row")
Act = Literal["resume", "terminate"]
_PAGE = 1_000
_LOOK_SECONDS = 0.3


class Chosen(Protocol):
    """What a selection means."""

    @property
    def total(self) -> int: ...
    def rows(self, limit: int) -> Sequence[SuspendedRow]: ...


class Asked(Protocol):
    """What commands ask: `Administration` has all of it, and so has a console."""

    def applications(self) -> Sequence[DeployedApplication]: ...
    def ports(self) -> Sequence[PortOverview]: ...
    def groups(self) -> Sequence[GroupOverview]: ...
    def locations(self) -> Sequence[LocationOverview]: ...
    def orchestrations(self) -> Sequence[OrchestrationOverview]: ...
    def subscriptions(self) -> Sequence[SubscriptionOverview]: ...
    def hosts(self) -> Sequence[HostOverview]: ...
    def access(self) -> Sequence[GivenRight]: ...
    def instances(self, *, state: str | None = None, where: str | None = None) -> Sequence[Instance]: ...
    def waiting(self, *, port: str | None = None, limit: int = 100) -> Sequence[WaitingOverview]: ...
    def suspended(
        self, selection: Selection | None = None, *, limit: int | None = None, after: int = 0
    ) -> Sequence[SuspendedRow]: ...
    def suspended_groups(self, by: str) -> Sequence[SuspendedGroup]: ...
    def audit(
        self,
        *,
        since: str | None = None,
        person: str | None = None,
        action: str | None = None,
        limit: int = 100,
    ) -> Sequence[AuditRow]: ...
    def messages(self, **asked: Any) -> MessagePage: ...
    def describe(self, id_: str) -> DescribedInstance | DescribedMessage: ...
    def explain(self, id_: str, *, subscription: str | None = None, now: bool = False) -> ExplainedMessage: ...
    def trace(self, id_: str) -> Traced: ...
    def start(self, name: str) -> Transition: ...
    def stop(self, name: str) -> Transition: ...
    def enlist(self, name: str) -> Transition: ...
    def unenlist(self, name: str) -> Transition: ...
    def enable(self, location: str) -> bool: ...
    def disable(self, location: str) -> bool: ...
    def means_application(self, name: str, *, receiving: bool) -> bool: ...
    def change_application(self, verb: StateVerb, application: str) -> Sequence[ArtefactTransition]: ...
    def enable_application(self, application: str, *, enabled: bool) -> Sequence[ArtefactTransition]: ...
    def cancel(self, ids: Sequence[str]) -> Sequence[InstanceResult]: ...
    def choose(self, action: Act, selection: Selection) -> Any: ...
    def resume(self, what: Any, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]: ...
    def terminate(self, what: Any, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]: ...


@contextmanager
def asked(
    url: str | None,
    token: str | None,
    *,
    home: Path | None,
    database: str | None,
    person: str | None = None,
    reason: str | None = None,
) -> Iterator[Asked]:
    """The MessageBox of these options, or the console at this address."""
    if url is None:
        from crossdock.administration.service import opened

        with opened(settings_of(home=home, database=database, person=person, reason=reason)) as service:
            yield service
        return
    from crossdock.client import Client
    from crossdock.errors import UsageError

    if home is not None or database is not None or person is not None:
        raise UsageError(
            "--url asks a console, which knows its MessageBox and you: leave --home, --database and --as out."
        )
    if not token:
        raise UsageError("--url needs --token TOKEN, or CROSSDOCK_TOKEN. Make one with: crossdock token create NAME")
    with Client(url, token, reason=settings_of(reason=reason).reason) as client:
        yield _Remote(client)


@dataclass(frozen=True, slots=True)
class _Previewed:
    """What a console says that a selection means."""

    preview: Preview

    @property
    def total(self) -> int:
        return self.preview.total

    def rows(self, limit: int) -> Sequence[SuspendedRow]:
        return self.preview.sample[:limit]


class _Remote:
    """A console, with the methods of the service."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.applications = client.applications
        self.groups = client.groups
        self.orchestrations = client.orchestrations
        self.hosts = client.hosts
        self.access = client.access
        self.explain = client.explain
        self.trace = client.trace
        self.start, self.stop = client.start, client.stop
        self.enlist, self.unenlist = client.enlist, client.unenlist

    def ports(self) -> Sequence[PortOverview]:
        return _all(self._client.ports)

    def locations(self) -> Sequence[LocationOverview]:
        return _all(self._client.locations)

    def subscriptions(self) -> Sequence[SubscriptionOverview]:
        return _all(self._client.subscriptions)

    def instances(self, *, state: str | None = None, where: str | None = None) -> Sequence[Instance]:
        return _all(lambda **page: self._client.instances(state=state, where=where, **page))

    def waiting(self, *, port: str | None = None, limit: int = 100) -> Sequence[WaitingOverview]:
        return self._client.waiting(port=port, limit=min(limit, _PAGE))

    def suspended(
        self, selection: Selection | None = None, *, limit: int | None = None, after: int = 0
    ) -> Sequence[SuspendedRow]:
        wanted = {} if selection is None else _wanted(selection)
        rows = _all(lambda **page: self._client.suspended(**wanted, **page), limit if not after else None)
        return [row for row in rows if row.sequence > after][:limit]

    def suspended_groups(self, by: str) -> Sequence[SuspendedGroup]:
        return self._client.suspended_groups(by)  # type: ignore[arg-type] # the console refuses another

    def audit(
        self, *, since: str | None = None, person: str | None = None, action: str | None = None, limit: int = 100
    ) -> Sequence[AuditRow]:
        return _all(lambda **page: self._client.audit(since=since, person=person, action=action, **page), limit)

    def messages(self, *, before: str | None = None, limit: int = 100, **asked: Any) -> MessagePage:
        from crossdock.administration.service import MessagePage

        page = self._client.messages(cursor=before, limit=min(limit, _PAGE), **asked)
        return MessagePage(page.items, page.next, page.looked_at)

    def describe(self, id_: str) -> DescribedInstance | DescribedMessage:
        from crossdock.administration.message_ids import is_instance_id

        return self._client.instance(id_) if is_instance_id(id_) else self._client.message(id_)

    def enable(self, location: str) -> bool:
        return self._client.enable(location).changed

    def disable(self, location: str) -> bool:
        return self._client.disable(location).changed

    def means_application(self, name: str, *, receiving: bool) -> bool:  # noqa: ARG002
        """A console changes one thing at a time."""
        return False

    def change_application(self, verb: StateVerb, application: str) -> Sequence[ArtefactTransition]:
        raise _one_at_a_time(verb, application)

    def enable_application(self, application: str, *, enabled: bool) -> Sequence[ArtefactTransition]:
        raise _one_at_a_time("enable" if enabled else "disable", application)

    def cancel(self, ids: Sequence[str]) -> Sequence[InstanceResult]:
        return [self._client.cancel_instance(id_) for id_ in ids]

    def choose(self, action: Act, selection: Selection) -> _Previewed:
        chosen = {"ids": selection.ids, "everything": selection.everything, **_wanted(selection)}
        return _Previewed(self._client.preview(action, **chosen))

    def resume(self, what: _Previewed, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]:
        return self._executed(what, rate, stop or Event())

    def terminate(self, what: _Previewed, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]:
        return self._executed(what, rate, stop or Event())

    def _executed(self, what: _Previewed, rate: float | None, stop: Event) -> Iterator[Outcome]:
        """The outcome of each as soon as the console tells of it; it is cancelled there once `stop` is set."""
        from crossdock.errors import UsageError

        running, seen = self._client.execute(what.preview.token, rate=rate), 0
        while True:
            yield from running.outcomes
            seen += len(running.outcomes)
            if running.state != "running":
                break
            if stop.wait(_LOOK_SECONDS):
                self._client.cancel_operation(running.id)
            running = self._client.operation(running.id, after=seen)
        if running.problem is not None:
            raise UsageError(running.problem)


def _one_at_a_time(verb: str, name: str) -> CrossdockError:
    from crossdock.errors import UsageError

    return UsageError(f"A console does not {verb} application {name!r} as a whole: name one thing, or leave --url out.")


def _wanted(selection: Selection) -> dict[str, Any]:
    names = {"port": "port", "code": "code", "type": "type_", "where": "where", "since": "since"}
    return {option: getattr(selection, name) for name, option in names.items()}


def _all(fetch: Callable[..., Page[Row]], limit: int | None = None) -> list[Row]:
    """The rows of all pages, or the first so many."""
    rows: list[Row] = []
    cursor: str | None = None
    while limit is None or len(rows) < limit:
        page = fetch(limit=_PAGE if limit is None else min(_PAGE, limit - len(rows)), cursor=cursor)
        rows += page.items
        cursor = page.next
        if cursor is None:
            break
    return rows
