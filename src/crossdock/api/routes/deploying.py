"""Deploying: what an application would change, do it, take it away; and a filter that is tried first."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from crossdock.administration.for_deploying import Applied, Epoch, Plan, TriedFilter, Undeployed
from crossdock.api.answers import AnsweredOnce
from crossdock.api.gate import Service
from crossdock.api.problems import ProblemError

routes = APIRouter(tags=["deploying"], route_class=AnsweredOnce)

IfMatch = Annotated[str | None, Header(description="The ETag of a plan: only if nothing has changed since.")]
_ETAG = re.compile(r'"(?P<number>\d{1,18})-(?P<token>[0-9a-f-]{36})"')


class Declared(BaseModel):
    """An application as YAML. It brings no code: orchestrations are deployed with the command line."""

    yaml: str = Field(min_length=1, max_length=8_000_000)
    digest: str | None = Field(default=None, description="That of the plan: only if it is the same application.")


class Trying(BaseModel):
    """A filter, and the port that would have it. It is tried on at most `limit` recent messages."""

    filter: str = Field(min_length=1, max_length=16_000)
    port: str | None = None
    since: str | None = Field(default=None, description="30m, 12h or 7d ago, or a time.")
    limit: int = Field(default=1_000, ge=1, le=10_000)


@routes.post("/plan", operation_id="plan")
def plan(service: Service, response: Response, declared: Declared) -> Plan:
    """What a deployment of the application would change. Its ETag is the epoch for `If-Match` of `apply`."""
    made = service.plan(declared.yaml)
    response.headers["etag"] = f'"{made.epoch}-{made.epoch_token}"'
    return made


@routes.post("/apply", operation_id="apply")
def apply(service: Service, declared: Declared, if_match: IfMatch = None) -> Applied:
    """Deploy the application. Running processes pick the change up by themselves."""
    return service.apply(declared.yaml, planned_at=_epoch(if_match), digest=declared.digest)


@routes.delete("/applications/{name:path}", operation_id="undeploy")
def undeploy(
    service: Service,
    name: str,
    leaving: Annotated[
        Literal["refuse", "terminate", "keep"], Query(description="What becomes of what waits for it.")
    ] = "refuse",
) -> Undeployed:
    """Take an application away. Refused while messages wait for it or instances live, unless `leaving` says more."""
    return service.undeploy(name, leaving)


@routes.post("/filters:try", operation_id="try_filter")
def try_filter(service: Service, trying: Trying) -> TriedFilter:
    """What a filter would gain, lose and leave to nobody, tried on recent tracked messages. Nothing is changed."""
    return service.try_filter(trying.filter, port=trying.port, since=trying.since, limit=trying.limit)


def _epoch(if_match: str | None) -> Epoch | None:
    if if_match is None or if_match == "*":
        return None
    found = _ETAG.fullmatch(if_match.removeprefix("W/"))
    try:
        return Epoch(int(found["number"]), UUID(found["token"])) if found else _wrong()
    except ValueError:
        return _wrong()


def _wrong() -> Epoch:
    raise ProblemError(412, "plan-outdated", "If-Match is not the ETag of a plan. Make the plan again.")
