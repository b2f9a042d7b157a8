"""Lists: what is deployed, what runs, who did what, and how the MessageBox is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Query

from crossdock.administration.for_pages import TotalMinutes
from crossdock.administration.instances import DescribedInstance, Instance
from crossdock.administration.samples import Sample
from crossdock.administration.service import (
    AuditRow,
    DeployedApplication,
    GroupOverview,
    HostOverview,
    LocationOverview,
    OrchestrationOverview,
    PortOverview,
    SubscriptionOverview,
    WaitingOverview,
)
from crossdock.api.cursors import Cursor, Limit, Page, read_number, read_text, written, wrong_cursor
from crossdock.api.gate import Service
from crossdock.api.problems import ProblemError

routes = APIRouter(tags=["lists"])
Row = TypeVar("Row")

_APART = "\x1f"  # a name has no such character

Text = Annotated[str | None, Query(max_length=4_000)]
Personal = Annotated[bool, Query(description="Search by personal properties too, which is recorded.")]


@routes.get("/applications", operation_id="applications")
def applications(service: Service) -> Sequence[DeployedApplication]:
    """Applications that are deployed."""
    return service.applications()


@routes.get("/ports", operation_id="ports")
def ports(service: Service, limit: Limit = 100, cursor: Cursor = None) -> Page[PortOverview]:
    """Send ports, by application and name."""
    rows = service.ports(after=_name(read_text("ports", cursor)), limit=limit + 1)
    return _page("ports", rows, limit, lambda each: f"{each.application}{_APART}{each.name}")


@routes.get("/groups", operation_id="groups")
def groups(service: Service) -> Sequence[GroupOverview]:
    """Send port groups."""
    return service.groups()


@routes.get("/locations", operation_id="locations")
def locations(service: Service, limit: Limit = 100, cursor: Cursor = None) -> Page[LocationOverview]:
    """Receive locations, by application and name."""
    rows = service.locations(after=_name(read_text("locations", cursor)), limit=limit + 1)
    return _page("locations", rows, limit, lambda each: f"{each.application}{_APART}{each.name}")


@routes.get("/orchestrations", operation_id="orchestrations")
def orchestrations(service: Service) -> Sequence[OrchestrationOverview]:
    """Orchestrations, with how many instances of each there are."""
    return service.orchestrations()


@routes.get("/subscriptions", operation_id="subscriptions")
def subscriptions(service: Service, limit: Limit = 100, cursor: Cursor = None) -> Page[SubscriptionOverview]:
    """Subscriptions of ports and of orchestrations, then those of running instances."""
    rows = service.subscriptions(after=_kind(read_text("subscriptions", cursor)), limit=limit + 1)
    return _page("subscriptions", rows, limit, lambda each: f"{each.kind}{_APART}{each.id}")


@routes.get("/hosts", operation_id="hosts")
def hosts(service: Service) -> Sequence[HostOverview]:
    """Hosts, with their living instances."""
    return service.hosts()


@routes.get("/waiting", operation_id="waiting")
def waiting(service: Service, port: Text = None, limit: Limit = 100) -> Sequence[WaitingOverview]:
    """What waits for its next attempt: why, which attempt, and when it is due."""
    return service.waiting(port=port, limit=limit)


@routes.get("/instances", operation_id="instances")
def instances(
    service: Service,
    state: Annotated[Literal["running", "suspended", "cancelling"] | None, Query()] = None,
    where: Text = None,
    personal: Personal = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Instance]:
    """Instances of orchestrations, the oldest first."""
    after = read_text("instances", cursor)
    page = service.instance_page(state=state, where=where, personal=personal, limit=limit, after=after)
    return Page(items=page.instances, next=written("instances", page.after))


@routes.get("/instances/{id}", operation_id="instance")
def instance(service: Service, id: str) -> DescribedInstance:  # noqa: A002 - the name in the path
    """One instance: what it waits for, its messages, and for whoever may read bodies there every step."""
    described = service.describe(id)
    if not isinstance(described, DescribedInstance):
        raise ProblemError(404, "not-found", f"{id} is a message, not an instance.")
    return described


@routes.get("/audit", operation_id="audit")
def audit(
    service: Service,
    since: Text = None,
    person: Text = None,
    action: Text = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[AuditRow]:
    """Who did what, the newest first."""
    before = read_number("audit", cursor)
    rows = service.audit(since=since, person=person, action=action, limit=limit, before=before)
    return Page(items=rows, next=written("audit", rows[-1].number if len(rows) == limit else None))


@routes.get("/sample", operation_id="sample")
def sample(service: Service) -> Sample:
    """How the MessageBox was a few seconds ago. It costs the same however much is in it."""
    return service.sample()


@routes.get("/minutes", operation_id="minutes")
def minutes(
    service: Service,
    hours: Annotated[int, Query(ge=1, le=24 * 31)] = 24,
    step: Annotated[int, Query(ge=1, le=24 * 60, description="In minutes.")] = 1,
) -> Sequence[TotalMinutes]:
    """What went through the whole MessageBox, in steps of minutes. A step in which nothing happened is missing."""
    return service.total_minutes(timedelta(hours=hours), timedelta(minutes=step))


def _page(list_: str, rows: Sequence[Row], limit: int, place: Callable[[Row], str]) -> Page[Row]:
    """Of one more row than were asked for."""
    return Page(items=rows[:limit], next=written(list_, place(rows[limit - 1])) if len(rows) > limit else None)


def _name(place: str | None) -> tuple[str, str] | None:
    if place is None:
        return None
    application, apart, name = place.partition(_APART)
    if not apart or "\0" in place:
        raise wrong_cursor()
    return application, name


def _kind(place: str | None) -> tuple[str, int] | None:
    if place is None:
        return None
    kind, _, number = place.partition(_APART)
    if kind not in ("activation", "instance") or not number.isdecimal() or int(number) >= 2**63:
        raise wrong_cursor()
    return kind, int(number)
