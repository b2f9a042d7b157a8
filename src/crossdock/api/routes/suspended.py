"""What is suspended: list it, count it, act on it in two steps, and edit one delivery."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from crossdock.administration.edit import Edited
from crossdock.administration.service import Selection, SuspendedGroup, SuspendedRow
from crossdock.api.answers import AnsweredOnce
from crossdock.api.cursors import Cursor, Limit, Page, read_number, written
from crossdock.api.gate import Service, SignedIn
from crossdock.api.operations import Action, Operation, Operations, Preview
from crossdock.api.routes.lists import Personal, Text
from crossdock.api.routes.messages import Id
from crossdock.errors import UsageError

routes = APIRouter(tags=["suspended"], route_class=AnsweredOnce)


class Choosing(BaseModel):
    """Which suspended deliveries are meant, and what is to become of them.

    By `ids` of messages or instances; or by what they have in common. `everything`: all that is left of them.
    """

    action: Action
    ids: Sequence[str] = Field(default=(), max_length=10_000)
    port: str | None = None
    code: str | None = None
    type: str | None = None
    where: str | None = Field(default=None, max_length=4_000)
    since: str | None = None
    everything: bool = False
    personal: bool = Field(default=False, description="Search by personal properties too, which is recorded.")

    def selection(self) -> Selection:
        others = (self.code, self.type, self.where, self.since)
        if self.ids and any(each is not None for each in others):
            raise UsageError("Messages are named by ids, or chosen by code, type, where or since; not both.")
        chosen = (self.port, self.code, self.type, self.where, self.since)
        return Selection(list(self.ids), *chosen, everything=self.everything, personal=self.personal)


class Executing(BaseModel):
    """The token of a preview; at most `rate` in a second."""

    token: str
    rate: float | None = Field(default=None, ge=0.1, le=1e6)


class Editing(BaseModel):
    """A new body in base64, properties as `NAME=VALUE`, or both. `port`: whose delivery, if there are several."""

    port: str | None = None
    body: str | None = Field(default=None, description="The new bytes, in base64.")
    properties: Sequence[str] = Field(default=(), max_length=100)


@routes.get("/suspended", operation_id="suspended")
def suspended(
    service: Service,
    port: Text = None,
    code: Text = None,
    type: Text = None,  # noqa: A002 - the name in the query
    where: Text = None,
    since: Text = None,
    personal: Personal = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[SuspendedRow]:
    """Suspended deliveries, and messages without one, the oldest first."""
    chosen = Selection((), port, code, type, where, since, everything=True, personal=personal)
    rows = service.suspended(chosen, limit=limit, after=read_number("suspended", cursor) or 0)
    return Page(items=rows, next=written("suspended", rows[-1].sequence if len(rows) == limit else None))


@routes.get("/suspended/groups", operation_id="suspended_groups")
def suspended_groups(
    service: Service, by: Annotated[Literal["code", "port", "type"], Query()] = "code"
) -> Sequence[SuspendedGroup]:
    """How many are suspended by code, port or type, the most first."""
    return service.suspended_groups(by)


@routes.post("/suspended:preview", operation_id="preview")
def preview(request: Request, service: Service, person: SignedIn, choosing: Choosing) -> Preview:
    """The first step: what it would be about, and a token for the second, for a quarter of an hour. Nothing is done."""
    return _operations(request).preview(service, person, choosing.action, choosing.selection())


@routes.post("/suspended:execute", operation_id="execute", status_code=202)
def execute(
    request: Request, response: Response, service: Service, person: SignedIn, executing: Executing
) -> Operation:
    """The second step: begin it. Watch it, and cancel it, at `operations/ID`."""
    service.require_operator()
    begun = _operations(request).execute(service, person, executing.token, rate=executing.rate)
    response.headers["location"] = f"/api/v1/operations/{begun.id}"
    return begun


@routes.get("/operations", operation_id="operations")
def operations(request: Request, person: SignedIn) -> Sequence[Operation]:  # noqa: ARG001 - who has signed in
    """Acts on many things, the newest first, without the outcome of each thing."""
    return _operations(request).list()


@routes.get("/operations/{id}", operation_id="operation")
def operation(
    request: Request,
    person: SignedIn,
    id: str,  # noqa: A002 - the name in the path
    after: Annotated[int, Query(ge=0, le=2**31, description="Leave so many outcomes out.")] = 0,
) -> Operation:
    """How far an act is, and what became of each thing."""
    return _operations(request).find(person, id, after=after)


@routes.delete("/operations/{id}", operation_id="cancel_operation")
def cancel_operation(request: Request, person: SignedIn, id: str) -> Operation:  # noqa: A002 - the name in the path
    """Begin no further batch of it. What is done stays done."""
    return _operations(request).cancel(person, id)


@routes.post("/suspended/{id}/edit", operation_id="edit")
def edit(service: Service, id: Id, editing: Editing) -> Edited:  # noqa: A002 - the name in the path
    """Change a suspended message for exactly one subscriber, and deliver it there. Takes the right `edit`."""
    try:
        body = None if editing.body is None else base64.b64decode(editing.body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"The body is not base64: {error}.") from error
    return service.edit(service.editable(id, editing.port), body=body, properties=editing.properties)


def _operations(request: Request) -> Operations:
    found: Operations = request.app.state.operations
    return found
