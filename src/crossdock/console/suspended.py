"""`/suspended`: what waits for a person, in groups and one by one; what to do about it is looked at first."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.background import BackgroundTask

from crossdock.administration.by_page import SuspendedPage
from crossdock.administration.service import Selection
from crossdock.api.gate import Service, SignedIn
from crossdock.api.guarded import Guarded
from crossdock.api.operations import Action, Operations
from crossdock.console.page import render
from crossdock.console.shown import may_agree, query
from crossdock.console.sparkline import spark
from crossdock.errors import UsageError

routes = APIRouter(include_in_schema=False, route_class=Guarded)
_GROUPS = 12
_SAVED = 1_000
_BY = {"code": "Code", "port": "Subscriber", "type": "Type"}
Text = Annotated[str, Query(max_length=4_000)]
Field = Annotated[str, Form(max_length=4_000)]
Rows = Annotated[list[str], Form()]
Agreed = Annotated[bool, Form()]


@routes.get("/suspended")
def suspended(
    request: Request,
    service: Service,
    by: Text = "code",
    code: Text = "",
    port: Text = "",
    type: Text = "",  # noqa: A002 - the name in the address
    q: Text = "",
    since: Text = "",
    personal: bool = False,
    after: int = 0,
) -> HTMLResponse:
    by = by if by in _BY else "code"
    asked = {"code": code, "port": port, "type": type, "q": q, "since": since, "personal": personal}
    selection = _selection(asked)
    trends = service.suspended_trends(by)
    page, problem = SuspendedPage([], None, 0), None
    try:
        page = service.suspended_page(selection, after=after)
    except UsageError as error:
        problem = str(error)
    return render(
        request,
        "suspended.html",
        status=200 if problem is None else 400,
        by=by,
        bys=_BY,
        groups=[(group, spark(group.steps)) for group in trends.groups[:_GROUPS]],
        groups_left_out=max(0, len(trends.groups) - _GROUPS),
        complete=trends.complete,
        grouped=trends.looked_at,
        rows=page.rows,
        looked_at=page.looked_at,
        next=None if page.after is None else query(**asked, by=by, after=page.after),
        first=after == 0,
        asked=asked,
        asked_query=query(**asked, by=by),
        filtered=any(asked.values()),
        problem=problem,
        may_ask_personal=may_agree(problem),
    )


def _selection(asked: dict[str, Any]) -> Selection:
    given = {name: value or None for name, value in asked.items()}
    return Selection(
        port=given["port"],
        code=given["code"],
        type=given["type"],
        where=given["q"],
        since=given["since"],
        everything=not any(value for name, value in given.items() if name != "personal"),
        personal=bool(given["personal"]),
    )


def _chosen(row: list[str], asked: dict[str, Any], id_: str) -> Selection:
    """Rows that were ticked, as `id sequence`; one message at a port; or everything that the search finds."""
    if row:
        pairs = [each.partition(" ")[::2] for each in row]
        if not all(number.isdecimal() for _, number in pairs):
            raise UsageError("These rows are not of the list of suspended messages. Choose them there.")
        return Selection(ids=list(dict.fromkeys(id_ for id_, _ in pairs)), sequences={int(each) for _, each in pairs})
    if id_:
        return Selection(ids=[id_], port=asked["port"] or None)
    return _selection(asked)


@routes.post("/suspended/preview")
def preview(
    request: Request,
    service: Service,
    person: SignedIn,
    action: Field,
    row: Rows = [],  # noqa: B006 - FastAPI copies it
    id: Field = "",  # noqa: A002 - the name of the field
    code: Field = "",
    port: Field = "",
    type: Field = "",  # noqa: A002 - the name of the field
    q: Field = "",
    since: Field = "",
    personal: Agreed = False,
) -> HTMLResponse:
    """What the act would be about. Nothing is done yet."""
    asked = {"code": code, "port": port, "type": type, "q": q, "since": since, "personal": personal}
    operations: Operations = request.app.state.operations
    shown = operations.preview(service, person, _action(action), _chosen(row, asked, id))
    return render(request, "preview.html", preview=shown)


def _action(text: str) -> Action:
    match text:
        case "resume" | "terminate":
            return text
        case _:
            raise UsageError(f"There is no act {text!r}. Choose resume or terminate.")


@routes.post("/suspended/execute")
def execute(request: Request, service: Service, person: SignedIn, token: Field, rate: Field = "") -> RedirectResponse:
    """Do what was looked at, and show how it goes on."""
    operations: Operations = request.app.state.operations
    begun = operations.execute(service, person, token, rate=_rate(rate))
    return RedirectResponse(f"/operations/{begun.id}", 303)


def _rate(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        wanted = float(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a rate. Write how many in a second, as 50.") from error
    if not 0 < wanted <= 1_000_000:
        raise UsageError("A rate is more than 0 and at most 1,000,000 in a second.")
    return wanted


@routes.post("/suspended/save")
def save(
    service: Service,
    row: Rows = [],  # noqa: B006 - FastAPI copies it
    code: Field = "",
    port: Field = "",
    type: Field = "",  # noqa: A002 - the name of the field
    q: Field = "",
    since: Field = "",
    personal: Agreed = False,
) -> FileResponse:
    """The original bytes of messages, as one archive."""
    asked = {"code": code, "port": port, "type": type, "q": q, "since": since, "personal": personal}
    chosen = service.choose("save", _chosen(row, asked, ""))
    ids = list(dict.fromkeys(str(each.id) for each in chosen.deliveries))
    if len(ids) > _SAVED:
        raise UsageError(
            f"{len(ids):,} messages are too many for one download, which takes {_SAVED:,}. "
            "Choose fewer, or save them with: crossdock save"
        )
    with tempfile.TemporaryDirectory() as folder:
        saved = service.save(ids, Path(folder))
        with (
            tempfile.NamedTemporaryFile(suffix=".zip", delete=False) as archive,
            zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file,
        ):
            for each in saved:
                file.write(each.file, Path(each.file).name)
    gone = BackgroundTask(Path(archive.name).unlink)
    return FileResponse(archive.name, media_type="application/zip", filename="suspended.zip", background=gone)


@routes.get("/operations/{id_}")
def operation(request: Request, person: SignedIn, id_: str) -> HTMLResponse:
    operations: Operations = request.app.state.operations
    found = operations.find(person, id_)
    piece = request.headers.get("hx-request") is not None
    ordered = sorted(found.outcomes, key=lambda each: each.done)  # what failed first
    return render(
        request,
        "operation_shown.html" if piece else "operation.html",
        operation=found,
        outcomes=ordered[:200],
        outcomes_left_out=max(0, len(ordered) - 200),
    )


@routes.post("/operations/{id_}/cancel")
def cancel(request: Request, person: SignedIn, id_: str) -> RedirectResponse:
    operations: Operations = request.app.state.operations
    operations.cancel(person, id_)
    return RedirectResponse(f"/operations/{id_}", 303)
