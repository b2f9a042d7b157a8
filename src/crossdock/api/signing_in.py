"""Signing in and out with a browser: the address with the one-time token, and the form of the page `/sign-in`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from crossdock.api.gate import Gate
from crossdock.api.problems import ProblemError
from crossdock.api.sessions import LIFETIME_SECONDS

SIGN_IN = "/sign-in"
routes = APIRouter(include_in_schema=False)


@routes.post("/session")
def sign_in(
    request: Request,
    token: Annotated[str, Form()] = "",
    user: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
    wanted: Annotated[str, Form(alias="next")] = "/",
) -> Response:
    """Sign in with a token, or with user and password, and go on where `next` says.

    If they are wrong, back to `/sign-in` with `problem`, the code of what is wrong.
    """
    return begun(request, wanted, token=token, user=user, password=password)


@routes.post("/session/end")
def sign_out(request: Request) -> Response:
    """End the session of this browser."""
    gate: Gate = request.app.state.gate
    gate.sessions.end(request.cookies.get(gate.options.cookie, ""))
    response = RedirectResponse(SIGN_IN, 303)
    response.delete_cookie(gate.options.cookie, path="/", httponly=True, samesite="strict")
    return response


class FirstVisit:
    """Takes the one-time token from the address, so that it is in no page, no history and no log of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/"
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0] if asked else ""
        if not token:
            await self._app(scope, receive, send)
            return
        response = await run_in_threadpool(begun, Request(scope, receive), "/", token=token)
        await response(scope, receive, send)


def begun(request: Request, target: str, *, token: str = "", user: str = "", password: str = "") -> Response:
    """Signed in, or back to the form."""
    gate: Gate = request.app.state.gate
    try:
        cookie = gate.sign_in(request, token=token, user=user, password=password)
    except ProblemError as error:
        asked = {"problem": error.code, "next": own_path(target)}
        return RedirectResponse(f"{SIGN_IN}?{urlencode(asked)}", 303, error.headers)
    return with_session(request, cookie, target)


def with_session(request: Request, cookie: str, target: str) -> Response:
    """Go on at a path of ours, signed in."""
    gate: Gate = request.app.state.gate
    response = RedirectResponse(own_path(target), 303)
    response.set_cookie(
        gate.options.cookie,
        cookie,
        LIFETIME_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def own_path(target: str) -> str:
    """A path of ours; anything else is the first page."""
    own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if own else "/"
