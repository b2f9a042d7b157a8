"""`/plan`: an application file compared with what is deployed, and applied if nothing changed meanwhile."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from crossdock.administration.for_deploying import Epoch, Plan
from crossdock.administration.service import Administration
from crossdock.api.gate import Service
from crossdock.api.guarded import Guarded
from crossdock.console.page import redirect, render
from crossdock.errors import ApplicationError, NotAllowedError, OutdatedPlanError, UsageError

routes = APIRouter(include_in_schema=False, route_class=Guarded)
_MOST_TEXT = 1024 * 1024


@routes.get("/plan")
def plan_page(request: Request, service: Service) -> HTMLResponse:
    return _page(request, service, text="")


@routes.post("/plan")
def plan(
    request: Request,
    service: Service,
    text: Annotated[str, Form()] = "",
    file: Annotated[UploadFile | None, File()] = None,
) -> HTMLResponse:
    """What the application would change. Nothing is changed."""
    if file is not None and file.filename:
        text = file.file.read(_MOST_TEXT + 1).decode("utf-8", "replace")
    if len(text) > _MOST_TEXT:
        return _page(request, service, text="", problem="An application file has at most 1 MB.")
    try:
        return _page(request, service, text=text, plan=service.plan(text))
    except NotAllowedError:
        raise
    except (ApplicationError, UsageError) as error:
        return _page(request, service, text=text, problem=str(error))


@routes.post("/plan/apply")
def apply(
    request: Request,
    service: Service,
    text: Annotated[str, Form()],
    epoch: Annotated[int, Form()],
    epoch_token: Annotated[UUID, Form()],
    digest: Annotated[str, Form()],
) -> Response:
    """Deploy what was compared; refused if the MessageBox or the file is another by now."""
    try:
        done = service.apply(text, planned_at=Epoch(epoch, epoch_token), digest=digest)
    except OutdatedPlanError as error:
        return _page(request, service, text=text, plan=service.plan(text), problem=str(error))
    except NotAllowedError:
        raise
    except (ApplicationError, UsageError) as error:
        return _page(request, service, text=text, problem=str(error))
    said = (
        f"Application {done.application} is applied: {done.summary}" if done.changed else "Nothing was to be changed."
    )
    return redirect(request, "/plan", " ".join([said, *done.warnings]), "good" if done.changed else "wait")


def _page(
    request: Request, service: Administration, *, text: str, plan: Plan | None = None, problem: str | None = None
) -> HTMLResponse:
    return render(
        request,
        "plan.html",
        status=200 if problem is None else 400,
        text=text,
        plan=plan,
        problem=problem,
        applications=service.applications(),
    )
