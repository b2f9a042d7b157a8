"""The application that a console process serves: the API, its health, and whatever pages are installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from crossdock.administration.open_box import OpenBox
from crossdock.api import problems, signing_in
from crossdock.api.gate import Gate
from crossdock.api.live import Live
from crossdock.api.operations import Operations
from crossdock.api.options import AccessOptions
from crossdock.api.routes import api_routes
from crossdock.api.safety import Safety
from crossdock.settings import Settings

API = "/api/v1"
routes = APIRouter(include_in_schema=False)


def create_app(settings: Settings, access: AccessOptions, box: OpenBox | None = None) -> FastAPI:
    """The API, with one agent for the whole process: that of the `box`, which is opened when it starts.

    `app.state` has `box`, `gate`, `operations` and `live`; whoever shows pages may set `error_page`, which makes an
    answer of a request and a `Problem`. Raises UsageError if people who should not could sign in.
    """
    access.check()
    app = FastAPI(
        title="Crossdock",
        version=version("crossdock"),
        summary="Everything the command line can do.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.box = box = box or OpenBox(settings)
    app.state.gate = Gate(box, access)
    app.state.operations = Operations(box)
    app.state.live = Live(box)
    app.add_middleware(signing_in.FirstVisit)
    app.add_middleware(Safety, options=access)
    problems.install(app)
    app.include_router(routes)
    app.include_router(signing_in.routes)
    app.include_router(api_routes(), prefix=API)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The MessageBox is open, and what was begun is ended with the process."""
    await run_in_threadpool(app.state.box.open)
    try:
        yield
    finally:
        app.state.operations.close()
        await app.state.live.close()
        app.state.gate.close()
        await run_in_threadpool(app.state.box.close)


@routes.get(f"{API}/openapi.json")
def openapi(request: Request) -> JSONResponse:
    """The description of the API, for whoever writes a program. It holds nothing of the MessageBox."""
    app: FastAPI = request.app
    return JSONResponse(app.openapi())


@routes.get("/health")
def health() -> dict[str, str]:
    """This process answers. It says nothing of the MessageBox."""
    return {"status": "ok"}
