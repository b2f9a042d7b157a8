"""`install` puts the pages into the application that `crossdock.api.app` makes. Each page has a module of its name."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from crossdock.api.problems import Problem
from crossdock.console import (
    audit,
    codes,
    edit,
    hosts,
    instances,
    message,
    messages,
    overview,
    plan,
    ports,
    sign_in,
    suspended,
    views,
)
from crossdock.console.page import FOLDER, Notices, environment, render

_TITLES = {
    400: "That cannot be asked",
    403: "You may not do this",
    404: "There is nothing here",
    409: "Something has changed meanwhile",
    410: "This is over",
    412: "Something has changed meanwhile",
    422: "That is not as it should be",
    429: "Too many requests",
    503: "The MessageBox is away",
}


def install(app: FastAPI) -> None:
    """The pages, their files, and the page that shows an error."""
    app.state.pages = environment()
    app.state.pages.tests["known_code"] = lambda code: code in codes.codes()
    app.state.notices = Notices()
    app.state.error_page = error_page
    # The export is at /messages/export, which a message must not take for an id: lists come before what is in them.
    for page in (
        overview,
        messages,
        message,
        edit,
        suspended,
        ports,
        instances,
        plan,
        hosts,
        audit,
        views,
        codes,
        sign_in,
    ):
        app.include_router(page.routes)
    app.mount("/static", StaticFiles(directory=FOLDER / "static"), name="static")


def error_page(request: Request, problem: Problem) -> Response:
    """The sentence of an error as a page, or as a piece of one if htmx asked for that."""
    title = _TITLES.get(problem.status, problem.title)
    if request.headers.get("hx-request"):
        return render(request, "problem.html", status=problem.status, text=problem.detail)
    # A person is there only if it was asked for before the error came.
    page: HTMLResponse = render(
        request, "error.html", status=problem.status, title=title, text=problem.detail, back=_back(request)
    )
    return page


def _back(request: Request) -> str:
    """The list that the page belongs to."""
    first = request.url.path.strip("/").partition("/")[0]
    return f"/{first}" if first in ("messages", "suspended", "ports", "instances", "plan", "audit", "hosts") else "/"
