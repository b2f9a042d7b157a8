"""Saved views: searches for messages that people keep."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from crossdock.administration.views import SavedView
from crossdock.api.answers import AnsweredOnce
from crossdock.api.gate import Service

routes = APIRouter(tags=["views"], route_class=AnsweredOnce)


class SavingView(BaseModel):
    """The query of an address of the page `/messages`: `type=Order&state=suspended`."""

    query: str = Field(max_length=10_000)


@routes.get("/views", operation_id="views")
def views(service: Service) -> Sequence[SavedView]:
    """Searches for messages that you keep, by name. `/views/ID` of the console opens one, for others too."""
    return service.views.list()


@routes.put("/views/{name:path}", operation_id="save_view")
def save_view(service: Service, name: str, saving: SavingView) -> SavedView:
    """Keep a search under a name, instead of the one that had the name. Its id stays."""
    return service.views.save(name, saving.query)


@routes.delete("/views/{name:path}", operation_id="delete_view", status_code=204)
def delete_view(service: Service, name: str) -> Response:
    """Forget a search of yours. Links to it lead nowhere from here on."""
    service.views.delete(name)
    return Response(status_code=204)
