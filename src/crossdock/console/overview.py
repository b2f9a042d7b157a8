"""`/`: how the MessageBox is now, live, and how the last hours were. Every number leads to its list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from crossdock.administration.samples import Sample, ServiceSample
from crossdock.administration.service import Administration
from crossdock.api.gate import Service
from crossdock.console.page import render

routes = APIRouter(include_in_schema=False)
_SPANS = {"1h": (60, 1), "6h": (360, 5), "24h": (1440, 15)}  # minutes, and minutes in a step
_PORTS = 12


@routes.get("/")
def overview(request: Request, service: Service, span: str = "1h") -> HTMLResponse:
    sample = service.newest_sample()
    span = span if span in _SPANS else "1h"
    return render(
        request,
        "overview.html",
        sample=sample,
        ports=[] if sample is None else _busiest(sample),
        span=span,
        spans=list(_SPANS),
        chart=_chart(service, *_SPANS[span]),
    )


def _busiest(sample: Sample) -> Sequence[ServiceSample]:
    """What most needs looking at, then what is busiest."""
    return sorted(
        sample.details.services,
        key=lambda each: (
            -(each.suspended + each.suspended_instances),
            -(each.ready + each.claimed + each.waiting),
            -each.delivered_per_second,
            -each.delivered,
        ),
    )[:_PORTS]


def _chart(service: Administration, minutes: int, step: int) -> dict[str, Any]:
    """Seconds, received, delivered and failed, with zeros where nothing happened."""
    found = service.total_minutes(timedelta(minutes=minutes), timedelta(minutes=step))
    known = {int(each.at.timestamp()): each for each in found}
    if not known:
        return {"points": None, "steps": []}
    width = step * 60
    unfinished = int(service.now().timestamp()) // width * width
    last = max(max(known), unfinished)
    if last == unfinished and len(known) > 1:  # a step that is not over looks as if everything had stopped
        last -= width
    times = range(last - minutes * 60 + 2 * width, last + width, width)
    rows = [known.get(at) for at in times]
    columns = [
        [0 if row is None else getattr(row, name) for row in rows] for name in ("received", "delivered", "failed")
    ]
    return {"points": [list(times), *columns], "steps": found[-12:]}
