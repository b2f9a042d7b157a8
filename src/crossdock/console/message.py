"""`/messages/ID`: the journey of one message as a picture, why it went where it did, its context and its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from crossdock.administration.explain import ExplainedMessage, ExplainedSubscription
from crossdock.administration.messages import DescribedMessage
from crossdock.administration.service import Administration
from crossdock.api.gate import Service, SignedIn
from crossdock.console.journey import picture_of
from crossdock.console.page import render
from crossdock.errors import NotAllowedError, UsageError

routes = APIRouter(include_in_schema=False)
_SUBSCRIPTIONS = 100


@routes.get("/messages/{id_}")
def message(
    request: Request,
    service: Service,
    id_: str,
    filters: str = "then",
    subscription: Annotated[str, Query(max_length=500)] = "",
    every: bool = False,
) -> HTMLResponse:
    found = service.describe(id_)
    if not isinstance(found, DescribedMessage):
        raise UsageError(f"There is no message {id_}.")
    now = filters == "now"
    why, problem = _explained(service, found, now=now, subscription=subscription or None)
    traced = service.trace(found.id)
    shown = [] if why is None else _ranked(why.subscriptions)
    return render(
        request,
        "message.html",
        message=found,
        picture=picture_of(traced),
        events=traced.events,
        why=why,
        why_problem=problem,
        subscriptions=shown if every else shown[:_SUBSCRIPTIONS],
        more_subscriptions=0 if every else max(0, len(shown) - _SUBSCRIPTIONS),
        nearest=[] if why is None else why.nearest,
        now=now,
        subscription=subscription,
        promoted=_own_first(found.promoted),
        suspended=[each for each in found.copies if each.state in ("suspended", "unrouted")],
    )


def _explained(
    service: Administration, found: DescribedMessage, *, now: bool, subscription: str | None
) -> tuple[ExplainedMessage | None, str | None]:
    try:
        return service.explain(found.id, subscription=subscription, now=now), None
    except UsageError as error:
        return None, str(error)


def _own_first(values: Mapping[str, str]) -> dict[str, str]:
    """Properties of the application before those that every message has, as `BTS.MessageType`."""
    return dict(sorted(values.items(), key=lambda each: ("." in each[0], each[0])))


def _ranked(subscriptions: Sequence[ExplainedSubscription]) -> list[ExplainedSubscription]:
    """Those that matched, then those that failed by few predicates."""
    return sorted(subscriptions, key=lambda each: (not each.matched, each.only_addressed, len(each.failed), each.name))


@routes.get("/messages/{id_}/parts")
def parts(request: Request, service: Service, id_: str) -> HTMLResponse:
    """The beginnings of the parts, as a piece of the page of the message, or as a page of its own."""
    problem, heads = None, []
    try:
        heads = list(service.part_heads(id_))
    except (NotAllowedError, UsageError) as error:
        problem = str(error)
    piece = request.headers.get("hx-request") is not None
    return render(
        request,
        "parts_shown.html" if piece else "parts_page.html",
        status=200 if piece or problem is None else 403,
        id=id_,
        heads=heads,
        problem=problem,
    )


@routes.get("/messages/{id_}/parts/{name:path}")
def download(service: Service, person: SignedIn, id_: str, name: str) -> StreamingResponse:
    """A part as it is, never shown by the browser: a message may be a page with scripts."""
    del person
    chunks = service.part(id_, name)
    file = f"{id_}-{name}".encode("ascii", "replace").decode().replace('"', "_").replace("\\", "_")
    safe = "".join(character if character.isprintable() and character != "/" else "_" for character in file)
    exact = quote(f"{id_}-{name}", safe="")
    return StreamingResponse(
        chunks,
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f"attachment; filename=\"{safe}\"; filename*=UTF-8''{exact}",
            "X-Content-Type-Options": "nosniff",
        },
    )
