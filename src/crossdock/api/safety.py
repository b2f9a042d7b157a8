"""What protects browsers: which hosts are asked for, where a request comes from, how large it is, and what answers say.

A page of somebody else must not act with the cookie of a person, nor read an answer, nor show one in a frame.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossdock.api.options import AccessOptions
from crossdock.api.problems import Problem
from crossdock.api.sessions import COOKIE

SIZE_LIMIT_BYTES = 16 * 1024 * 1024
# Nobody is known yet who signs in.
_SIGNING_IN_BYTES, _SIGNING_IN = 64 * 1024, ("/session", "/session/end")
SIGNING_IN_SECONDS, BODY_SECONDS = 30.0, 300.0
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_STATIC = "/static/"


class Safety:
    """Refuses a request before anything else sees it, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, options: AccessOptions) -> None:
        self._app = app
        self._hosts = options.hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(scope, send)
        signing_in = scope["path"] in _SIGNING_IN
        most = _SIGNING_IN_BYTES if signing_in else SIZE_LIMIT_BYTES
        problem = self._refused(scope["method"], Headers(scope=scope), most)
        if problem is not None:
            await _refuse(scope, send, problem)
            return
        coming = _in_time(receive, SIGNING_IN_SECONDS if signing_in else BODY_SECONDS)
        await self._app(scope, limited(coming, most), send)

    def _refused(self, method: str, headers: Headers, most: int) -> Problem | None:
        if _host_of(headers.get("host", "")) not in self._hosts:
            return Problem(
                421, "host-unknown", "The console is not known by this name. Start it with --name, if it should be."
            )
        if method not in SAFE_METHODS and not _is_own(headers):
            return Problem(403, "foreign-page", "A request that changes something has to come from the console itself.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > most:
            return _too_large(most)
        return None


def _host_of(header: str) -> str:
    """The name that is asked for, without the port; nothing for what no browser sends."""
    try:
        return "" if "@" in header else (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_own(headers: Headers) -> bool:
    """Whether a page of ours, or no browser at all, asks.

    Every browser of today says with Sec-Fetch-Site where a request comes from. One without it and without an Origin is
    believed only if it brings no cookie.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    return COOKIE not in headers.get("cookie", "")


def _too_large(most: int) -> Problem:
    said = f"{most // 1024 // 1024} MB" if most >= 1024 * 1024 else f"{most // 1024} KB"
    return Problem(413, "request-too-large", f"This request has at most {said}.")


def limited(receive: Receive, most: int) -> Receive:
    """The same body, refused with 413 while it is read once there is more of it."""
    taken = 0

    async def limiting() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise HTTPException(413, _too_large(most).detail)  # which FastAPI lets pass while it reads a body
        return message

    return limiting


def _in_time(receive: Receive, seconds: float) -> Receive:
    """The same body, refused with 408 while it is read if it has not come whole by then."""
    until, whole = asyncio.get_running_loop().time() + seconds, False

    async def waiting() -> Message:
        nonlocal whole
        if whole:  # whoever waits now waits for the client to go
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, "The request took too long to come.") from None
        whole = not message.get("more_body", False)
        return message

    return waiting


def _with_headers(scope: Scope, send: Send) -> Send:
    stays = scope["path"].startswith(_STATIC)

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if not stays:
                headers["cache-control"] = "no-store"
        await send(message)

    return sending


async def _refuse(scope: Scope, send: Send, problem: Problem) -> None:
    document: Mapping[str, object] = problem.document(scope["path"])
    body = json.dumps(document).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # what follows may be meant for nobody
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
