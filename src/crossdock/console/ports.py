"""`/ports`: the routes as a graph, ports and locations with their states, and a filter tried on recent traffic."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from crossdock.api.gate import Service
from crossdock.api.guarded import Guarded
from crossdock.console.graph import graph_of
from crossdock.console.page import local, redirect, render
from crossdock.console.shown import query
from crossdock.errors import UsageError

routes = APIRouter(include_in_schema=False, route_class=Guarded)
_PAGE = 50
_TRIED = 1_000
Text = Annotated[str, Query(max_length=10_000)]
Field = Annotated[str, Form(max_length=2_000)]
_STATES = ("started", "stopped", "unenlisted")


@routes.get("/ports")
def ports(
    request: Request,
    service: Service,
    application: Text = "",
    state: Text = "",
    search: Text = "",
    after: Text = "",
    after_location: Text = "",
) -> HTMLResponse:
    asked = {"application": application, "state": state, "search": search}
    found = service.port_page(
        limit=_PAGE + 1,
        after=after,
        application=application or None,
        state=state or None,
        search=search or None,
    )
    locations = service.location_page(
        limit=_PAGE + 1, after=after_location, application=application or None, search=search or None
    )
    routes_found = service.routes(application=application or None)
    return render(
        request,
        "ports.html",
        graph=graph_of(routes_found, service.now()),
        routes=routes_found,
        ports=found[:_PAGE],
        next=query(**asked, after=found[_PAGE - 1].name) if len(found) > _PAGE else None,
        locations=locations[:_PAGE],
        next_locations=query(**asked, after_location=locations[_PAGE - 1].name) if len(locations) > _PAGE else None,
        groups=service.groups() if not (search or state or after) else [],
        applications=[each.name for each in service.applications()],
        asked=asked,
        asked_query=query(**asked),
        filtered=any(asked.values()),
        states=_STATES,
    )


@routes.post("/ports/act")
def act(request: Request, service: Service, name: Field, verb: Field, back: Field = "/ports") -> Response:
    """Start, stop, enlist or unenlist a port, a group or an orchestration; enable or disable a location."""
    to = local(back, "/ports")
    if verb in ("enable", "disable"):
        changed = service.enable(name) if verb == "enable" else service.disable(name)
        said = f"{name} is {verb}d." if changed else f"{name} was {verb}d already."
        return redirect(request, to, said, "good" if changed else "wait")
    verbs = {"start": service.start, "stop": service.stop, "enlist": service.enlist, "unenlist": service.unenlist}
    if verb not in verbs:
        raise UsageError(f"There is no act {verb!r} for a port.")
    done = verbs[verb](name)
    text = f"{name}: {verb} is done."
    if done.resumed:
        text = f"{name}: {verb} is done, and {done.resumed:,} suspended deliveries go on."
    return redirect(
        request,
        to,
        text if done.before != done.after else f"{name} was so already.",
        "good" if done.before != done.after else "wait",
    )


@routes.get("/ports/try")
def try_filter(
    request: Request,
    service: Service,
    port: Text = "",
    filter: Text | None = None,  # noqa: A002 - the name in the address
    since: Text = "",
) -> HTMLResponse:
    """What another filter would have gained and lost, of the newest messages."""
    known = {each.name: each for each in service.find_ports([port])} if port else {}
    entry = known.get(port)
    tried, problem = None, None
    text = filter if filter is not None else "" if entry is None else entry.filter
    if filter:
        try:
            tried = service.try_filter(filter, port=port or None, since=since or None, limit=_TRIED)
        except UsageError as error:
            problem = str(error)
    return render(
        request,
        "try.html",
        status=200 if problem is None else 400,
        port=port,
        entry=entry,
        filter=text,
        since=since,
        tried=tried,
        problem=problem,
    )
