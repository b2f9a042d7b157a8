"""The routes of `/api/v1`: lists, messages, what is suspended, acts, deploying, access, and saved views."""

from __future__ import annotations

from fastapi import APIRouter

from crossdock.api.problems import ProblemDocument
from crossdock.api.routes import access, acts, deploying, lists, live, messages, suspended, views

MODULES = (lists, messages, suspended, acts, deploying, access, views, live)


def api_routes() -> APIRouter:
    """All of them."""
    problem = {"model": ProblemDocument, "content": {"application/problem+json": {}}}
    told = {401: "Nobody has signed in.", 403: "The person may not do this.", 503: "The MessageBox is away."}
    routes = APIRouter(responses={status: {**problem, "description": text} for status, text in told.items()})
    for module in MODULES:
        routes.include_router(module.routes)
    return routes
