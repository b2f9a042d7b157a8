"""Numbers as they change, as a stream of server-sent events."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from crossdock.api.gate import SignedIn
from crossdock.api.live import Live

routes = APIRouter(tags=["live"])


@routes.get("/live", operation_id="live", response_class=StreamingResponse)
def live(request: Request, person: SignedIn) -> StreamingResponse:  # noqa: ARG001 - who has signed in
    """A `sample` every two seconds, as `/sample` gives it; `away` with a sentence while the MessageBox is away."""
    watched: Live = request.app.state.live
    return StreamingResponse(watched.watch(), media_type="text/event-stream")
