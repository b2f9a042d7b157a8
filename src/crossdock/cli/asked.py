"""Whom a command asks: the MessageBox itself, or with `--url` a console that may be on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from crossdock.cli.options import settings_of

if TYPE_CHECKING:
    from crossdock.administration.deliveries import Saved
    from crossdock.administration.edit import Edited
    from crossdock.administration.erase import Erased
    from crossdock.administration.publish import PublishedMessage
    from crossdock.administration.samples import Sample
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
    from crossdock.client import Client

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="CROSSDOCK_URL", help="Ask the console there, instead of the MessageBox itself."),
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="CROSSDOCK_TOKEN", help="Our API token there; rather in the variable."),
]


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
    def choose(self, action: Any, selection: Selection) -> Any: ...
    def resume(self, what: Any, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]: ...
    def terminate(self, what: Any, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]: ...
    def publish(
        self, files: Sequence[Path], *, location: str | None, to: str | None, properties: Sequence[str]
    ) -> Iterator[PublishedMessage]: ...
    def save(self, ids: Sequence[str], folder: Path) -> Sequence[Saved]: ...
    def editable(self, id_: str, port: str | None) -> Any: ...
    def edit(self, what: Any, *, body: bytes | None, properties: Sequence[str]) -> Edited: ...
    def erase(self, where: str, *, preview: bool = True) -> Erased: ...
    def sample(self) -> Sample: ...
    def grant(self, what: str, user: str, application: str | None = None, /) -> None: ...
    def revoke(self, what: str, user: str, application: str | None = None, /) -> None: ...
    @property
    def tokens(self) -> Any: ...


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
    from crossdock.cli.remote import Remote

    with at_console(url, token, home=home, database=database, person=person, reason=reason) as client:
        yield Remote(client)


@contextmanager
def at_console(
    url: str,
    token: str | None,
    *,
    home: Path | None,
    database: str | None,
    person: str | None = None,
    reason: str | None = None,
) -> Iterator[Client]:
    """A client of the console at this address. UsageError for options that say where a MessageBox is."""
    from crossdock.client import Client
    from crossdock.errors import UsageError

    if home is not None or database is not None or person is not None:
        raise UsageError(
            "--url asks a console, which knows its MessageBox and you: leave --home, --database and --as out."
        )
    if not token:
        raise UsageError("--url needs --token TOKEN, or CROSSDOCK_TOKEN. Make one with: crossdock token create NAME")
    with Client(url, token, reason=settings_of(reason=reason).reason) as client:
        yield client
