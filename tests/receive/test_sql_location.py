"""Rows of a database as messages, from the application file to the MessageBox and back to the row that is done."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from crossdock.adapter.calling import NAME_LIMIT
from crossdock.application.builder import Application, decimal
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.dataflow.worker import Worker
from crossdock.errors import ApplicationError
from crossdock.messagebox.agent import Agent
from crossdock.receive.intake import Intake
from crossdock.receive.location import ReceiveLocation

OPTIONS = {
    "query": "SELECT id, region, amount FROM orders WHERE sent = 0",
    "key": "id",
    "done": "UPDATE orders SET sent = 1 WHERE id = :key",
}


def application(folder: Path, **options: Any) -> Path:
    file = folder / "orders.yaml"
    declared = {
        "application": "orders",
        "properties": {"Amount": "decimal"},
        "schemas": [{"type": "Order", "format": "json", "promote": {"Amount": "$.amount"}}],
        "receive_ports": [
            {
                "name": "In",
                "locations": [
                    {
                        "adapter": "sql", "address": f"sqlite:///{folder}/orders.db", "pipeline": "json",
                        "options": {**OPTIONS, **options},
                    }
                ],
            }
        ],
        "send_ports": [{"name": "Out", "adapter": "file", "address": "out/%MessageID%", "filter": "Amount >= 10"}],
    }  # fmt: skip
    file.write_text(json.dumps(declared))
    return file


def test_rows_become_messages_and_are_marked_once_they_are_published(agent: Agent, folder: Path) -> None:
    with sqlite3.connect(folder / "orders.db") as orders:
        orders.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, region TEXT, amount NUMERIC, sent INTEGER DEFAULT 0)"
        )
        orders.executemany(
            "INSERT INTO orders (id, region, amount) VALUES (?, ?, ?)", [(n, "NO", n) for n in range(1, 41)]
        )
    file = application(folder)
    agent.subscriptions.deploy(deployment_of(load_application(file), file, text_limit=256))
    [(id_, host, kept)] = agent.configuration.locations()
    locations = {id_: ReceiveLocation.from_definition(id_, host, kept)}
    intake, worker = Intake(agent.ledger), Worker(agent)

    assert intake.round(locations, {}) == 40
    for _ in worker.receive(agent.ledger.read(0, 2**62)):
        pass
    assert intake.round(locations, {}) == 0

    statistics = agent.statistics()
    assert (statistics.received, statistics.published, statistics.unrouted) == (40, 31, 9)
    with sqlite3.connect(folder / "orders.db") as orders:
        assert orders.execute("SELECT count(*) FROM orders WHERE sent = 1").fetchall() == [(40,)]
    assert agent.ledger.read(0, 2**62) == []
    [reference] = agent.queues.dequeue(host, 1, limit=1)
    assert json.loads(reference.message.body) == {"id": 10, "region": "NO", "amount": 10}
    assert reference.message.context.get("Amount") == Decimal(10)


def test_row_with_a_key_of_megabytes_is_received_like_any_other(agent: Agent, folder: Path) -> None:
    key = "k" * 2_000_000
    with sqlite3.connect(folder / "orders.db") as orders:
        orders.execute("CREATE TABLE orders (id, region TEXT, amount NUMERIC, sent INTEGER DEFAULT 0)")
        orders.executemany("INSERT INTO orders (id, region, amount) VALUES (?, 'NO', 20)", [[key], ["short"]])
    file = application(folder)
    agent.subscriptions.deploy(deployment_of(load_application(file), file, text_limit=256))
    [(id_, host, kept)] = agent.configuration.locations()
    locations = {id_: ReceiveLocation.from_definition(id_, host, kept)}
    intake, worker = Intake(agent.ledger), Worker(agent)
    intake.round(locations, {})

    for _ in worker.receive(agent.ledger.read(0, 2**62)):
        pass

    references = agent.queues.dequeue(host, 1, limit=9)
    assert {json.loads(each.message.body)["id"] for each in references} == {key, "short"}
    assert all(len(str(each.message.context.get("FILE.ReceivedFileName"))) <= NAME_LIMIT for each in references)
    intake.round(locations, {})
    assert agent.ledger.read(0, 2**62) == []


def test_python_form_says_the_same(folder: Path) -> None:
    app = Application("orders")
    app.schema("Order", format="json", promote={"Amount": decimal("$.amount")})
    app.receive_port("In").sql(f"sqlite:///{folder}/orders.db", **OPTIONS)
    app.send_port("Out", filter="Amount >= 10").file("out/%MessageID%")

    assert app.model().model_dump() == load_application(application(folder)).model_dump()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kye": "id"}, "receive location 'In.sql': adapter 'sql' has no option 'kye'; did you mean 'key'?"),
        ({"limit": 0}, "option 'limit' of adapter 'sql'"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(folder: Path, options: dict[str, Any], problem: str) -> None:
    file = application(folder, **options)

    with pytest.raises(ApplicationError) as caught:
        deployment_of(load_application(file), file, text_limit=256)

    assert problem in str(caught.value)
