"""Routes that change something: whoever asks is known before the body is read, and few may send a large one.

FastAPI would read and decode a body first. Decoded JSON takes many times the memory of its text.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from crossdock.api.gate import Person, signed_in
from crossdock.api.safety import SAFE_METHODS, SIZE_LIMIT_BYTES, limited

SMALL_BYTES = 1024 * 1024
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Guarded(APIRoute):
    """Every route of a person that takes a body."""

    def get_route_handler(self) -> Handler:
        handle = self.answering(super().get_route_handler())

        async def handler(request: Request) -> Response:
            if request.method in SAFE_METHODS:
                return await handle(request)
            person = await run_in_threadpool(signed_in, request)
            return await handle(Request(request.scope, limited(request.receive, _most(person))))

        return handler

    def answering(self, handle: Handler) -> Handler:
        """What a kind of route does besides."""
        return handle


def _most(person: Person) -> int:
    """Applications, messages to publish and edited bodies may be large; who may do none of that sends little."""
    return SIZE_LIMIT_BYTES if person.rights.is_owner or person.rights.any("edit") else SMALL_BYTES
