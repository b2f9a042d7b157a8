"""`/hosts`: the hosts, their living instances, and what they have to do."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from crossdock.api.gate import Service
from crossdock.console.page import render

routes = APIRouter(include_in_schema=False)


@routes.get("/hosts")
def hosts(request: Request, service: Service) -> HTMLResponse:
    return render(request, "hosts.html", hosts=service.living_hosts(), sample=service.newest_sample())
