"""Small bodies that become very many messages: what waits to be published does not fill the memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from express import rows
from interleave import open_transaction
from office import free_port
from two_way import Opened, offices
from walk import until

MANY = b"{}\n" * 10_000
CLIENTS = 20


@pytest.fixture
def office(database: str, tmp_path: Path) -> Iterator[Opened]:
    with offices(database, tmp_path) as opened:
        yield opened


def test_clients_are_told_to_come_again_while_too_many_messages_wait_to_be_published(
    office: Opened, database: str
) -> None:
    at = f"http://127.0.0.1:{free_port()}/orders"
    shared = {"adapter": "http", "pipeline": "json", "schema": "Order", "address": at}
    office(
        {
            "schemas": [{"type": "Order", "format": "json"}],
            "receive_ports": [{"name": "In", "locations": [shared]}],
        }
    )
    told: list[int] = []

    def tell() -> None:
        told.append(httpx.post(at, content=MANY, timeout=120, trust_env=False).status_code)

    with ThreadPoolExecutor(CLIENTS) as clients:
        with open_transaction(database) as connection:
            connection.execute("LOCK TABLE message IN EXCLUSIVE MODE")
            sent = [clients.submit(tell) for _ in range(CLIENTS)]
            until(lambda: 503 in told, 60)
        for each in sent:
            each.result()

    assert sorted(set(told)) == [202, 503]
    assert rows(database, "SELECT count(*) FROM message") == [(told.count(202) * 10_000,)]
