"""`/instances` and `/instances/ID`: running orchestrations, what each has done, and what it waits for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from crossdock.administration.by_page import InstancePage
from crossdock.administration.instances import STATES, DescribedInstance, ShownStep
from crossdock.administration.service import Selection
from crossdock.api.gate import Service
from crossdock.api.guarded import Guarded
from crossdock.console.page import redirect, render
from crossdock.console.shown import may_agree, query
from crossdock.errors import UsageError

routes = APIRouter(include_in_schema=False, route_class=Guarded)
Text = Annotated[str, Query(max_length=4_000)]
_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_STEPS = 200


@dataclass(frozen=True, slots=True)
class EventText:
    """What had happened before a step; `message` is the id in it, if there is one."""

    before: str
    message: str | None
    after: str


@routes.get("/instances")
def instances(
    request: Request,
    service: Service,
    state: Text = "",
    orchestration: Text = "",
    q: Text = "",
    personal: bool = False,
    after: Text = "",
) -> HTMLResponse:
    asked = {"state": state, "orchestration": orchestration, "q": q, "personal": personal}
    page, problem = InstancePage([], None, 0), None
    try:
        page = service.instance_page(
            after=after or None,
            state=state or None,
            orchestration=orchestration or None,
            where=q or None,
            personal=personal,
        )
    except UsageError as error:
        problem = str(error)
    return render(
        request,
        "instances.html",
        status=200 if problem is None else 400,
        rows=page.instances,
        looked_at=page.looked_at,
        next=None if page.after is None else query(**asked, after=page.after),
        first=not after,
        asked=asked,
        asked_query=query(**asked),
        filtered=any(asked.values()),
        states=STATES,
        sample=service.newest_sample(),
        problem=problem,
        may_ask_personal=may_agree(problem),
    )


@routes.get("/instances/{id_}")
def instance(request: Request, service: Service, id_: str, every: bool = False) -> HTMLResponse:
    found = service.describe(id_)
    if not isinstance(found, DescribedInstance):
        raise UsageError(f"There is no instance {id_}: this is the id of a message.")
    steps = found.steps if every else found.steps[-_STEPS:]
    return render(
        request,
        "instance.html",
        instance=found,
        steps=[(step, _events(step)) for step in steps],
        left_out=len(found.steps) - len(steps),
        sent=service.sent_by(found.id),
    )


def _events(step: ShownStep) -> Sequence[EventText]:
    made = []
    for text in step.events:
        match = _ID.search(text)
        if match is None:
            made.append(EventText(text, None, ""))
        else:
            made.append(EventText(text[: match.start()], match.group(), text[match.end() :]))
    return made


@routes.post("/instances/{id_}/{verb}")
def act(request: Request, service: Service, id_: str, verb: str, there: Annotated[str, Form()] = "") -> Response:
    """Resume, cancel or terminate one instance; then show it, or the list if it is gone."""
    back = f"/instances/{id_}" if there != "list" else "/instances"
    if verb == "cancel":
        [cancelled] = service.cancel([id_])
        return redirect(
            request,
            back,
            f"{cancelled.orchestration} {cancelled.result}.",
            "good" if cancelled.result.startswith("is being") else "wait",
        )
    if verb not in ("resume", "terminate"):
        raise UsageError(f"There is no act {verb!r} for an instance.")
    chosen = service.choose(verb, Selection(ids=[id_]))
    [outcome] = list(service.resume(chosen) if verb == "resume" else service.terminate(chosen))
    gone = verb == "terminate" and outcome.done
    return redirect(
        request,
        "/instances" if gone else back,
        f"{outcome.port} {outcome.result}.",
        "good" if outcome.done else "wait",
    )
