"""Signing in and out with a browser: the address with the one-time token, and the form of the page `/sign-in`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from html import escape
from typing import Annotated
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from crossdock.api.gate import Gate
from crossdock.api.oidc import BACK, Provider
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


@routes.get("/session/oidc")
def to_provider(request: Request, wanted: Annotated[str, Query(alias="next")] = "/") -> Response:
    """Send the browser to the provider that is configured."""
    provider, browser = _provider(request), secrets.token_urlsafe(32)
    response = RedirectResponse(provider.begin(browser, own_path(wanted), _back(request)), 303)
    # Lax: the browser has to bring it when the provider sends it back.
    response.set_cookie(
        _begun_cookie(request), browser, 600, path=BACK, httponly=True, samesite="lax", secure=_secure(request)
    )
    return response


@routes.get(BACK)
def from_provider(request: Request, state: str = "", code: str = "") -> Response:
    """The browser comes back. The page goes on by itself: a redirect would not bring the strict cookie along."""
    gate: Gate = request.app.state.gate
    browser = request.cookies.get(_begun_cookie(request), "")
    try:
        person, target = _provider(request).finish(browser, state, code, _back(request))
        cookie = gate.sign_in_as(person)
    except ProblemError as error:
        return RedirectResponse(f"{SIGN_IN}?{urlencode({'problem': error.code})}", 303)
    page = f'<!doctype html><title>Signed in</title><meta http-equiv="refresh" content="0;url={escape(target)}">'
    response = HTMLResponse(page)
    _set_session(request, response, cookie)
    response.delete_cookie(_begun_cookie(request), path=BACK)
    return response


def _provider(request: Request) -> Provider:
    gate: Gate = request.app.state.gate
    if gate.provider is None:
        raise ProblemError(404, "not-found", "Nobody signs in by OpenID Connect here.")
    return gate.provider


def _back(request: Request) -> str:
    gate: Gate = request.app.state.gate
    given = gate.options.oidc.back if gate.options.oidc is not None else ""
    return given or f"{'https' if _secure(request) else 'http'}://{request.headers['host']}{BACK}"


def _begun_cookie(request: Request) -> str:
    gate: Gate = request.app.state.gate
    return f"crossdock_oidc_{gate.options.port}"


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
        response = await run_in_threadpool(_begun_once, Request(scope, receive), token)
        await response(scope, receive, send)


def begun(request: Request, target: str, *, token: str = "", user: str = "", password: str = "") -> Response:
    """Signed in, or back to the form."""
    gate: Gate = request.app.state.gate
    return _begun(request, target, lambda: gate.sign_in(request, token=token, user=user, password=password))


def _begun_once(request: Request, token: str) -> Response:
    gate: Gate = request.app.state.gate
    return _begun(request, "/", lambda: gate.sign_in_once(request, token))


def _begun(request: Request, target: str, sign_in: Callable[[], str]) -> Response:
    try:
        cookie = sign_in()
    except ProblemError as error:
        asked = {"problem": error.code, "next": own_path(target)}
        return RedirectResponse(f"{SIGN_IN}?{urlencode(asked)}", 303, error.headers)
    return with_session(request, cookie, target)


def with_session(request: Request, cookie: str, target: str) -> Response:
    """Go on at a path of ours, signed in."""
    response = RedirectResponse(own_path(target), 303)
    _set_session(request, response, cookie)
    return response


def _set_session(request: Request, response: Response, cookie: str) -> None:
    gate: Gate = request.app.state.gate
    name, secure = gate.options.cookie, _secure(request)
    response.set_cookie(name, cookie, LIFETIME_SECONDS, path="/", httponly=True, samesite="strict", secure=secure)


def _secure(request: Request) -> bool:
    gate: Gate = request.app.state.gate
    return gate.options.https or request.url.scheme == "https"


def own_path(target: str) -> str:
    """A path of ours; anything else is the first page."""
    own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if own else "/"
