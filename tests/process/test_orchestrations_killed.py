"""Hosts that run orchestrations, and PostgreSQL, killed at random moments: each conversation ends once, with its messages."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer
from express import rows, unbalanced
from walk import CROSSDOCK, stop_postgres, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
ROUNDS = 40 if SOAK else 4
CASES = 10_000 if SOAK else 240
DEADLINE = 900 if SOAK else 120
FLOWS = """
from datetime import timedelta
from crossdock import Correlation, Message, Port, Process, Receive, orchestration

out = Port("Out")
case = Correlation("OrderId", types=["Payment"])
lot = Correlation("Customer", types=["Line"])


@orchestration(Receive("Order", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    await process.send(out, process.message("Note", {"id": order["OrderId"], "what": "invoice"}))
    paid = await process.receive(case)
    await process.delay(timedelta(milliseconds=50))
    ship = {"id": paid["OrderId"], "what": "ship", "scanned": len(order.part("scan"))}
    await process.send(out, process.message("Note", ship, parts=order.parts[1:]))


@orchestration(Receive("Line", initializes=lot), late="next")
async def collect(process: Process, first: Message) -> None:
    lines = [first.json()["line"]]
    while len(lines) < 5 and (line := await process.receive(lot, timeout=timedelta(milliseconds=300))):
        lines.append(line.json()["line"])
    await process.send(out, process.message("Note", {"id": first["Customer"], "what": "batch", "lines": lines}))
"""
APPLICATION = """
application: shop
hosts: [{name: Default}, {name: Work}]
properties: {OrderId: text, Customer: text}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id}}
  - {type: Payment, format: json, promote: {OrderId: $.id}}
  - {type: Line, format: json, promote: {Customer: $.customer}}
  - {type: Note, format: json}
send_ports: [{name: Files, adapter: file, address: "out/%MessageID%.json", host: Work}]
orchestrations:
  - {function: "flows:fulfil", bind: {Out: Files}, host: Work}
  - {function: "flows:collect", bind: {Out: Files}, host: Work}
"""


@dataclass
class Office:
    """Two processes of the host Work on a PostgreSQL of their own, and what is published to them."""

    server: EmbeddedServer
    agent: Agent
    folder: Path
    hosts: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        while len(self.hosts) < 2:
            with (self.folder / "errors.txt").open("ab") as errors:
                command = [str(CROSSDOCK), "host", "Work", "--database", self.agent.database]
                self.hosts.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors))

    def kill(self, host: subprocess.Popen[bytes]) -> None:
        host.kill()
        host.wait()
        self.hosts.remove(host)

    def both_work(self) -> None:
        """Wait until both are known to the MessageBox; before that a signal ends them like any other process."""
        mine = {(host.pid,) for host in self.hosts}
        until(lambda: mine <= set(rows(self.agent.database, "SELECT process FROM host_instance")), DEADLINE)

    def publish(self, type_: str, property_: str, values: list[str], **body: object) -> None:
        """One message of each value, committed once although PostgreSQL may be killed meanwhile."""
        key = "id" if property_ == "OrderId" else "customer"
        made = tuple(
            Message(
                self.agent.message_id(),
                Context({"BTS.MessageType": type_, property_: value}),
                (Part("body", json.dumps({key: value, **body}).encode()), Part("scan", scan(value))),
            )
            for value in values
        )
        known = "SELECT count(*) FROM message WHERE id = %s"
        while True:
            try:
                self.agent.publish([Publication(self.agent.configuration.hosts()["Default"], made)])
            except TransientError:
                self.server.acquire()
                if rows(self.agent.database, known, made[0].id) == [(0,)]:
                    continue
            return

    def left(self, query: str) -> list[tuple[object, ...]]:
        return rows(self.agent.database, query)

    def describe(self) -> str:
        """What is left, for whoever has to find out why."""
        tables = (
            "instance",
            "instance_subscription",
            "held",
            "timer",
            "convoy",
            "queue",
            "claimed",
            "scheduled",
            "suspended",
        )
        left = [
            f"{table}: {self.left(f'SELECT to_jsonb(each) FROM {table} AS each LIMIT 9')}"
            for table in (*tables, "host_instance")
        ]
        return "\n".join([*left, (self.folder / "errors.txt").read_text()[-4000:]])

    def notes(self) -> list[dict[str, object]]:
        return [json.loads(path.read_bytes()) for path in (self.folder / "out").glob("[!.]*")]


def scan(value: str) -> bytes:
    """The second part of a message. Some are so large that they are fetched when they are read."""
    return value.encode() * (20_000 if value.endswith("50") else 1)


@pytest.fixture
def office(folder: Path) -> Iterator[Office]:
    server = EmbeddedServer(folder)
    (folder / "flows.py").write_text(FLOWS)
    application = folder / "shop.yaml"
    application.write_text(APPLICATION)
    with Agent(server.acquire()) as agent:
        agent.box.create()
        agent.subscriptions.deploy(deployment_of(load_application(application), application, text_limit=256))
        made = Office(server, agent, folder)
        yield made
        for host in made.hosts:
            host.kill()
            host.wait()
        assert unbalanced(agent.database) == []
    server.release()


def test_every_conversation_and_convoy_ends_once_whoever_is_killed(office: Office) -> None:
    randomness = random.Random(17)
    cases = [f"C{number}" for number in range(CASES)]
    share = CASES // ROUNDS
    office.start()

    for number in range(ROUNDS):
        mine = cases[number * share : (number + 1) * share]
        office.publish("Order", "OrderId", mine)
        office.publish("Line", "Customer", [f"K{each}" for each in range(share // 5)] * 2, line=number)
        goal = len(office.notes()) + randomness.randint(1, share)
        until(lambda: len(office.notes()) >= goal, DEADLINE)  # noqa: B023
        office.kill(randomness.choice(office.hosts))
        if number % 2:
            stop_postgres(office.server, signal.SIGKILL)
            office.server.acquire()
        office.publish("Payment", "OrderId", mine)
        office.start()
    until(lambda: office.left("SELECT * FROM instance") == [], DEADLINE, describe=office.describe)
    until(
        lambda: office.left("SELECT 1 FROM queue UNION ALL SELECT 2 FROM claimed") == [],
        DEADLINE,
        describe=office.describe,
    )

    office.both_work()
    for host in office.hosts:
        host.send_signal(signal.SIGTERM)
    assert [host.wait(60) for host in office.hosts] == [0, 0]
    assert [(each.kind, each.code, each.reason) for each in office.agent.suspended.messages()] == []
    notes = office.notes()
    once = Counter(cases)
    for what in ("invoice", "ship"):
        assert Counter(str(note["id"]) for note in notes if note["what"] == what) == once
    assert all(note["scanned"] == len(scan(str(note["id"]))) for note in notes if note["what"] == "ship")
    lines = Counter((note["id"], line) for note in notes if note["what"] == "batch" for line in note["lines"])  # type: ignore[attr-defined]
    assert lines == {(f"K{each}", number): 2 for each in range(share // 5) for number in range(ROUNDS)}
    assert "Traceback" not in (office.folder / "errors.txt").read_text()
