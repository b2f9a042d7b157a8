"""Errors as answers: problem+json (RFC 9457) for the API, a page with the same sentence for a browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from crossdock.administration.open_box import OpenBox
from crossdock.administration.parameters import as_parameters
from crossdock.errors import (
    ApplicationError,
    CrossdockError,
    NotAllowedError,
    OutageError,
    OutdatedPlanError,
    ProblemError,
    TransientError,
    UnavailableError,
    UsageError,
)

__all__ = ["Problem", "ProblemDocument", "ProblemError", "answered", "install", "problem_of"]

# Codes of the console alone; the others are those of errors.
OWN_CODES = frozenset(
    {
        "cursor-wrong",
        "foreign-page",
        "host-unknown",
        "in-progress",
        "key-used",
        "method-not-allowed",
        "not-found",
        "not-signed-in",
        "preview-gone",
        "provider-away",
        "request-too-large",
        "request-wrong",
        "shown-once",
        "too-many-mistakes",
        "too-many-operations",
    }
)
_UNKNOWN = ("There is no ", "No message ")


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, in a sentence. `code` is that of the error; `errors` are wrong places of a request."""

    status: int
    code: str
    detail: str
    errors: tuple[Mapping[str, Any], ...] = ()

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase

    def document(self, instance: str) -> dict[str, Any]:
        made: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "instance": instance,
        }
        return {**made, "errors": list(self.errors)} if self.errors else made


class ProblemDocument(BaseModel):
    """A problem as the API answers it (RFC 9457). `type` is a page of the console that says what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str
    errors: list[dict[str, Any]] = []


ErrorPage = Callable[[Request, Problem], Response]


def problem_of(error: CrossdockError) -> Problem:
    """The status that says the same as the error."""
    return Problem(_status(error), error.code, str(error))


def _status(error: CrossdockError) -> int:
    match error:
        case NotAllowedError():
            return 403
        case OutdatedPlanError():
            return 412
        case UsageError() if str(error).startswith(_UNKNOWN):
            return 404
        case UsageError():
            return 400
        case ApplicationError():
            return 422
        case TransientError() | UnavailableError():
            return 503
        case _:
            return 500


def install(app: FastAPI) -> None:
    """Let every error of a request become an answer."""
    app.add_exception_handler(CrossdockError, _crossdock_error)
    app.add_exception_handler(ProblemError, _problem_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


def answered(request: Request, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """For the API problem+json; for a browser the page that the console made for errors, or where to sign in."""
    headers = {**(headers or {}), **({"Retry-After": "2"} if problem.status == 503 else {})}
    if is_api(request):
        document = problem.document(request.url.path)
        return JSONResponse(document, problem.status, headers, media_type="application/problem+json")
    if problem.status == 401:
        return _to_sign_in(request)
    page: ErrorPage | None = getattr(request.app.state, "error_page", None)
    response = PlainTextResponse(problem.detail, problem.status) if page is None else page(request, problem)
    response.headers.update(headers)
    return response


def is_api(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _to_sign_in(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = "/sign-in" if request.method != "GET" or wanted == "/" else f"/sign-in?next={quote(wanted, safe='/')}"
    if request.headers.get("hx-request"):  # htmx would put the sign-in page into a part of the page
        return Response(status_code=401, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)


def _crossdock_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CrossdockError)
    if isinstance(error, OutageError):
        box: OpenBox = request.app.state.box
        box.revive()
    problem = problem_of(error)
    if is_api(request) and isinstance(error, UsageError):
        problem = replace(problem, detail=as_parameters(problem.detail))
    return answered(request, problem)


def _problem_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return answered(request, Problem(error.status, error.code, error.detail), error.headers)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    places = tuple({"place": ".".join(map(str, each["loc"])), "wrong": str(each["msg"])} for each in error.errors())
    said = "; ".join(f"{each['place']}: {each['wrong']}" for each in places[:3])
    return answered(request, Problem(422, "request-wrong", f"The request is not as it should be: {said}", places))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = {404: "There is nothing at this address.", 405: f"{request.method} is not possible at this address."}
    detail = said.get(error.status_code, str(error.detail))
    code = {404: "not-found", 405: "method-not-allowed", 413: "request-too-large"}.get(
        error.status_code, "request-wrong"
    )
    return answered(request, Problem(error.status_code, code, detail), error.headers)


def _unexpected(request: Request, error: Exception) -> Response:
    detail = f"Unexpected {type(error).__name__}. The log of the console says where."
    return answered(request, Problem(500, "failed", detail))
