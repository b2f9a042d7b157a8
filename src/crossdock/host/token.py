"""The token of a request: written into it, and promoted in its response, which so finds whoever waits."""

from __future__ import annotations

import os
import re
import socket
from uuid import UUID

from crossdock.message.context import Context

TOKEN = "BTS.EpmRRCorrelationToken"  # noqa: S105 - the name of a property
_WAITING = re.compile(r"RRUid:\{([0-9a-f-]{36})\}$")


def token_of(waiting: UUID) -> str:
    return f"Svr:{socket.gethostname()};PID:{os.getpid()};RRUid:{{{waiting}}}"


def waiting_in(request: Context) -> UUID | None:
    """Who waits for the response to this request, or to the report on its failure; None if it is neither."""
    found = _WAITING.search(str(request.written.get(TOKEN, "")))
    try:
        return None if found is None else UUID(found[1])
    except ValueError:
        return None
