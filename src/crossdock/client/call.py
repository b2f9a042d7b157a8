"""One request to the API, and what its answer is read as; problems become the errors that the service itself raises."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from inspect import Parameter, signature
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from crossdock.administration.messages import MessageRow
from crossdock.administration.samples import Sample
from crossdock.errors import (
    ApplicationError,
    CrossdockError,
    NotAllowedError,
    OutdatedPlanError,
    TransientError,
    UnavailableError,
    UsageError,
)

API = "/api/v1"
PROBLEM = "application/problem+json"
Result = TypeVar("Result")
Item = TypeVar("Item")
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some of a list. `next` is the cursor of those that follow; None at the end."""

    items: Sequence[Item]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePage(Page[MessageRow]):
    """Messages, the newest first. `looked_at` were compared for this page."""

    looked_at: int = 0


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """A request. Its answer is read as `type`: bytes as they are, None as nothing, anything else from JSON."""

    method: str
    path: str
    type: Any
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def asked(self) -> dict[str, Any]:
        """As httpx takes it."""
        given = {name: _text(value) for name, value in self.params.items() if value is not None}
        made: dict[str, Any] = {"method": self.method, "url": API + self.path, "params": given, "headers": self.headers}
        return made if self.json is None else {**made, "json": self.json}

    def read(self, response: httpx.Response) -> Result:
        """What it answered. Raises the error that the problem is."""
        if response.status_code >= 300:
            raise error_of(response)
        if self.type is bytes:
            return response.content  # type: ignore[return-value]
        if self.type is None:
            return None  # type: ignore[return-value]
        return decoded(response.content, self.type)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Problem:
    detail: str
    code: str = ""


def as_method(send: Method, call: Callable[..., Call[Any]]) -> Method:
    """What sends a call, with the name, the text and the parameters that the call has, for `help` and editors."""
    update_wrapper(send, call)
    known = signature(call)
    parameters = [Parameter("self", Parameter.POSITIONAL_ONLY), *known.parameters.values()]
    answer = str(known.return_annotation).removeprefix("Call[").removesuffix("]")
    send.__signature__ = known.replace(parameters=parameters, return_annotation=answer)  # type: ignore[attr-defined]
    return send


def decoded(content: bytes, type_: Any) -> Any:
    try:
        return msgspec.json.decode(content, type=type_, strict=False)
    except msgspec.DecodeError as error:
        raise UnavailableError(f"The console answers otherwise than this Crossdock understands: {error}.") from error


def error_of(response: httpx.Response) -> CrossdockError:
    """The error that an answer tells of, with its sentence."""
    if not response.headers.get("content-type", "").startswith(PROBLEM):
        return UnavailableError(
            f"{response.url.host} answers with {response.status_code}, and not as a console. Is the address right?"
        )
    problem: _Problem = decoded(response.content, _Problem)
    status, detail = response.status_code, problem.detail
    match status:
        case 401 | 403 | 421:
            return NotAllowedError(detail)
        case 412:
            return OutdatedPlanError(detail)
        case 429:
            return TransientError(detail)
        case 503:
            return UnavailableError(detail) if problem.code == UnavailableError.code else TransientError(detail)
        case 422 if problem.code.endswith(("application-wrong", "filter-wrong", "property-wrong")):
            return ApplicationError(detail)
        case _ if status < 500:
            return UsageError(detail)
        case _:
            return CrossdockError(detail)


def unreachable(url: str, error: httpx.HTTPError) -> CrossdockError:
    """What to say if nothing was answered."""
    if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol):
        return UnavailableError(f"The console at {url} cannot be reached: {_reason(error)}. Is it running there?")
    return TransientError(f"The console at {url} has not answered: {_reason(error)}.")


def headers_of(token: str, reason: str) -> list[tuple[bytes, bytes]]:
    """Who asks, and why: as UTF-8, in one line."""
    said = {"authorization": f"Bearer {token}", **({"x-crossdock-reason": " ".join(reason.split())} if reason else {})}
    return [(name.encode(), value.encode()) for name, value in said.items()]


def sample_of(line: str) -> Sample | None:
    """The sample in a line of a stream of events; None for any other line."""
    data = line.removeprefix("data: ")
    found: Sample | None = decoded(data.encode(), Sample) if data != line and data.startswith("{") else None
    return found


def in_path(name: str) -> str:
    """A name as a piece of a path; one with a slash stays in one piece for the server."""
    return quote(name, safe="")


def _reason(error: httpx.HTTPError) -> str:
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)).strip().rstrip(".") or type(error).__name__


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
