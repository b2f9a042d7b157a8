"""The client for programs that wait with `await`. It has the methods of `Client`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
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


class AsyncClient:
    """Asks a console, at its `url`, with an API token. Use it in an `async with`, or close it.

    Every operation is a method. What the console refuses is the error that the service itself would raise.
    """

    def __init__(self, url: str, token: str, *, reason: str = "", timeout: float = 60) -> None:
        """`reason`: why, as the audit keeps it. `timeout` in seconds."""
        self._url = url
        self._http = httpx.AsyncClient(base_url=url, headers=headers_of(token, reason), timeout=timeout)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, call: Call[Result]) -> Result:
        try:
            return call.read(await self._http.request(**call.asked()))
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from error

    async def live(self) -> AsyncIterator[Sample]:
        """A sample every few seconds, for as long as the caller wants. While the MessageBox is away there is none."""
        try:
            async with self._http.stream("GET", f"{API}/live", timeout=None) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise error_of(response)
                async for line in response.aiter_lines():
                    if (sample := sample_of(line)) is not None:
                        yield sample
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from error

    async def applications(self) -> list[DeployedApplication]:
        """Applications that are deployed."""
        return await self._send(calls.applications())

    async def ports(self, *, limit: int = 100, cursor: str | None = None) -> Page[PortOverview]:
        """Send ports, by name."""
        return await self._send(calls.ports(limit=limit, cursor=cursor))

    async def groups(self) -> list[GroupOverview]:
        """Send port groups."""
        return await self._send(calls.groups())

    async def locations(self, *, limit: int = 100, cursor: str | None = None) -> Page[LocationOverview]:
        """Receive locations, by name."""
        return await self._send(calls.locations(limit=limit, cursor=cursor))

    async def orchestrations(self) -> list[OrchestrationOverview]:
        """Orchestrations."""
        return await self._send(calls.orchestrations())

    async def subscriptions(self, *, limit: int = 100, cursor: str | None = None) -> Page[SubscriptionOverview]:
        """Subscriptions of ports, of orchestrations and of running instances."""
        return await self._send(calls.subscriptions(limit=limit, cursor=cursor))

    async def hosts(self) -> list[HostOverview]:
        """Hosts, with their living instances."""
        return await self._send(calls.hosts())

    async def waiting(self, *, port: str | None = None, limit: int = 100) -> list[WaitingOverview]:
        """What waits for its next attempt."""
        return await self._send(calls.waiting(port=port, limit=limit))

    async def instances(
        self, *, state: str | None = None, where: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Instance]:
        """Instances of orchestrations, the oldest first."""
        return await self._send(calls.instances(state=state, where=where, limit=limit, cursor=cursor))

    async def instance(self, id_: str) -> DescribedInstance:
        """One instance in full."""
        return await self._send(calls.instance(id_))

    async def audit(
        self,
        *,
        since: str | None = None,
        person: str | None = None,
        action: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditRow]:
        """Who did what, the newest first."""
        return await self._send(calls.audit(since=since, person=person, action=action, limit=limit, cursor=cursor))

    async def sample(self) -> Sample:
        """How the MessageBox was a few seconds ago."""
        return await self._send(calls.sample())

    async def minutes(self, *, hours: int = 24, step: int = 1) -> list[TotalMinutes]:
        """What went through the whole MessageBox, in steps of so many minutes."""
        return await self._send(calls.minutes(hours=hours, step=step))

    async def messages(
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
        return await self._send(
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

    async def message(self, id_: str) -> DescribedMessage:
        """One message: its properties, its parts and its copies."""
        return await self._send(calls.message(id_))

    async def explain(self, id_: str, *, subscription: str | None = None, now: bool = False) -> ExplainedMessage:
        """Who got a message and who did not, and which predicate failed."""
        return await self._send(calls.explain(id_, subscription=subscription, now=now))

    async def trace(self, id_: str) -> Traced:
        """The journey of a message as a tree."""
        return await self._send(calls.trace(id_))

    async def part(self, id_: str, name: str = "body") -> bytes:
        """The bytes of a part of a message."""
        return await self._send(calls.part(id_, name))

    async def publish(
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
        return await self._send(
            calls.publish(body, name=name, location=location, to=to, properties=properties, key=key)
        )

    async def erase(self, where: str, *, preview: bool = True) -> Erased:
        """Erase what is tracked of the content of messages; a preview only counts them."""
        return await self._send(calls.erase(where, preview=preview))

    async def suspended(
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
        return await self._send(
            calls.suspended(port=port, code=code, type_=type_, where=where, since=since, limit=limit, cursor=cursor)
        )

    async def suspended_groups(self, by: Literal["code", "port", "type"] = "code") -> list[SuspendedGroup]:
        """How many are suspended by code, port or type."""
        return await self._send(calls.suspended_groups(by))

    async def preview(
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
        return await self._send(
            calls.preview(
                action, ids=ids, port=port, code=code, type_=type_, where=where, since=since, everything=everything
            )
        )

    async def execute(self, token: str, *, rate: float | None = None) -> Operation:
        """Begin what was looked at. Watch it with `operation`."""
        return await self._send(calls.execute(token, rate=rate))

    async def operations(self) -> list[Operation]:
        """Acts on many things, the newest first."""
        return await self._send(calls.operations())

    async def operation(self, id_: str, *, after: int = 0) -> Operation:
        """How far an act is, with the outcomes after the first so many."""
        return await self._send(calls.operation(id_, after=after))

    async def cancel_operation(self, id_: str) -> Operation:
        """Begin no further batch of it."""
        return await self._send(calls.cancel_operation(id_))

    async def edit(
        self, id_: str, *, port: str | None = None, body: bytes | None = None, properties: Sequence[str] = ()
    ) -> Edited:
        """Change a suspended message for exactly one subscriber, and deliver it there."""
        return await self._send(calls.edit(id_, port=port, body=body, properties=properties))

    async def start(self, name: str) -> Transition:
        """Start a send port, a group or an orchestration."""
        return await self._send(calls.start(name))

    async def stop(self, name: str) -> Transition:
        """Stop it: what matches from now on is suspended."""
        return await self._send(calls.stop(name))

    async def enlist(self, name: str) -> Transition:
        """Give it its subscriptions, stopped."""
        return await self._send(calls.enlist(name))

    async def unenlist(self, name: str) -> Transition:
        """Take its subscriptions away."""
        return await self._send(calls.unenlist(name))

    async def enable(self, name: str) -> Enabled:
        """Let a receive location receive."""
        return await self._send(calls.enable(name))

    async def disable(self, name: str) -> Enabled:
        """Let a receive location rest."""
        return await self._send(calls.disable(name))

    async def change_application(self, name: str, verb: ApplicationVerb) -> list[ArtefactTransition]:
        """Start, stop, enlist or unenlist all that an application has; or enable or disable its receive locations."""
        return await self._send(calls.change_application(name, verb))

    async def resume_instance(self, id_: str) -> InstanceResult:
        """Let a suspended instance go on."""
        return await self._send(calls.resume_instance(id_))

    async def cancel_instance(self, id_: str) -> InstanceResult:
        """Let an instance undo what it has done, and end."""
        return await self._send(calls.cancel_instance(id_))

    async def terminate_instance(self, id_: str) -> InstanceResult:
        """End an instance for good."""
        return await self._send(calls.terminate_instance(id_))

    async def plan(self, yaml: str) -> Plan:
        """What a deployment of the application would change."""
        return await self._send(calls.plan(yaml))

    async def apply(self, yaml: str, *, planned: Planned | None = None) -> Applied:
        """Deploy the application; with a plan only if nothing has changed since."""
        return await self._send(calls.apply(yaml, planned=planned))

    async def undeploy(self, name: str, *, leaving: Literal["refuse", "terminate", "keep"] = "refuse") -> Undeployed:
        """Take an application away."""
        return await self._send(calls.undeploy(name, leaving=leaving))

    async def try_filter(
        self, filter_: str, *, port: str | None = None, since: str | None = None, limit: int = 1000
    ) -> TriedFilter:
        """What a filter would gain, lose and leave to nobody, tried on recent messages."""
        return await self._send(calls.try_filter(filter_, port=port, since=since, limit=limit))

    async def me(self) -> Me:
        """Who has signed in, and what that person may do."""
        return await self._send(calls.me())

    async def access(self) -> list[GivenRight]:
        """Which database users were given which rights."""
        return await self._send(calls.access())

    async def grant(self, right: str, database_user: str, application: str | None = None) -> None:
        """Give a database user a right."""
        await self._send(calls.grant(right, database_user, application))

    async def revoke(self, right: str, database_user: str, application: str | None = None) -> None:
        """Take a right from a database user."""
        await self._send(calls.revoke(right, database_user, application))

    async def tokens(self) -> list[TokenRow]:
        """API tokens, without the tokens themselves."""
        return await self._send(calls.tokens())

    async def create_token(
        self,
        name: str,
        role: Literal["viewer", "operator", "administrator"],
        *,
        grants: Sequence[Literal["bodies", "edit"]] = (),
        application: str | None = None,
        expires: str | None = None,
    ) -> CreatedToken:
        """Make an API token. It is shown this once."""
        return await self._send(calls.create_token(name, role, grants=grants, application=application, expires=expires))

    async def revoke_token(self, name: str) -> None:
        """From here on the token names nobody."""
        await self._send(calls.revoke_token(name))

    async def views(self) -> list[SavedView]:
        """Searches for messages that you keep, by name."""
        return await self._send(calls.views())

    async def save_view(self, name: str, query: str) -> SavedView:
        """Keep a search, as `type=Order&state=suspended`, under a name."""
        return await self._send(calls.save_view(name, query))

    async def delete_view(self, name: str) -> None:
        """Forget a search of yours."""
        await self._send(calls.delete_view(name))
