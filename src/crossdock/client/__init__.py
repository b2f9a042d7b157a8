"""A client of the console's API, for Python: `Client`, and `AsyncClient` for programs that wait with `await`.

`calls.py` has every operation as a request; the two clients send them.
"""

from __future__ import annotations

from crossdock.client.async_client import AsyncClient
from crossdock.client.call import Page
from crossdock.client.client import Client

__all__ = ["AsyncClient", "Client", "Page"]
