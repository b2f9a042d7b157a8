"""Requests with an Idempotency-Key: done once, and answered again with what was answered first, for a day."""

from __future__ import annotations

from hashlib import sha256

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from crossdock.administration.open_box import Answers, OpenBox
from crossdock.api.gate import signed_in
from crossdock.api.guarded import Guarded, Handler
from crossdock.api.problems import ProblemError
from crossdock.api.safety import SAFE_METHODS
from crossdock.errors import ApplicationError, UsageError

KEY = "idempotency-key"
_KEY_LIMIT = 200
_KEPT_HEADERS = ("content-type", "location", "etag")
_NOTHING_DONE = (UsageError, ApplicationError, ProblemError, RequestValidationError, HTTPException)
# Of these only that they were answered is kept: the MessageBox does not keep what nobody is shown twice.
_SHOWN_ONCE = frozenset({"create_token"})


class AnsweredOnce(Guarded):
    """A route that keeps its answers to whoever gives a key."""

    def answering(self, handle: Handler) -> Handler:
        async def handler(request: Request) -> Response:
            key = request.headers.get(KEY)
            if key is None or request.method in SAFE_METHODS:
                return await handle(request)
            return await _once(request, key, handle, keeps=self.operation_id not in _SHOWN_ONCE)

        return handler


async def _once(request: Request, key: str, handle: Handler, *, keeps: bool) -> Response:
    if not 0 < len(key) <= _KEY_LIMIT or not key.isprintable():
        raise ProblemError(400, "request-wrong", f"An Idempotency-Key has 1 to {_KEY_LIMIT} printable characters.")
    person = (await run_in_threadpool(signed_in, request)).name
    box: OpenBox = request.app.state.box
    answers = box.answers
    digest = _digest(request, await request.body())
    known = await run_in_threadpool(answers.begin_answer, person, key, digest)
    if known is None:
        return await _answered(answers, person, key, request, handle, keeps=keeps)
    if known.request != digest:
        raise ProblemError(422, "key-used", "This Idempotency-Key was used for another request.")
    if known.status is None:
        raise ProblemError(
            409,
            "in-progress",
            "A request with this Idempotency-Key was begun, and what became of it is not known. "
            "Look before you ask again with another key.",
        )
    if not keeps:
        raise ProblemError(
            409, "shown-once", "This was done, and its answer is shown once. If you have lost it, undo what was done."
        )
    return Response(known.content or b"", known.status, {**(known.headers or {}), "idempotency-replayed": "true"})


async def _answered(
    answers: Answers, person: str, key: str, request: Request, handle: Handler, *, keeps: bool
) -> Response:
    try:
        response = await handle(request)
    except _NOTHING_DONE:
        await run_in_threadpool(answers.drop_answer, person, key)
        raise
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    content = bytes(response.body) if keeps else b""
    await run_in_threadpool(answers.keep_answer, person, key, response.status_code, content, headers)
    return response


def _digest(request: Request, body: bytes) -> bytes:
    asked = f"{request.method} {request.url.path}?{request.url.query}\n"
    return sha256(asked.encode("utf-8", "surrogateescape") + body).digest()
