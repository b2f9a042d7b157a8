"""Messages: search them, look at one, ask why it went where it went, read its parts, publish and erase."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from crossdock.administration.erase import Erased
from crossdock.administration.messages import DescribedMessage, MessageRow
from crossdock.administration.publish import PublishedMessage
from crossdock.administration.service import ExplainedMessage, Traced
from crossdock.api.answers import AnsweredOnce
from crossdock.api.cursors import Cursor, Limit, Page, read_text, written
from crossdock.api.gate import Service
from crossdock.api.problems import ProblemError
from crossdock.api.routes.lists import Personal, Text
from crossdock.errors import UsageError

routes = APIRouter(tags=["messages"], route_class=AnsweredOnce)

Id = Annotated[str, Path(max_length=100, description="The id of a message, in full or short.")]


class MessagePageOf(Page[MessageRow]):
    """`looked_at` messages were compared for this page."""

    looked_at: int


class Publishing(BaseModel):
    """A message to publish. `body` is base64. `properties` are promoted, each as `NAME=VALUE`."""

    body: str = Field(description="The bytes, in base64.")
    name: str = Field(default="message", min_length=1, max_length=255, description="As the name of a file.")
    location: str | None = Field(default=None, description="The receive location through whose pipeline it goes.")
    to: str | None = Field(default=None, description="The send port or group that surely gets it.")
    properties: Sequence[str] = Field(default=(), max_length=100)


class Erasing(BaseModel):
    """Which messages to erase. A preview only counts them."""

    where: str = Field(min_length=1, max_length=4_000)
    preview: bool = True


@routes.get("/messages", operation_id="messages")
def messages(
    service: Service,
    where: Text = None,
    type: Text = None,  # noqa: A002 - the name in the query
    port: Text = None,
    state: Text = None,
    since: Text = None,
    until: Text = None,
    personal: Personal = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> MessagePageOf:
    """Messages that are tracked, the newest first. `where` is a filter on promoted properties."""
    page = service.messages(
        where=where,
        type_=type,
        port=port,
        state=state,
        since=since,
        until=until,
        limit=limit,
        before=read_text("messages", cursor),
        personal=personal,
    )
    return MessagePageOf(items=page.messages, next=written("messages", page.before), looked_at=page.looked_at)


@routes.get("/messages/{id}", operation_id="message")
def message(service: Service, id: Id) -> DescribedMessage:  # noqa: A002 - the name in the path
    """One message: its properties, its parts and its copies. Personal values are masked."""
    described = service.describe(id)
    if not isinstance(described, DescribedMessage):
        raise ProblemError(404, "not-found", f"{id} is an instance, not a message.")
    return described


@routes.get("/messages/{id}/explain", operation_id="explain")
def explain(
    service: Service,
    id: Id,  # noqa: A002 - the name in the path
    subscription: Text = None,
    now: Annotated[bool, Query(description="By the filters of now, not of when it was published.")] = False,
) -> ExplainedMessage:
    """Who got a message and who did not, and which predicate failed."""
    return service.explain(id, subscription=subscription, now=now)


@routes.get("/messages/{id}/trace", operation_id="trace")
def trace(service: Service, id: Id) -> Traced:  # noqa: A002 - the name in the path
    """The journey of a message as a tree, with the messages that came of it."""
    return service.trace(id)


@routes.get("/messages/{id}/parts/{name:path}", operation_id="part", response_class=StreamingResponse)
def part(service: Service, id: Id, name: str) -> StreamingResponse:  # noqa: A002 - the name in the path
    """The bytes of a part of a message that is in the box. Takes the right `bodies`; that it was read is recorded."""
    disposition = f"attachment; filename*=UTF-8''{quote(f'{id}-{name}', safe='')}"
    headers = {"content-disposition": disposition}
    return StreamingResponse(service.part(id, name), headers=headers, media_type="application/octet-stream")


@routes.post("/messages", operation_id="publish", status_code=201)
def publish(service: Service, publishing: Publishing) -> Sequence[PublishedMessage]:
    """Publish a message at once, or what the pipeline of a receive location makes of it."""
    try:
        content = base64.b64decode(publishing.body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"The body is not base64: {error}.") from error
    if not publishing.name.isprintable():
        raise UsageError("The name has characters that cannot be printed.")
    return service.publish_content(
        publishing.name,
        content,
        location=publishing.location,
        to=publishing.to,
        properties=publishing.properties,
    )


@routes.post("/messages:erase", operation_id="erase")
def erase(service: Service, erasing: Erasing) -> Erased:
    """Erase what is tracked of the content of messages; a preview only counts them."""
    return service.erase(erasing.where, preview=erasing.preview)
