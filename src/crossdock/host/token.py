"""The token of a request: written into it, and promoted in its response, which so finds whoever waits.

Whoever knows it can answer in the place of the partner that was asked, so nobody can work it out from what is shown.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from hashlib import sha256

from crossdock.message.context import Context
from crossdock.message.property import TOKEN

_TOKEN = re.compile(r"RRUid:\{[0-9A-Za-z_-]{43}\}$")


def new_token() -> str:
    """That of a request that is about to be published."""
    return f"Svr:{socket.gethostname()};PID:{os.getpid()};RRUid:{{{secrets.token_urlsafe(32)}}}"


def told_of(token: str) -> str:
    """By what whoever waits with this token is told that no response will come.

    Every user of the database may listen, and tell: this says nothing of the token, and only who knows that can say it.
    """
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def token_in(request: Context) -> str | None:
    """The token of a request, or of the report on its failure, that waits in a process; None if it is neither."""
    token = str(request.written.get(TOKEN, ""))
    return token if _TOKEN.search(token) else None
