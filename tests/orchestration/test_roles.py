"""An engine under the database role of its host: it does all that instances need, and nothing to those of others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import _Work
from express import rows
from roles import Roles, roles
from running import clean, deploy, instances, message, publish, run, sent

__all__ = ["roles"]

FLOWS = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])
lot = Correlation("OrderId", types=["Line"])

@orchestration(Receive("Order", initializes=case))
async def wait(process: Process, order: Message) -> None:
    answer = await process.receive(case, timeout=timedelta(hours=1))
    await process.send(out, process.message("Note", {"id": order["OrderId"], "paid": answer is not None}))

@orchestration(Receive("Line", initializes=lot), late="next")
async def collect(process: Process, first: Message) -> None:
    second = await process.receive(lot)
    await process.send(out, process.message("Note", {"id": "lines", "amount": second.json()["amount"]}))
"""

ATOMIC = """
out = Port("Out")

def charge(connection, card):
    connection.execute("INSERT INTO public.charge VALUES (%s)", [card])
    if card == "bad":
        connection.execute("DELETE FROM crossdock.message")
    return card

@orchestration(Receive("Order"))
async def pay(process: Process, order: Message) -> None:
    try:
        done = await process.atomic(charge, order["OrderId"])
    except Exception:
        done = "refused"
    await process.send(out, process.message("Note", {"id": "x", "amount": 0, "done": done}))
"""


def test_engine_works_under_the_role_of_its_host(agent: Agent, folder: Path, roles: Roles) -> None:
    deploy(agent, folder, FLOWS, "wait", "collect")
    roles.create()
    acting = roles.acting_as("Default")

    publish(acting, message(agent, "Order", "a"), *(message(agent, "Line", "l", number) for number in range(5)))
    run(acting)
    assert instances(agent) == [("wait", "running", 1), ("collect", "running", 1)]
    publish(acting, message(agent, "Payment", "a"), message(agent, "Line", "l", 9))
    run(acting)

    assert sorted(str(each) for _, each in sent(agent)) == [
        "{'id': 'a', 'paid': True}",
        "{'id': 'lines', 'amount': 1}",
        "{'id': 'lines', 'amount': 3}",
        "{'id': 'lines', 'amount': 9}",
    ]
    clean(agent)


def test_role_cannot_write_instances_or_code(agent: Agent, folder: Path, roles: Roles) -> None:
    deploy(agent, folder, FLOWS, "wait", "collect")
    roles.create()
    user = roles.user("Default")

    with psycopg.connect(user, autocommit=True, options="-csearch_path=crossdock") as connection:
        for attack in (
            "UPDATE orchestration_version SET bundle = ''",
            "INSERT INTO instance SELECT * FROM instance",
            "DELETE FROM history",
            "INSERT INTO convoy SELECT * FROM convoy",
            "UPDATE timer SET due_at = clock()",
            "DELETE FROM held",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(attack.encode())


def test_role_cannot_begin_an_instance_that_no_orchestration_would_begin(
    agent: Agent, folder: Path, roles: Roles
) -> None:
    deploy(agent, folder, FLOWS, "wait")
    roles.create()
    acting = roles.acting_as("Default")
    router = acting.router()
    forged = _Work(router, [Publication(1, (message(agent, "Order", "a"),))])
    [out] = [number for number, each in router.subscriptions.items() if each.service == "Out"]
    forged.decision.activated = [(0, replace(begun, subscription_id=out)) for _, begun in forged.decision.activated]

    with psycopg.connect(acting.database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(f"SET ROLE {roles.names['Default']}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            forged.publish(connection, None)
    assert instances(agent) == []


def test_atomic_work_under_a_role_of_its_own_cannot_touch_our_tables(
    agent: Agent, folder: Path, roles: Roles, database: str
) -> None:
    deploy(agent, folder, ATOMIC, "pay")
    roles.create()
    [(number,)] = rows(database, "SELECT to_hex(number) FROM box")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.charge (card text)")
        connection.execute(f"GRANT ALL ON public.charge TO crossdock_{number}_code".encode())
    publish(agent, message(agent, "Order", "good"), message(agent, "Order", "bad"))

    run(agent)

    assert sorted(str(each["done"]) for _, each in sent(agent)) == ["good", "refused"]
    assert rows(database, "SELECT card FROM public.charge") == [("good",)]
    clean(agent)
