"""`/sign-in`: the form for those whom the console does not know yet."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from crossdock.api.gate import Gate
from crossdock.console.page import local, render

routes = APIRouter(include_in_schema=False)
_PROBLEMS = {
    "not-signed-in": "The credentials are wrong, or no longer valid.",
    "too-many-mistakes": "Too many wrong credentials came from your address: wait a moment, and try again.",
}


@routes.get("/sign-in")
def sign_in(request: Request, next: str = "/", problem: str = "") -> HTMLResponse:  # noqa: A002 - the name in the address
    gate: Gate = request.app.state.gate
    options = gate.options
    return render(
        request,
        "sign_in.html",
        next=local(next, "/"),
        problem=_PROBLEMS.get(problem, "You could not be signed in.") if problem else None,
        passwords=options.passwords is not None,
        oidc=None if options.oidc is None else "/session/oidc",
    )
