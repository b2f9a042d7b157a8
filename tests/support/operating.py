"""Operations of the API, as tests watch them."""

from __future__ import annotations

from typing import Any

import httpx

from walk import until


def ended(client: httpx.Client, id_: str) -> Any:
    """The operation, once it has ended."""
    until(lambda: client.get(f"/api/v1/operations/{id_}").json()["state"] != "running", 120)
    return client.get(f"/api/v1/operations/{id_}").json()
