"""Examples as they run: real hosts, engines, http servers and partners, on a MessageBox whose clock jumps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg

from crossdock.application.load import load_application
from crossdock.application.model import ApplicationModel
from express import unbalanced
from office import Office, eventually, free_port, written
from partner import Request, partner
from walk import EXAMPLES


def office(database: str, folder: Path, name: str, module: str, replaced: Mapping[str, str]) -> Office:
    """An example in a folder of its own, with other addresses."""
    shutil.copy(EXAMPLES / module, folder / module)
    text = (EXAMPLES / name).read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text)
    model: ApplicationModel = load_application(folder / name)
    return Office(database, folder, model.model_dump(by_alias=True))


def bodies(folder: Path) -> Callable[[], list[Any]]:
    return lambda: [json.loads(content) for content in written(folder).values()]


def test_person_decides_over_http_days_later(database: str, folder: Path) -> None:
    at = f"http://127.0.0.1:{free_port()}"
    running = office(database, folder, "expenses.yaml", "approval.py", {"http://127.0.0.1:8080": at})
    reminders = lambda: sorted(each["reminder"] for each in bodies(folder / "out" / "manager")())  # noqa: E731
    with running.open():
        posted = httpx.post(f"{at}/expenses", json={"claim": "C1", "cost": 250}, timeout=60)
        eventually(reminders, [0])
        running.clock.jump(days=2, seconds=1)
        eventually(reminders, [0, 1])
        decided = httpx.post(f"{at}/decisions", json={"claim": "C1", "approved": True}, timeout=60)
        eventually(bodies(folder / "out" / "ledger"), [{"claim": "C1", "approved": True}])
        eventually(lambda: running.agent.instances.list(), [])
        running.settled()

    assert (posted.status_code, decided.status_code) == (202, 202)
    assert unbalanced(database) == []


def test_suppliers_are_asked_over_http_and_one_that_refuses_does_not_take_part(database: str, folder: Path) -> None:
    def quote(request: Request) -> tuple[int, bytes]:
        prices = {"/north": b'{"price": 12}', "/east": b'{"price": 9}'}
        return (200, prices[request.path]) if request.path in prices else (400, b"no")

    with partner() as suppliers:
        suppliers.respond = quote
        running = office(database, folder, "quoting.yaml", "quotes.py", {"http://127.0.0.1:9000": suppliers.address})
        with running.open():
            running.publish('{"demand": "D1"}', BTS__MessageType="Demand", DemandId="D1")
            best = {"demand": "D1", "quote": {"supplier": "East", "price": 9}}
            eventually(bodies(folder / "out" / "quotes"), [best])
            eventually(lambda: running.agent.instances.list(), [])
            running.settled()

    assert running.suspended() == []
    assert unbalanced(database) == []


def test_trip_without_a_seat_is_undone(database: str, folder: Path) -> None:
    asked: list[tuple[str, Any]] = []

    def reserve(request: Request) -> tuple[int, bytes]:
        body = json.loads(request.body)
        asked.append((request.path, sorted(body)))
        return (409, b"full") if request.path == "/flight" and "card" in body else (200, b'{"trip": "T1"}')

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA travel")
        connection.execute("CREATE TABLE travel.card (number text, balance numeric)")
    with partner() as partners:
        partners.respond = reserve
        running = office(database, folder, "trips.py", "travel.py", {"http://127.0.0.1:9000": partners.address})
        with running.open():
            trip = json.dumps({"trip": "T1", "card": {"number": "4711", "price": 900}})
            running.publish(trip, BTS__MessageType="Trip", TripId="T1")
            eventually(lambda: len(bodies(folder / "out" / "desk")()), 1)
            eventually(lambda: running.agent.instances.list(), [])
            running.settled()

    assert sorted(path for path, names in asked if names == ["trip"]) == ["/flight", "/hotel"]
    assert running.suspended() == []
    assert unbalanced(database) == []
