"""`/messages`: search what is tracked in the language of filters; every search is an address that can be kept."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.responses import Response

from crossdock.administration.message_state import STATES
from crossdock.administration.messages import MessagePage, MessageRow
from crossdock.administration.service import Administration
from crossdock.api.gate import Service
from crossdock.console.page import render
from crossdock.console.shown import may_agree, query
from crossdock.errors import UsageError

routes = APIRouter(include_in_schema=False)
_PAGE = 50
_LOOKED_AT = 500  # for one page: whoever wants more goes on from there
_EXPORTED = 10_000
_SPANS = ("15m", "1h", "6h", "24h", "7d")
_COLUMNS = ("id", "type", "received_at", "location", "state", "ports", "application", "source", "code", "reason")
_ID = re.compile(r"[0-9]{1,15}-[0-9]{1,11}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
Text = Annotated[str, Query(max_length=4_000)]


@routes.get("/messages")
def messages(
    request: Request,
    service: Service,
    q: Text = "",
    type: Text = "",  # noqa: A002 - the name in the address
    port: Text = "",
    state: Text = "",
    since: Text = "",
    until: Text = "",
    before: Text = "",
    personal: bool = False,
) -> Response:
    if _ID.fullmatch(q.strip()):
        return RedirectResponse(f"/messages/{q.strip()}", 303)
    asked = {"q": q, "type": type, "port": port, "state": state, "since": since, "until": until, "personal": personal}
    page, problem = MessagePage([], None, 0), None
    try:
        page = _search(service, asked, limit=_PAGE, before=before or None, look_at=_LOOKED_AT)
    except UsageError as error:
        problem = str(error)
    return render(
        request,
        "messages.html",
        status=200 if problem is None else 400,
        rows=page.messages,
        next=None if page.before is None else query(**asked, before=page.before),
        looked_at=page.looked_at,
        asked=asked,
        asked_query=query(**asked),
        first=not before,
        problem=problem,
        may_ask_personal=may_agree(problem),
        states=STATES,
        spans=_SPANS,
        views=service.views.list(),
    )


@routes.get("/messages/export")
def export(
    service: Service,
    format: str = "csv",  # noqa: A002 - the name in the address
    q: Text = "",
    type: Text = "",  # noqa: A002 - the name in the address
    port: Text = "",
    state: Text = "",
    since: Text = "",
    until: Text = "",
    personal: bool = False,
) -> StreamingResponse:
    """What the search finds, page by page: at most ten thousand messages."""
    asked = {"q": q, "type": type, "port": port, "state": state, "since": since, "until": until, "personal": personal}
    first = _search(service, asked, limit=500, before=None, look_at=20_000)
    rows = _pages(service, asked, first)
    as_csv = format != "jsonl"
    return StreamingResponse(
        _csv(rows) if as_csv else _lines(rows),
        media_type="text/csv; charset=utf-8" if as_csv else "application/jsonl; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="messages.{"csv" if as_csv else "jsonl"}"'},
    )


def _search(
    service: Administration, asked: dict[str, Any], *, limit: int, before: str | None, look_at: int
) -> MessagePage:
    given = {name: value or None for name, value in asked.items()}
    return service.messages(
        where=given["q"],
        type_=given["type"],
        port=given["port"],
        state=given["state"],
        since=given["since"],
        until=given["until"],
        personal=bool(given["personal"]),
        limit=limit,
        before=before,
        look_at=look_at,
    )


def _pages(service: Administration, asked: dict[str, Any], page: MessagePage) -> Iterator[MessageRow]:
    count = 0
    while True:
        yield from page.messages
        count += len(page.messages)
        if page.before is None or count >= _EXPORTED:
            return
        page = _search(service, asked, limit=min(500, _EXPORTED - count), before=page.before, look_at=20_000)


def _csv(rows: Iterator[MessageRow]) -> Iterator[str]:
    yield ",".join(_COLUMNS) + "\r\n"
    for row in rows:
        out = io.StringIO()
        csv.writer(out).writerow([_cell(getattr(row, name)) for name in _COLUMNS])
        yield out.getvalue()


def _cell(value: object) -> str:
    """A spreadsheet takes a text that begins with such a character for a formula: it gets an apostrophe."""
    if isinstance(value, datetime):
        return value.isoformat()
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _lines(rows: Iterator[MessageRow]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(asdict(row), default=str, ensure_ascii=False) + "\n"
