"""A console as a command asks it: with the methods of the service, over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from crossdock.administration.deliveries import check_named, nothing_matches, write_body
from crossdock.administration.message_ids import is_instance_id
from crossdock.administration.publish import contents
from crossdock.administration.service import MessagePage
from crossdock.errors import UsageError

if TYPE_CHECKING:
    from crossdock.administration.deliveries import Saved
    from crossdock.administration.edit import Edited
    from crossdock.administration.operating import Preview
    from crossdock.administration.publish import PublishedMessage
    from crossdock.administration.service import (
        ArtefactTransition,
        AuditRow,
        DescribedInstance,
        DescribedMessage,
        Instance,
        InstanceResult,
        LocationOverview,
        Outcome,
        PortOverview,
        Selection,
        StateVerb,
        SubscriptionOverview,
        SuspendedGroup,
        SuspendedRow,
        WaitingOverview,
    )
    from crossdock.administration.tokens import CreatedToken, TokenRow
    from crossdock.client import Client, Page

Row = TypeVar("Row")
_PAGE = 1_000
_LOOK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Previewed:
    """What a console says that a selection means."""

    preview: Preview

    @property
    def total(self) -> int:
        return self.preview.total

    def rows(self, limit: int) -> Sequence[SuspendedRow]:
        return self.preview.sample[:limit]


@dataclass(frozen=True, slots=True)
class Listed:
    """Suspended deliveries that a console has listed."""

    deliveries: Sequence[SuspendedRow]


@dataclass(frozen=True, slots=True)
class RemoteEditable:
    """A message that is to be edited. Its body is asked for when somebody wants to see it, which is recorded."""

    client: Client
    described: DescribedMessage
    port: str | None

    @property
    def suffix(self) -> str:
        return Path(self.described.source or "").suffix

    @property
    def body(self) -> bytes:
        return _body(self.client, self.described)


@dataclass(frozen=True, slots=True)
class RemoteTokens:
    """The API tokens of a console."""

    client: Client

    def list(self) -> Sequence[TokenRow]:
        return self.client.tokens()

    def create(
        self,
        name: str,
        role: Any,
        grants: Sequence[Any] = (),
        application: str | None = None,
        expires: str | None = None,
    ) -> CreatedToken:
        return self.client.create_token(name, role, grants=grants, application=application, expires=expires)

    def revoke(self, name: str) -> None:
        self.client.revoke_token(name)


class Remote:
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
        self.sample, self.erase = client.sample, client.erase
        self.grant, self.revoke = client.grant, client.revoke
        self.tokens = RemoteTokens(client)

    def ports(self) -> Sequence[PortOverview]:
        return _all(self._client.ports)

    def locations(self) -> Sequence[LocationOverview]:
        return _all(self._client.locations)

    def subscriptions(self) -> Sequence[SubscriptionOverview]:
        return _all(self._client.subscriptions)

    def instances(
        self, *, state: str | None = None, where: str | None = None, personal: bool = False
    ) -> Sequence[Instance]:
        return _all(lambda **page: self._client.instances(state=state, where=where, personal=personal, **page))

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
        page = self._client.messages(cursor=before, limit=min(limit, _PAGE), **asked)
        return MessagePage(page.items, page.next, page.looked_at)

    def describe(self, id_: str) -> DescribedInstance | DescribedMessage:
        return self._client.instance(id_) if is_instance_id(id_) else self._client.message(id_)

    def enable(self, location: str) -> bool:
        return self._client.enable(location).changed

    def disable(self, location: str) -> bool:
        return self._client.disable(location).changed

    def means_application(self, name: str, *, receiving: bool) -> bool:
        """Whether nothing but an application has this name. The lists are read only if an application has it."""
        if all(each.name != name for each in self._client.applications()):
            return False
        if receiving:
            return all(each.name != name for each in self.locations())
        ports, groups = (each.name for each in self.ports()), (each.name for each in self._client.groups())
        return name not in (*ports, *groups, *(each.name for each in self._client.orchestrations()))

    def change_application(self, verb: StateVerb, application: str) -> Sequence[ArtefactTransition]:
        return self._client.change_application(application, verb)

    def enable_application(self, application: str, *, enabled: bool) -> Sequence[ArtefactTransition]:
        return self._client.change_application(application, "enable" if enabled else "disable")

    def cancel(self, ids: Sequence[str]) -> Sequence[InstanceResult]:
        return [self._client.cancel_instance(id_) for id_ in ids]

    def publish(
        self, files: Sequence[Path], *, location: str | None, to: str | None, properties: Sequence[str]
    ) -> Iterator[PublishedMessage]:
        """Each file by itself, under its name. The files are those of this machine."""
        for file, content in contents(files):
            made = self._client.publish(content, name=file.name, location=location, to=to, properties=properties)
            yield from (replace(each, file=str(file)) for each in made)

    def save(self, ids: Sequence[str], folder: Path) -> list[Saved]:
        """Into a folder of this machine."""
        if instances := [id_ for id_ in ids if is_instance_id(id_)]:
            raise UsageError(
                f"{instances[0]} is an instance, whose history is not given over the network. Save it where the "
                "MessageBox is, without --url"
            )
        found = {described.id: described for described in map(self._client.message, ids)}
        return [
            write_body(id_, described.source or "", [_body(self._client, described)], folder)
            for id_, described in found.items()
        ]

    def editable(self, id_: str, port: str | None) -> RemoteEditable:
        described = self._client.message(id_)
        if not any(each.state == "suspended" and port in (None, each.port) for each in described.copies):
            there = "" if port is None else f" at {port!r}"
            raise UsageError(f"Message {id_} is not suspended{there}. List them with: crossdock get suspended")
        return RemoteEditable(self._client, described, port)

    def edit(self, what: RemoteEditable, *, body: bytes | None, properties: Sequence[str]) -> Edited:
        return self._client.edit(what.described.id, port=what.port, body=body, properties=properties)

    def choose(self, action: Literal["resume", "terminate", "save"], selection: Selection) -> Any:
        """What the verb of this name takes, if it is not to save."""
        if action == "save":  # which takes the right to read bodies, and not to act
            check_named(selection)
            rows = _all(lambda **page: self._client.suspended(**_wanted(selection), **page))
            if not rows:
                raise nothing_matches()
            return Listed(rows)
        chosen = {"ids": selection.ids, "everything": selection.everything, **_wanted(selection)}
        return Previewed(self._client.preview(action, **chosen))

    def resume(self, what: Previewed, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]:
        return self._executed(what, rate, stop or Event())

    def terminate(self, what: Previewed, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]:
        return self._executed(what, rate, stop or Event())

    def _executed(self, what: Previewed, rate: float | None, stop: Event) -> Iterator[Outcome]:
        """The outcome of each as soon as the console tells of it; it is cancelled there once `stop` is set."""
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


def _body(client: Client, described: DescribedMessage) -> bytes:
    if not described.parts:
        raise UsageError(
            f"The bytes of message {described.id} are gone: it is settled, and its body is not tracked. What happened "
            f"to it: crossdock trace {described.id}"
        )
    return client.part(described.id, described.parts[0].name)


def _wanted(selection: Selection) -> dict[str, Any]:
    return {
        "port": selection.port,
        "code": selection.code,
        "type_": selection.type,
        "where": selection.where,
        "since": selection.since,
        "personal": selection.personal,
    }


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
