"""Whoever has the role of one host, and psql, among running instances of its own host and of another one, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from crossdock.messagebox.agent import Agent
from crossdock.subscription.correlation import correlation_hash
from express import rows
from role_attack import Attack
from roles import Roles
from running import APPLICATION, IMPORTS, message, publish, redeploy

FLOWS = """
out, shop = Port("Out"), Port("Shop")
mine, case = Correlation("OrderId", types=["Payment"]), Correlation("OrderId", types=["Payment"])
lot = Correlation("OrderId", types=["Line"])
asked = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", P.Amount == 1, initializes=mine))
async def own(process: Process, order: Message) -> None:
    await process.receive(mine, timeout=timedelta(hours=1))

@orchestration(Receive("Order", P.Amount == 2, initializes=case))
async def wait(process: Process, order: Message) -> None:
    answer = await process.receive(case, timeout=timedelta(hours=1))
    await process.send(out, process.message("Note", {"id": order["OrderId"], "paid": answer is not None}))

@orchestration(Receive("Line", initializes=lot), late="next")
async def collect(process: Process, first: Message) -> None:
    second = await process.receive(lot)
    await process.send(out, process.message("Note", {"id": first["OrderId"], "amount": second.json()["amount"]}))

@orchestration(Receive("Order", P.Amount == 3, initializes=asked))
async def ask(process: Process, order: Message) -> None:
    questions = [process.request(shop, process.message("Note", {"id": n, "amount": 0})) for n in ("one", "two")]
    await process.parallel(*questions)
"""
HOSTS = "hosts: [{name: Mine}, {name: Other}]\n"
SHOP = '  - {name: Shop, adapter: http, address: "http://localhost:1/", response: {pipeline: json, schema: Note}}\n'
ORCHESTRATIONS = """
  - {function: "flows:own", host: Mine}
  - {function: "flows:wait", host: Other, bind: {Out: Out}}
  - {function: "flows:collect", host: Other, bind: {Out: Out}}
  - {function: "flows:ask", host: Other, bind: {Shop: Shop}}
"""
# Rows of one host in tables that all hosts share, and in its own.
SHARED = ("convoy", "instance_subscription", "subqueue_lease", "subscription", "service", "host_instance")
PER_HOST = ("queue", "claimed", "scheduled", "suspended", "instance", "history", "held", "timer")


@dataclass
class InstanceAttack(Attack):
    """`instances` are the ids of the instances, by orchestration."""

    agent: Agent
    instances: dict[str, UUID]
    services: dict[str, int]

    def call(self, verb: str, *arguments: object) -> list[tuple[Any, ...]]:
        """One of the functions of the attacker's host."""
        places = ", ".join("%s" for _ in arguments)
        query = f"SELECT * FROM host_{self.mine}_{verb}({places})"
        return self.connection.execute(query.encode(), arguments).fetchall()

    def write_instance(self, id_: UUID, *, version: str | None = None, service: str = "own") -> None:
        """An instance of the attacker's host."""
        known = version or self.version(service)
        self.call(
            "write_instances", [id_], [self.services[service]], [known], [id_], [1], ["running"], ["nothing"], ["x:1"],
            [None], [None], [None],
        )  # fmt: skip

    def version(self, service: str) -> str:
        return str(rows(self.database, "SELECT version FROM service WHERE name = %s", service)[0][0])

    def hash(self, service: str, order: str) -> UUID:
        """By what an instance of an orchestration waits."""
        query = "SELECT id FROM correlation WHERE service_id = %s"
        [(correlation,)] = rows(self.database, query, self.services[service])
        found = correlation_hash(correlation, ["OrderId"], {"OrderId": order}, case_sensitive=False)
        assert found is not None
        return found

    def theirs(self) -> list[tuple[Any, ...]]:
        """All that the other host has, and every message with its references."""
        tables = [f"{table}_{self.other}" for table in PER_HOST]
        parts = [f"SELECT '{table}', row::text FROM {table} AS row" for table in tables]
        parts += [f"SELECT '{table}', row::text FROM {table} AS row WHERE host_id = {self.other}" for table in SHARED]
        parts += [f"SELECT '{table}', row::text FROM {table} AS row" for table in ("message", "orchestration_version")]
        logs = ("message_ref_log_1", "message_ref_log_2")
        parts += [
            f"SELECT '{table}', row::text FROM {table} AS row WHERE message_id IN"
            f" (SELECT message_id FROM queue_{self.other} UNION ALL SELECT message_id FROM held_{self.other})"
            for table in logs
        ]
        return sorted(rows(self.database, " UNION ALL ".join(parts)))

    def harmless(self, query: bytes, *arguments: object) -> None:
        """Refused, or of no effect on what the other host has."""
        before = self.theirs()
        with suppress(psycopg.Error):
            self.connection.execute(query, arguments)
        assert self.theirs() == before, query


@pytest.fixture
def attack(agent: Agent, folder: Path, roles: Roles) -> Iterator[InstanceAttack]:
    (folder / "flows.py").write_text(IMPORTS + FLOWS)
    declared = APPLICATION.replace("schemas:", HOSTS + "schemas:", 1).replace(
        "orchestrations:", SHOP + "orchestrations:"
    )
    (folder / "shop.yaml").write_text(declared + ORCHESTRATIONS)
    redeploy(agent, folder)
    publish(agent, message(agent, "Order", "ours", 1), message(agent, "Order", "theirs", 2))
    publish(agent, message(agent, "Line", "theirs"))
    roles.create()
    hosts = agent.configuration.hosts()
    instances = {row.orchestration: row.id for row in agent.instances.list()}
    services = dict(rows(agent.database, "SELECT name, id FROM service"))
    with psycopg.connect(roles.user("Mine"), autocommit=True) as connection:
        connection.execute("SET search_path TO crossdock")
        yield InstanceAttack(connection, agent.database, hosts["Mine"], hosts["Other"], agent, instances, services)
