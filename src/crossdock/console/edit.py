"""`/suspended/ID/edit`: change a suspended message for exactly one subscriber, see the difference, and deliver it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Annotated

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from crossdock.administration.service import Editable
from crossdock.api.gate import Service
from crossdock.api.guarded import Guarded
from crossdock.console.page import redirect, render
from crossdock.errors import UsageError

routes = APIRouter(include_in_schema=False, route_class=Guarded)
_IN_PAGE = 64 * 1024
_DIFFERENCE_LINES = 400


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """A line of the difference; `kind` is added, removed or same."""

    kind: str
    text: str


@routes.get("/suspended/{id_}/edit")
def edit_page(
    request: Request, service: Service, id_: str, port: Annotated[str, Query(max_length=500)] = ""
) -> HTMLResponse:
    what = service.editable(id_, port or None)
    return _page(request, what, body=_text(what), properties="")


@routes.post("/suspended/{id_}/edit")
def edit(
    request: Request,
    service: Service,
    id_: str,
    port: Annotated[str, Form(max_length=500)],
    act: Annotated[str, Form()],
    body: Annotated[str | None, Form()] = None,
    properties: Annotated[str, Form(max_length=20_000)] = "",
    file: Annotated[UploadFile | None, File()] = None,
) -> Response:
    """Show the difference, or deliver the message as it is now to the one subscriber."""
    what = service.editable(id_, port or None)
    wanted = [line.strip() for line in properties.splitlines() if line.strip()]
    uploaded = file.file.read() if file is not None and file.filename else None
    new = uploaded if uploaded is not None else None if body is None else _bytes(what, body)
    if act != "deliver":
        changed = difference(_text(what), None if new is None else _decoded(new))
        return _page(request, what, body=body, properties=properties, changed=changed)
    try:
        done = service.edit(what, body=new, properties=wanted)
    except UsageError as error:
        return _page(request, what, body=body, properties=properties, problem=str(error), status=400)
    kept = f" These properties stay as they were: {', '.join(done.kept)}." if done.kept else ""
    return redirect(request, f"/messages/{done.id}", f"{done.port}: {done.result}, as message {done.edited_id}.{kept}")


def _page(
    request: Request,
    what: Editable,
    *,
    body: str | None,
    properties: str,
    changed: Sequence[ChangedLine] | None = None,
    problem: str | None = None,
    status: int = 200,
) -> HTMLResponse:
    return render(
        request,
        "edit.html",
        status=status,
        row=what.row,
        promoted={
            name: str(value)
            for name, value in sorted(what.message.context.promoted.items(), key=lambda each: ("." in each[0], each[0]))
        },
        body=body,
        properties=properties,
        changed=changed,
        problem=problem,
        bytes=what.row.bytes,
    )


def _text(what: Editable) -> str | None:
    """The body, if it is a text that a page can hold."""
    return None if what.row.bytes > _IN_PAGE else _decoded(what.message.body)


def _decoded(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or len(body) > _IN_PAGE else text


def _bytes(what: Editable, body: str) -> bytes:
    """A form sends every line end as CR LF: where the message had none of these, they are LF again."""
    return (body if b"\r\n" in what.message.body else body.replace("\r\n", "\n")).encode()


def difference(before: str | None, after: str | None) -> list[ChangedLine]:
    """What is another in the body, line by line."""
    if before is None or after is None:
        return [ChangedLine("same", "The body is not a text that can be compared here.")]
    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))[2:]
    kinds = {"+": "added", "-": "removed"}
    made = [ChangedLine(kinds.get(line[:1], "same"), line) for line in lines if not line.startswith("@@")]
    if len(made) > _DIFFERENCE_LINES:
        made = [*made[:_DIFFERENCE_LINES], ChangedLine("same", f"{len(made) - _DIFFERENCE_LINES} more lines")]
    return made or [ChangedLine("same", "The body is as it was.")]
