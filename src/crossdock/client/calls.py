"""Every operation of the API as a request. The clients send them; a test compares them with the description."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Literal

from crossdock.administration.deploying import PlanMark
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
from crossdock.client.call import Call, MessagePage, Page, in_path

# Lists


def applications() -> Call[list[DeployedApplication]]:
    """Applications that are deployed."""
    return Call("GET", "/applications", list[DeployedApplication])


def ports(*, limit: int = 100, cursor: str | None = None) -> Call[Page[PortOverview]]:
    """Send ports, by name."""
    return Call("GET", "/ports", Page[PortOverview], {"limit": limit, "cursor": cursor})


def groups() -> Call[list[GroupOverview]]:
    """Send port groups."""
    return Call("GET", "/groups", list[GroupOverview])


def locations(*, limit: int = 100, cursor: str | None = None) -> Call[Page[LocationOverview]]:
    """Receive locations, by name."""
    return Call("GET", "/locations", Page[LocationOverview], {"limit": limit, "cursor": cursor})


def orchestrations() -> Call[list[OrchestrationOverview]]:
    """Orchestrations."""
    return Call("GET", "/orchestrations", list[OrchestrationOverview])


def subscriptions(*, limit: int = 100, cursor: str | None = None) -> Call[Page[SubscriptionOverview]]:
    """Subscriptions of ports, of orchestrations and of running instances."""
    return Call("GET", "/subscriptions", Page[SubscriptionOverview], {"limit": limit, "cursor": cursor})


def hosts() -> Call[list[HostOverview]]:
    """Hosts, with their living instances."""
    return Call("GET", "/hosts", list[HostOverview])


def waiting(*, port: str | None = None, limit: int = 100) -> Call[list[WaitingOverview]]:
    """What waits for its next attempt."""
    return Call("GET", "/waiting", list[WaitingOverview], {"port": port, "limit": limit})


def instances(
    *,
    state: str | None = None,
    where: str | None = None,
    personal: bool = False,
    limit: int = 100,
    cursor: str | None = None,
) -> Call[Page[Instance]]:
    """Instances of orchestrations, the oldest first."""
    asked = {"state": state, "where": where, "personal": personal, "limit": limit, "cursor": cursor}
    return Call("GET", "/instances", Page[Instance], asked)


def instance(id_: str) -> Call[DescribedInstance]:
    """One instance in full."""
    return Call("GET", f"/instances/{in_path(id_)}", DescribedInstance)


def audit(
    *,
    since: str | None = None,
    person: str | None = None,
    action: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Call[Page[AuditRow]]:
    """Who did what, the newest first."""
    asked = {"since": since, "person": person, "action": action, "limit": limit, "cursor": cursor}
    return Call("GET", "/audit", Page[AuditRow], asked)


def sample() -> Call[Sample]:
    """How the MessageBox was a few seconds ago."""
    return Call("GET", "/sample", Sample)


def minutes(*, hours: int = 24, step: int = 1) -> Call[list[TotalMinutes]]:
    """What went through the whole MessageBox, in steps of so many minutes."""
    return Call("GET", "/minutes", list[TotalMinutes], {"hours": hours, "step": step})


# Messages


def messages(
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
) -> Call[MessagePage]:
    """Messages that are tracked, the newest first."""
    window = {"since": since, "until": until, "personal": personal, "limit": limit, "cursor": cursor}
    asked = {"where": where, "type": type_, "port": port, "state": state, **window}
    return Call("GET", "/messages", MessagePage, asked)


def message(id_: str) -> Call[DescribedMessage]:
    """One message: its properties, its parts and its copies."""
    return Call("GET", f"/messages/{in_path(id_)}", DescribedMessage)


def explain(id_: str, *, subscription: str | None = None, now: bool = False) -> Call[ExplainedMessage]:
    """Who got a message and who did not, and which predicate failed."""
    asked = {"subscription": subscription, "now": now}
    return Call("GET", f"/messages/{in_path(id_)}/explain", ExplainedMessage, asked)


def trace(id_: str) -> Call[Traced]:
    """The journey of a message as a tree."""
    return Call("GET", f"/messages/{in_path(id_)}/trace", Traced)


def part(id_: str, name: str = "body") -> Call[bytes]:
    """The bytes of a part of a message."""
    return Call("GET", f"/messages/{in_path(id_)}/parts/{in_path(name)}", bytes)


def publish(
    body: bytes,
    *,
    name: str = "message",
    location: str | None = None,
    to: str | None = None,
    properties: Sequence[str] = (),
    key: str | None = None,
) -> Call[list[PublishedMessage]]:
    """Publish a message at once. With a `key` it is published once, however often it is asked for within a day."""
    asked = {"body": b64encode(body).decode(), "name": name, "location": location, "to": to}
    headers = {} if key is None else {"idempotency-key": key}
    return Call(
        "POST", "/messages", list[PublishedMessage], json={**asked, "properties": list(properties)}, headers=headers
    )


def erase(where: str, *, preview: bool = True) -> Call[Erased]:
    """Erase what is tracked of the content of messages; a preview only counts them."""
    return Call("POST", "/messages:erase", Erased, json={"where": where, "preview": preview})


# What is suspended


def suspended(
    *,
    port: str | None = None,
    code: str | None = None,
    type_: str | None = None,
    where: str | None = None,
    since: str | None = None,
    personal: bool = False,
    limit: int = 100,
    cursor: str | None = None,
) -> Call[Page[SuspendedRow]]:
    """Suspended deliveries, and messages without one, the oldest first."""
    asked = {"port": port, "code": code, "type": type_, "where": where, "since": since}
    page = {"personal": personal, "limit": limit, "cursor": cursor}
    return Call("GET", "/suspended", Page[SuspendedRow], {**asked, **page})


def suspended_groups(by: Literal["code", "port", "type"] = "code") -> Call[list[SuspendedGroup]]:
    """How many are suspended by code, port or type."""
    return Call("GET", "/suspended/groups", list[SuspendedGroup], {"by": by})


def preview(
    action: Action,
    *,
    ids: Sequence[str] = (),
    port: str | None = None,
    code: str | None = None,
    type_: str | None = None,
    where: str | None = None,
    since: str | None = None,
    everything: bool = False,
    personal: bool = False,
) -> Call[Preview]:
    """What an act would be about. Nothing is done; give its token to `execute`."""
    chosen = {"ids": list(ids), "port": port, "code": code, "type": type_, "where": where, "since": since}
    how = {"everything": everything, "personal": personal}
    return Call("POST", "/suspended:preview", Preview, json={"action": action, **chosen, **how})


def execute(token: str, *, rate: float | None = None) -> Call[Operation]:
    """Begin what was looked at. Watch it with `operation`."""
    return Call("POST", "/suspended:execute", Operation, json={"token": token, "rate": rate})


def operations() -> Call[list[Operation]]:
    """Acts on many things, the newest first."""
    return Call("GET", "/operations", list[Operation])


def operation(id_: str, *, after: int = 0) -> Call[Operation]:
    """How far an act is, with the outcomes after the first so many."""
    return Call("GET", f"/operations/{in_path(id_)}", Operation, {"after": after})


def cancel_operation(id_: str) -> Call[Operation]:
    """Begin no further batch of it."""
    return Call("DELETE", f"/operations/{in_path(id_)}", Operation)


def edit(
    id_: str, *, port: str | None = None, body: bytes | None = None, properties: Sequence[str] = ()
) -> Call[Edited]:
    """Change a suspended message for exactly one subscriber, and deliver it there."""
    new = None if body is None else b64encode(body).decode()
    asked = {"port": port, "body": new, "properties": list(properties)}
    return Call("POST", f"/suspended/{in_path(id_)}/edit", Edited, json=asked)


# Ports, locations and instances


def start(name: str) -> Call[Transition]:
    """Start a send port, a group or an orchestration."""
    return Call("POST", f"/ports/{in_path(name)}/start", Transition)


def stop(name: str) -> Call[Transition]:
    """Stop it: what matches from now on is suspended."""
    return Call("POST", f"/ports/{in_path(name)}/stop", Transition)


def enlist(name: str) -> Call[Transition]:
    """Give it its subscriptions, stopped."""
    return Call("POST", f"/ports/{in_path(name)}/enlist", Transition)


def unenlist(name: str) -> Call[Transition]:
    """Take its subscriptions away."""
    return Call("POST", f"/ports/{in_path(name)}/unenlist", Transition)


def enable(name: str) -> Call[Enabled]:
    """Let a receive location receive."""
    return Call("POST", f"/locations/{in_path(name)}/enable", Enabled)


def disable(name: str) -> Call[Enabled]:
    """Let a receive location rest."""
    return Call("POST", f"/locations/{in_path(name)}/disable", Enabled)


def change_application(name: str, verb: ApplicationVerb) -> Call[list[ArtefactTransition]]:
    """Start, stop, enlist or unenlist all that an application has; or enable or disable its receive locations."""
    return Call("POST", f"/applications/{in_path(name)}/{verb}", list[ArtefactTransition])


def resume_instance(id_: str) -> Call[InstanceResult]:
    """Let a suspended instance go on."""
    return Call("POST", f"/instances/{in_path(id_)}:resume", InstanceResult)


def cancel_instance(id_: str) -> Call[InstanceResult]:
    """Let an instance undo what it has done, and end."""
    return Call("POST", f"/instances/{in_path(id_)}:cancel", InstanceResult)


def terminate_instance(id_: str) -> Call[InstanceResult]:
    """End an instance for good."""
    return Call("POST", f"/instances/{in_path(id_)}:terminate", InstanceResult)


# Deploying


def plan(yaml: str) -> Call[Plan]:
    """What a deployment of the application would change."""
    return Call("POST", "/plan", Plan, json={"yaml": yaml})


def apply(yaml: str, *, planned: Plan | PlanMark | None = None) -> Call[Applied]:
    """Deploy the application; with a plan only if nothing has changed since."""
    if planned is None:
        return Call("POST", "/apply", Applied, json={"yaml": yaml})
    etag = f'"{planned.epoch}-{planned.epoch_token}"'
    return Call("POST", "/apply", Applied, json={"yaml": yaml, "digest": planned.digest}, headers={"if-match": etag})


def undeploy(name: str, *, leaving: Literal["refuse", "terminate", "keep"] = "refuse") -> Call[Undeployed]:
    """Take an application away."""
    return Call("DELETE", f"/applications/{in_path(name)}", Undeployed, {"leaving": leaving})


def try_filter(
    filter_: str, *, port: str | None = None, since: str | None = None, limit: int = 1_000
) -> Call[TriedFilter]:
    """What a filter would gain, lose and leave to nobody, tried on recent messages."""
    asked = {"filter": filter_, "port": port, "since": since, "limit": limit}
    return Call("POST", "/filters:try", TriedFilter, json=asked)


# Who may do what


def me() -> Call[Me]:
    """Who has signed in, and what that person may do."""
    return Call("GET", "/me", Me)


def access() -> Call[list[GivenRight]]:
    """Which database users were given which rights."""
    return Call("GET", "/access", list[GivenRight])


def grant(right: str, database_user: str, application: str | None = None) -> Call[None]:
    """Give a database user a right."""
    asked = {"access": right, "database_user": database_user, "application": application}
    return Call("POST", "/access:grant", None, json=asked)


def revoke(right: str, database_user: str, application: str | None = None) -> Call[None]:
    """Take a right from a database user."""
    asked = {"access": right, "database_user": database_user, "application": application}
    return Call("POST", "/access:revoke", None, json=asked)


def tokens() -> Call[list[TokenRow]]:
    """API tokens, without the tokens themselves."""
    return Call("GET", "/tokens", list[TokenRow])


def create_token(
    name: str,
    role: Literal["viewer", "operator", "administrator"],
    *,
    grants: Sequence[Literal["bodies", "edit"]] = (),
    application: str | None = None,
    expires: str | None = None,
) -> Call[CreatedToken]:
    """Make an API token. It is shown this once."""
    asked = {"name": name, "role": role, "grants": list(grants), "application": application, "expires": expires}
    return Call("POST", "/tokens", CreatedToken, json=asked)


def revoke_token(name: str) -> Call[None]:
    """From here on the token names nobody."""
    return Call("DELETE", f"/tokens/{in_path(name)}", None)


def views() -> Call[list[SavedView]]:
    """Searches for messages that you keep, by name."""
    return Call("GET", "/views", list[SavedView])


def save_view(name: str, query: str) -> Call[SavedView]:
    """Keep a search, as `type=Order&state=suspended`, under a name."""
    return Call("PUT", f"/views/{in_path(name)}", SavedView, json={"query": query})


def delete_view(name: str) -> Call[None]:
    """Forget a search of yours."""
    return Call("DELETE", f"/views/{in_path(name)}", None)
