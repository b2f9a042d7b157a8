"""`/messages/ID`: the journey of one message as a picture, why it went where it did, its context and its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from crossdock.administration.explain import ExplainedMessage, ExplainedSubscription
from crossdock.administration.messages import DescribedMessage
from crossdock.administration.service import Administration
from crossdock.administration.whole_message import WholeMessage
from crossdock.api.gate import Service, SignedIn
from crossdock.console.journey import picture_of
from crossdock.console.page import render
from crossdock.errors import NotAllowedError, UsageError

routes = APIRouter(include_in_schema=False)
_SUBSCRIPTIONS = 50
_AT_ONCE = 1_000  # subscriptions that are explained with the page itself
Text = Annotated[str, Query(max_length=500)]


@routes.get("/messages/{id_}")
def message(
    request: Request,
    service: Service,
    id_: str,
    filters: str = "then",
    subscription: Text = "",
    every: bool = False,
    whole: bool = False,
) -> HTMLResponse:
    looked_at = service.whole_message(id_)
    found, traced = looked_at.described(), looked_at.traced()
    later = not (whole or every or subscription) and _many_subscriptions(service)
    return render(
        request,
        "message.html",
        picture=picture_of(traced),
        events=traced.events,
        promoted=_own_first(found.promoted),
        suspended=[each for each in found.copies if each.state in ("suspended", "unrouted")],
        why_later=later,
        **(_nothing_yet(found, filters) if later else _why(looked_at, found, filters, subscription, every=every)),
    )


@routes.get("/messages/{id_}/why")
def why(request: Request, service: Service, id_: str, filters: str = "then") -> HTMLResponse:
    """Why it went where it did, as a piece of its page: it takes long where there are ten thousand subscriptions."""
    looked_at = service.whole_message(id_)
    return render(request, "why.html", **_why(looked_at, looked_at.described(), filters, "", every=False))


def _many_subscriptions(service: Administration) -> bool:
    sample = service.newest_sample()
    return sample is not None and len(sample.details.services) + sample.box.ports_left_out > _AT_ONCE


def _nothing_yet(found: DescribedMessage, filters: str) -> dict[str, Any]:
    return {"message": found, "now": filters == "now", "subscription": ""}


def _why(
    looked_at: WholeMessage, found: DescribedMessage, filters: str, subscription: str, *, every: bool
) -> dict[str, Any]:
    """What the template of the reasons shows."""
    now = filters == "now"
    most = None if every else _SUBSCRIPTIONS
    explained, problem = _explained(looked_at, now=now, subscription=subscription or None, most=most)
    return {
        "message": found,
        "why": explained,
        "why_problem": problem,
        "subscriptions": [] if explained is None else _ranked(explained.subscriptions),
        "more_subscriptions": 0 if explained is None else explained.left_out,
        "nearest": [] if explained is None else explained.nearest,
        "now": now,
        "subscription": subscription,
    }


def _explained(
    looked_at: WholeMessage, *, now: bool, subscription: str | None, most: int | None
) -> tuple[ExplainedMessage | None, str | None]:
    try:
        return looked_at.explained(subscription=subscription, now=now, most=most), None
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
