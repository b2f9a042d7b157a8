"""What tests of two-way exchange share: an application that asks a partner over http, and a partner that answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from express import unbalanced
from office import Office
from partner import Partner, Request, partner

Opened = Callable[[dict[str, Any]], Office]


@contextmanager
def a_shop() -> Iterator[Partner]:
    """A partner that answers an order with a receipt."""
    with partner() as made:
        made.respond = receipt
        yield made


def receipt(request: Request) -> tuple[int, bytes]:
    return 200, json.dumps({"receipt": json.loads(request.body)["id"]}).encode()


def application(port: int, *ports: dict[str, Any], timeout: float = 30, **location: Any) -> dict[str, Any]:
    """A two-way location `/ask`, a one-way location `/tell`, and these send ports."""
    at = f"http://127.0.0.1:{port}"
    asked = {"adapter": "http", "address": f"{at}/ask", "pipeline": "json", "schema": "Order"}
    options = {"timeout": timeout, **location.pop("options", {})}
    told = {"adapter": "http", "address": f"{at}/tell", "pipeline": "json", "schema": "Order"}
    return {
        "properties": {"OrderId": "text", "ReceiptId": "text"},
        "schemas": [
            {"type": "Order", "format": "json", "promote": {"OrderId": "$.id"}},
            {"type": "Receipt", "format": "json", "promote": {"ReceiptId": "$.receipt"}},
        ],
        "receive_ports": [
            {"name": "Ask", "two_way": True, "locations": [{**asked, "options": options, **location}]},
            {"name": "Tell", "locations": [told]},
        ],
        "send_ports": list(ports),
    }


def shop_port(shop: Partner, name: str = "Shop", **more: Any) -> dict[str, Any]:
    """A two-way send port to the partner."""
    response = {"pipeline": "json", "schema": "Receipt"}
    address, filter_ = f"{shop.address}/orders", "MessageType = 'Order'"
    return {"name": name, "adapter": "http", "address": address, "filter": filter_, "response": response, **more}


@contextmanager
def offices(database: str, folder: Path, host_limits: HostLimits = DEFAULT_LIMITS) -> Iterator[Opened]:
    """Opens applications; at the end the books must balance."""
    with ExitStack() as opened:
        yield lambda declared: opened.enter_context(Office(database, folder, declared, host_limits=host_limits).open())
    assert unbalanced(database) == []


@pytest.fixture
def shop() -> Iterator[Partner]:
    with a_shop() as made:
        yield made


@pytest.fixture
def office(database: str, tmp_path: Path) -> Iterator[Opened]:
    with offices(database, tmp_path) as opened:
        yield opened


def ask(port: int, id_: str = "1", *, path: str = "ask", timeout: float = 60) -> httpx.Response:
    return httpx.post(f"http://127.0.0.1:{port}/{path}", content=json.dumps({"id": id_}), timeout=timeout)
