"""`/audit`: who did what, when, and what was refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from crossdock.api.gate import Service
from crossdock.console.page import render
from crossdock.console.shown import query, short
from crossdock.errors import UsageError

routes = APIRouter(include_in_schema=False)
_PAGE = 50
Text = Annotated[str, Query(max_length=500)]


@routes.get("/audit")
def audit(
    request: Request,
    service: Service,
    person: Text = "",
    action: Text = "",
    since: Text = "",
    before: int | None = None,
) -> HTMLResponse:
    asked = {"person": person, "action": action, "since": since}
    rows, problem = [], None
    try:
        rows = list(
            service.audit(
                since=since or None, person=person or None, action=action or None, limit=_PAGE + 1, before=before
            )
        )
    except UsageError as error:
        problem = str(error)
    shown = [(row, _facts(row.before), _facts(row.after)) for row in rows[:_PAGE]]
    return render(
        request,
        "audit.html",
        status=200 if problem is None else 400,
        rows=shown,
        asked=asked,
        filtered=any(asked.values()),
        next=query(**asked, before=rows[_PAGE - 1].number) if len(rows) > _PAGE else None,
        first=before is None,
        problem=problem,
    )


def _facts(value: Any) -> list[tuple[str, str]]:
    """What was recorded of the thing, as names and texts."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        return [("", str(value))]
    return [(str(name), _fact(each)) for name, each in value.items()]


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_fact, value)) or "none"
    return short(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
