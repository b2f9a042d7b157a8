"""`/views/ID`: a saved search for messages, for whoever has the link. Its owner saves and deletes it on `/messages`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse

from crossdock.api.gate import Service
from crossdock.api.guarded import Guarded
from crossdock.console.page import redirect

routes = APIRouter(include_in_schema=False, route_class=Guarded)
Field = Annotated[str, Form(max_length=10_000)]


@routes.get("/views/{id_}")
def view(service: Service, id_: str) -> RedirectResponse:
    query = service.views.find(id_).query
    return RedirectResponse(f"/messages?{query}" if query else "/messages", 303)


@routes.post("/views")
def save(request: Request, service: Service, name: Field, query: Field = "") -> RedirectResponse:
    """The search that is shown, under a name."""
    saved = service.views.save(name, query)
    return redirect(request, _address(saved.query), f"The view {saved.name} is saved. Its link is for others too.")


@routes.post("/views/delete")
def delete(request: Request, service: Service, name: Field, query: Field = "") -> RedirectResponse:
    service.views.delete(name)
    return redirect(request, _address(query), f"The view {name} is deleted.")


def _address(query: str) -> str:
    query = query.lstrip("?")
    return f"/messages?{query}" if query else "/messages"
