"""Numbers as they change, as a stream of server-sent events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from crossdock.api.gate import Gate, SignedIn
from crossdock.api.live import Live

routes = APIRouter(tags=["live"])
LOOK_SECONDS = 30.0  # after so long it is looked whether somebody who watches is still signed in


@routes.get("/live", operation_id="live", response_class=StreamingResponse)
def live(request: Request, person: SignedIn) -> StreamingResponse:  # noqa: ARG001 - who has signed in
    """A `sample` every two seconds, as `/sample` gives it; `away` with a sentence while the MessageBox is away."""
    return StreamingResponse(_while_signed_in(request), media_type="text/event-stream")


async def _while_signed_in(request: Request) -> AsyncIterator[str]:
    """A browser asks again by itself, and hears then that the person is signed out."""
    watched: Live = request.app.state.live
    gate: Gate = request.app.state.gate
    looked_at = time.monotonic()
    async with aclosing(watched.watch()) as events:
        async for event in events:
            if time.monotonic() - looked_at > LOOK_SECONDS:
                looked_at = time.monotonic()
                if not await run_in_threadpool(gate.knows, request):
                    return
            yield event
