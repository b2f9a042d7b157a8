"""The client: a method for each operation of the API, with typed answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Self

import httpx

from crossdock.administration.edit import Edited
from crossdock.administration.erase import Erased
from crossdock.administration.explain import ExplainedMessage
from crossdock.administration.for_deploying import Applied, Plan, TriedFilter, Undeployed
from crossdock.administration.for_pages import TotalMinutes
from crossdock.administration.instances import DescribedInstance, Instance, InstanceResult
from crossdock.administration.messages import DescribedMessage
from crossdock.administration.operating import Action, ApplicationVerb, Enabled, Me, Operation, Preview
from crossdock.administration.publish import PublishedMessage
from crossdock.administration.samples import Sample
from crossdock.administration.service import (
    ArtefactTransition,
    AuditRow,
    DeployedApplication,
    GivenRight,
    GroupOverview,
    HostOverview,
    LocationOverview,
    OrchestrationOverview,
    PortOverview,
    SubscriptionOverview,
    SuspendedGroup,
    SuspendedRow,
    Traced,
    Transition,
    WaitingOverview,
)
from crossdock.administration.tokens import CreatedToken, TokenRow
from crossdock.administration.views import SavedView
from crossdock.client import calls
from crossdock.client.call import (
    API,
    Call,
    MessagePage,
    Page,
    Planned,
    Result,
    error_of,
    headers_of,
    sample_of,
    unreachable,
)


class Client:
    """Asks a console, at its `url`, with an API token. Use it in a `with`, or close it. Threads may share it.

    Every operation is a method. What the console refuses is the error that the service itself would raise.
    """

    def __init__(self, url: str, token: str, *, reason: str = "", timeout: float = 60) -> None:
        """`reason`: why, as the audit keeps it. `timeout` in seconds."""
        self._url = url
        self._http = httpx.Client(base_url=url, headers=headers_of(token, reason), timeout=timeout)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: Call[Result]) -> Result:
        try:
            return call.read(self._http.request(**call.asked()))
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from error

    def live(self) -> Iterator[Sample]:
        """A sample every few seconds, for as long as the caller wants. While the MessageBox is away there is none."""
        try:
            with self._http.stream("GET", f"{API}/live", timeout=None) as response:
                if response.status_code != 200:
                    response.read()
                    raise error_of(response)
                for line in response.iter_lines():
                    if (sample := sample_of(line)) is not None:
                        yield sample
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from error

    def applications(self) -> list[DeployedApplication]:
        """Applications that are deployed."""
        return self._send(calls.applications())

    def ports(self, *, limit: int = 100, cursor: str | None = None) -> Page[PortOverview]:
        """Send ports, by name."""
        return self._send(calls.ports(limit=limit, cursor=cursor))

    def groups(self) -> list[GroupOverview]:
        """Send port groups."""
        return self._send(calls.groups())

    def locations(self, *, limit: int = 100, cursor: str | None = None) -> Page[LocationOverview]:
        """Receive locations, by name."""
        return self._send(calls.locations(limit=limit, cursor=cursor))

    def orchestrations(self) -> list[OrchestrationOverview]:
        """Orchestrations."""
        return self._send(calls.orchestrations())

    def subscriptions(self, *, limit: int = 100, cursor: str | None = None) -> Page[SubscriptionOverview]:
        """Subscriptions of ports, of orchestrations and of running instances."""
        return self._send(calls.subscriptions(limit=limit, cursor=cursor))

    def hosts(self) -> list[HostOverview]:
        """Hosts, with their living instances."""
        return self._send(calls.hosts())

    def waiting(self, *, port: str | None = None, limit: int = 100) -> list[WaitingOverview]:
        """What waits for its next attempt."""
        return self._send(calls.waiting(port=port, limit=limit))

    def instances(
        self, *, state: str | None = None, where: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Instance]:
        """Instances of orchestrations, the oldest first."""
        return self._send(calls.instances(state=state, where=where, limit=limit, cursor=cursor))

    def instance(self, id_: str) -> DescribedInstance:
        """One instance in full."""
        return self._send(calls.instance(id_))

    def audit(
        self,
        *,
        since: str | None = None,
        person: str | None = None,
        action: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditRow]:
        """Who did what, the newest first."""
        return self._send(calls.audit(since=since, person=person, action=action, limit=limit, cursor=cursor))

    def sample(self) -> Sample:
        """How the MessageBox was a few seconds ago."""
        return self._send(calls.sample())

    def minutes(self, *, hours: int = 24, step: int = 1) -> list[TotalMinutes]:
        """What went through the whole MessageBox, in steps of so many minutes."""
        return self._send(calls.minutes(hours=hours, step=step))

    def messages(
        self,
        *,
        where: str | None = None,
        type_: str | None = None,
        port: str | None = None,
        state: str | None = None,
        since: str | None = None,
        until: str | None = None,
        personal: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> MessagePage:
        """Messages that are tracked, the newest first."""
        return self._send(
            calls.messages(
                where=where,
                type_=type_,
                port=port,
                state=state,
                since=since,
                until=until,
                personal=personal,
                limit=limit,
                cursor=cursor,
            )
        )

    def message(self, id_: str) -> DescribedMessage:
        """One message: its properties, its parts and its copies."""
        return self._send(calls.message(id_))

    def explain(self, id_: str, *, subscription: str | None = None, now: bool = False) -> ExplainedMessage:
        """Who got a message and who did not, and which predicate failed."""
        return self._send(calls.explain(id_, subscription=subscription, now=now))

    def trace(self, id_: str) -> Traced:
        """The journey of a message as a tree."""
        return self._send(calls.trace(id_))

    def part(self, id_: str, name: str = "body") -> bytes:
        """The bytes of a part of a message."""
        return self._send(calls.part(id_, name))

    def publish(
        self,
        body: bytes,
        *,
        name: str = "message",
        location: str | None = None,
        to: str | None = None,
        properties: Sequence[str] = (),
        key: str | None = None,
    ) -> list[PublishedMessage]:
        """Publish a message at once. With a `key` it is published once, however often it is asked for within a day."""
        return self._send(calls.publish(body, name=name, location=location, to=to, properties=properties, key=key))

    def erase(self, where: str, *, preview: bool = True) -> Erased:
        """Erase what is tracked of the content of messages; a preview only counts them."""
        return self._send(calls.erase(where, preview=preview))

    def suspended(
        self,
        *,
        port: str | None = None,
        code: str | None = None,
        type_: str | None = None,
        where: str | None = None,
        since: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[SuspendedRow]:
        """Suspended deliveries, and messages without one, the oldest first."""
        return self._send(
            calls.suspended(port=port, code=code, type_=type_, where=where, since=since, limit=limit, cursor=cursor)
        )

    def suspended_groups(self, by: Literal["code", "port", "type"] = "code") -> list[SuspendedGroup]:
        """How many are suspended by code, port or type."""
        return self._send(calls.suspended_groups(by))

    def preview(
        self,
        action: Action,
        *,
        ids: Sequence[str] = (),
        port: str | None = None,
        code: str | None = None,
        type_: str | None = None,
        where: str | None = None,
        since: str | None = None,
        everything: bool = False,
    ) -> Preview:
        """What an act would be about. Nothing is done; give its token to `execute`."""
        return self._send(
            calls.preview(
                action, ids=ids, port=port, code=code, type_=type_, where=where, since=since, everything=everything
            )
        )

    def execute(self, token: str, *, rate: float | None = None) -> Operation:
        """Begin what was looked at. Watch it with `operation`."""
        return self._send(calls.execute(token, rate=rate))

    def operations(self) -> list[Operation]:
        """Acts on many things, the newest first."""
        return self._send(calls.operations())

    def operation(self, id_: str, *, after: int = 0) -> Operation:
        """How far an act is, with the outcomes after the first so many."""
        return self._send(calls.operation(id_, after=after))

    def cancel_operation(self, id_: str) -> Operation:
        """Begin no further batch of it."""
        return self._send(calls.cancel_operation(id_))

    def edit(
        self, id_: str, *, port: str | None = None, body: bytes | None = None, properties: Sequence[str] = ()
    ) -> Edited:
        """Change a suspended message for exactly one subscriber, and deliver it there."""
        return self._send(calls.edit(id_, port=port, body=body, properties=properties))

    def start(self, name: str) -> Transition:
        """Start a send port, a group or an orchestration."""
        return self._send(calls.start(name))

    def stop(self, name: str) -> Transition:
        """Stop it: what matches from now on is suspended."""
        return self._send(calls.stop(name))

    def enlist(self, name: str) -> Transition:
        """Give it its subscriptions, stopped."""
        return self._send(calls.enlist(name))

    def unenlist(self, name: str) -> Transition:
        """Take its subscriptions away."""
        return self._send(calls.unenlist(name))

    def enable(self, name: str) -> Enabled:
        """Let a receive location receive."""
        return self._send(calls.enable(name))

    def disable(self, name: str) -> Enabled:
        """Let a receive location rest."""
        return self._send(calls.disable(name))

    def change_application(self, name: str, verb: ApplicationVerb) -> list[ArtefactTransition]:
        """Start, stop, enlist or unenlist all that an application has; or enable or disable its receive locations."""
        return self._send(calls.change_application(name, verb))

    def resume_instance(self, id_: str) -> InstanceResult:
        """Let a suspended instance go on."""
        return self._send(calls.resume_instance(id_))

    def cancel_instance(self, id_: str) -> InstanceResult:
        """Let an instance undo what it has done, and end."""
        return self._send(calls.cancel_instance(id_))

    def terminate_instance(self, id_: str) -> InstanceResult:
        """End an instance for good."""
        return self._send(calls.terminate_instance(id_))

    def plan(self, yaml: str) -> Plan:
        """What a deployment of the application would change."""
        return self._send(calls.plan(yaml))

    def apply(self, yaml: str, *, planned: Planned | None = None) -> Applied:
        """Deploy the application; with a plan only if nothing has changed since."""
        return self._send(calls.apply(yaml, planned=planned))

    def undeploy(self, name: str, *, leaving: Literal["refuse", "terminate", "keep"] = "refuse") -> Undeployed:
        """Take an application away."""
        return self._send(calls.undeploy(name, leaving=leaving))

    def try_filter(
        self, filter_: str, *, port: str | None = None, since: str | None = None, limit: int = 1000
    ) -> TriedFilter:
        """What a filter would gain, lose and leave to nobody, tried on recent messages."""
        return self._send(calls.try_filter(filter_, port=port, since=since, limit=limit))

    def me(self) -> Me:
        """Who has signed in, and what that person may do."""
        return self._send(calls.me())

    def access(self) -> list[GivenRight]:
        """Which database users were given which rights."""
        return self._send(calls.access())

    def grant(self, right: str, database_user: str, application: str | None = None) -> None:
        """Give a database user a right."""
        self._send(calls.grant(right, database_user, application))

    def revoke(self, right: str, database_user: str, application: str | None = None) -> None:
        """Take a right from a database user."""
        self._send(calls.revoke(right, database_user, application))

    def tokens(self) -> list[TokenRow]:
        """API tokens, without the tokens themselves."""
        return self._send(calls.tokens())

    def create_token(
        self,
        name: str,
        role: Literal["viewer", "operator", "administrator"],
        *,
        grants: Sequence[Literal["bodies", "edit"]] = (),
        application: str | None = None,
        expires: str | None = None,
    ) -> CreatedToken:
        """Make an API token. It is shown this once."""
        return self._send(calls.create_token(name, role, grants=grants, application=application, expires=expires))

    def revoke_token(self, name: str) -> None:
        """From here on the token names nobody."""
        self._send(calls.revoke_token(name))

    def views(self) -> list[SavedView]:
        """Searches for messages that you keep, by name."""
        return self._send(calls.views())

    def save_view(self, name: str, query: str) -> SavedView:
        """Keep a search, as `type=Order&state=suspended`, under a name."""
        return self._send(calls.save_view(name, query))

    def delete_view(self, name: str) -> None:
        """Forget a search of yours."""
        self._send(calls.delete_view(name))
