"""Both lanes route alike: what Spark published is what the router says in this process, and what the meaning says."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.dataflow.outcome import OUTCOME, RangeOutcome, from_text
from crossdock.dataflow.receive import receive_ranges
from crossdock.dataflow.session import Spark
from crossdock.dataflow.source import SCHEMA
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.conninfo import Travelling
from crossdock.receive.intake import Intake
from crossdock.receive.location import ReceiveLocation
from crossdock.subscription.match import Matcher

TYPES = {
    "Region": "text",
    "Amount": "decimal",
    "Flags": "integer",
    "Ratio": "float",
    "Urgent": "boolean",
    "Placed": "datetime",
}
CONSTANTS = {
    "Region": ["'EU'", "'eu '", "''", "'Ünïcode'", "'ß'", "'Z'"],
    "Amount": ["1000", "999.9999999999999991", "-0.000000000000000001", "12.50"],
    "Flags": ["0", "4", "-1", "9223372036854775807"],
    "Ratio": ["0.5", "-0.0", "1e300"],
    "Urgent": ["TRUE", "FALSE"],
    "Placed": ["'2026-12-24'", "'2026-12-24T01:00:00+01:00'"],
}


def a_predicate(randomness: random.Random) -> str:
    name = randomness.choice(list(TYPES))
    constant = randomness.choice(CONSTANTS[name])
    forms = [f"{name} = {constant}", f"{name} != {constant}", f"EXISTS({name})", f"NOT EXISTS({name})",
             f"{name} IN ({', '.join(randomness.sample(CONSTANTS[name], 2))})"]  # fmt: skip
    if name != "Urgent":
        forms += [f"{name} {operator} {constant}" for operator in ("<", "<=", ">", ">=")]
    if name == "Region":
        forms += ["Region LIKE 'e%'", "Region NOT LIKE 'Ü%'"]
    if name == "Flags":
        forms += ["Flags & 4", "NOT Flags & 1"]
    return randomness.choice(forms)


def a_filter(randomness: random.Random) -> str:
    groups = [
        " AND ".join(a_predicate(randomness) for _ in range(randomness.randint(1, 3)))
        for _ in range(randomness.randint(1, 3))
    ]
    return " OR ".join(groups)


def a_document(randomness: random.Random) -> str:
    values: dict[str, list[str | None]] = {
        "region": ["EU", "eu", "EU  ", "", "ünïcode", "SS", "ẞ", None],
        "amount": ["1000", "999.9999999999999991", "0", '"12.5"', "-0.000000000000000001", "null"],
        "flags": ["4", "5", "0", "-1", "9223372036854775807"],
        "ratio": ["0.5", "0", "-0.0", "1e300", '"NaN"'],
        "urgent": ["true", "false", "1"],
        "placed": ['"2026-12-24"', '"2026-12-24T00:00:00Z"', '"2026-12-24T01:00:00+01:00"'],
    }
    chosen = {name: randomness.choice(options) for name, options in values.items() if randomness.random() < 0.7}
    fields = [f'"{name}": {json.dumps(value) if name == "region" else value}' for name, value in chosen.items()]
    return "{" + ", ".join(fields) + "}"


def deployed(agent: Agent, folder: Path, randomness: random.Random) -> None:
    model = ApplicationModel.model_validate(
        {
            "application": "lanes",
            "properties": TYPES,
            "schemas": [{"type": "T", "format": "json", "promote": {name: f"$.{name.lower()}" for name in TYPES}}],
            "receive_ports": [{"name": "In", "locations": [{"adapter": "file", "address": "in/*.json", "pipeline": "json"}]}],
            "send_ports": [
                {"name": f"P{n}", "adapter": "file", "address": "out/%MessageID%", "filter": a_filter(randomness)}
                for n in range(200)
            ],
        }
    )  # fmt: skip
    agent.subscriptions.deploy(deployment_of(model, folder / "app.yaml", text_limit=256))


def test_spark_lane_and_in_process_lane_and_meaning_agree(
    spark: Spark, agent: Agent, database: str, folder: Path
) -> None:
    randomness = random.Random(7)
    deployed(agent, folder, randomness)
    (folder / "in").mkdir()
    for number, count in enumerate([1] * 20 + [40] * 5 + [200] * 2):
        path = folder / "in" / f"{number}.json"
        path.write_text("\n".join(a_document(randomness) for _ in range(count)))
        os.utime(path, (0, 0))
    locations = {
        id_: ReceiveLocation.from_definition(id_, host, kept) for id_, host, kept in agent.configuration.locations()
    }
    Intake(agent.ledger).round(locations, {})
    rows: list[dict[str, Any]] = [
        {name: getattr(item, name) for name in SCHEMA.names} for item in agent.ledger.read(0, 2**62)
    ]

    ranges = spark.session.createDataFrame(pa.Table.from_pylist(rows, schema=SCHEMA))
    outcomes = ranges.mapInArrow(receive_ranges(Travelling(database), folder / "index"), OUTCOME)
    done = [from_text(row.outcome) for row in outcomes.collect()]
    assert sum(each.received for each in done if isinstance(each, RangeOutcome)) == 620

    with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
        queued = connection.execute("SELECT message_id, subscription_id FROM queue").fetchall()
        stored = [row[0] for row in connection.execute("SELECT id FROM message")]
    messages, router, filters = agent.messages.load(stored), agent.router(), agent.filters()
    one_by_one = {(id_, s.id) for id_, message in messages.items() for s in router.route(message.context.promoted)}
    meant = {
        (id_, number)
        for id_, message in messages.items()
        for number, filter_ in filters.items()
        if Matcher().matches(filter_, message.context.promoted)
    }
    assert len(stored) == 620
    assert len(queued) == len(set(queued)) > 1000
    assert set(queued) == one_by_one == meant
