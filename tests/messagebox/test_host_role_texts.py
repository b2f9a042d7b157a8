"""Texts of whoever has the role of one host: everybody's lists and samples hold them as a whole, so that they are short."""

from __future__ import annotations

import json

import pytest
from psycopg.errors import CheckViolation

from box import PROPERTIES
from crossdock.message.context import CONTEXT_LIMIT_BYTES
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from express import port, rows
from role_attack import Attack, Publishing, attack
from roles import roles

__all__ = ["attack", "roles"]

LONG = "x" * (64 * 1024 + 1)


@pytest.mark.parametrize("long", ["code", "reason"])
def test_suspension_is_told_in_few_words(attack: Attack, long: str) -> None:
    publishing = Publishing(attack)
    row = {"host_id": attack.mine, "kind": "receive", "message_id": str(publishing.message), "code": "x", "reason": "x"}

    with pytest.raises(CheckViolation):
        publishing(exceptions=json.dumps({"suspended": [row | {long: LONG}]}))

    publishing(exceptions=json.dumps({"suspended": [row]}))


@pytest.mark.parametrize("becomes", ["suspended", "scheduled"])
@pytest.mark.parametrize("long", ["code", "reason"])
def test_what_comes_of_a_delivery_is_told_in_few_words(attack: Attack, becomes: str, long: str) -> None:
    dequeue = f"SELECT sequence FROM host_{attack.mine}_dequeue(7, '{{0}}', '{{5}}', '{{0}}', '{{}}', false, 1)"
    [(sequence,)] = attack.connection.execute(dequeue.encode()).fetchall()
    told = {"code": "x", "reason": "x"} | {long: LONG}
    settle = f"SELECT * FROM host_{attack.mine}_settle(7, %s, NULL, %s, '{{1 hour}}', '{{true}}', '{{send}}', %s, %s)".encode()

    with pytest.raises(CheckViolation):
        attack.connection.execute(settle, [[sequence], [becomes], [told["code"]], [told["reason"]]])


def test_other_texts_of_a_host_are_short(attack: Attack, agent: Agent) -> None:
    lines = [port("Mine.line", "Region = 'NO'", host="Mine", ordered=True)]
    agent.subscriptions.deploy(Deployment("line", PROPERTIES, [], lines, {"Mine": ()}))
    [(service, correlation)] = rows(
        attack.database,
        "SELECT service.id, correlation.id FROM service, correlation"
        " WHERE service.name = 'Mine' AND correlation.service_id IS NULL AND 'Region' = ANY (property)",
    )
    waits = "INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)"
    hash_ = f"{correlation:08x}-0000-4000-8000-000000000000"

    for statement, values in (
        ("UPDATE subqueue_lease SET reason = %s", [LONG]),
        (f"INSERT INTO host_instance (id, host_id, machine, process) VALUES (7, {attack.mine}, %s, 1)", [LONG]),
        (
            f"{waits} VALUES (gen_random_uuid(), {service}, {attack.mine}, {correlation}, '{hash_}', %s)",
            [["x" * CONTEXT_LIMIT_BYTES]],
        ),
    ):
        with pytest.raises(CheckViolation):
            attack.connection.execute(statement.encode(), values)


def test_labels_that_were_lacking_are_as_large_as_a_context_at_most(attack: Attack) -> None:
    publishing = Publishing(attack)
    row = {
        "message_id": str(publishing.message), "subscription_id": 1, "service_id": 1, "host_id": attack.mine,
        "labels": ["x" * CONTEXT_LIMIT_BYTES],
    }  # fmt: skip

    with pytest.raises(CheckViolation):
        publishing(exceptions=json.dumps({"refused": [row]}))


def test_act_is_kept_in_few_words(attack: Attack) -> None:
    """Cut, not refused: no act without its row."""
    with attack.connection.transaction():
        for setting in ("person", "reason"):
            attack.connection.execute(f"SELECT set_config('crossdock.{setting}', %s, true)".encode(), ["ø" * 1_000_000])
        facts = json.dumps({"a": '"\\\n' * 1_000_000})
        long = ["x" * 1_000_000] * 2 + [facts] * 2 + ["x" * 1_000_000] * 2
        attack.connection.execute("SELECT audit(%s, %s, %s, %s, %s, %s)", long)

    [kept] = rows(
        attack.database,
        "SELECT length(person), length(action), length(application), length(target), length(reason), length(outcome)"
        " FROM audit WHERE action LIKE 'xx%%'",
    )
    assert kept == (1000, 1000, 1000, 10_000, 10_000, 1000)
    [(facts_kept, begins)] = rows(
        attack.database, "SELECT length(before #>> '{}'), left(after #>> '{}', 8) FROM audit WHERE action LIKE 'xx%%'"
    )
    assert (facts_kept, begins) == (49_000, facts[:8])


def test_short_facts_of_an_act_are_kept_as_they_are(attack: Attack) -> None:
    attack.connection.execute("SELECT audit('note', 'x', %s, NULL, 'done')", [json.dumps({"a": "x" * 90_000})])

    assert rows(attack.database, "SELECT length(before ->> 'a'), after FROM audit WHERE action = 'note'") == [
        (90_000, None)
    ]
