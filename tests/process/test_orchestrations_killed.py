"""Hosts that run orchestrations, the pipeline and PostgreSQL, killed at random: each conversation ends once.

Every other order, payment and line comes as a file that the pipeline reads; the others are published by running code.
So the lines of one value come in both lanes at the same moment, and join one convoy.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
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
from walk import CROSSDOCK, OLD, processes_of, stop_postgres, until

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
    scanned = len(order.part("scan")) if len(order.parts) > 1 else 0
    ship = {"id": paid["OrderId"], "what": "ship", "scanned": scanned}
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
receive_ports:
  - name: Files
    locations:
      - {name: Orders, adapter: file, address: "in/orders/*.json", pipeline: json, schema: Order}
      - {name: Payments, adapter: file, address: "in/payments/*.json", pipeline: json, schema: Payment}
      - {name: Lines, adapter: file, address: "in/lines/*.json", pipeline: json, schema: Line}
send_ports: [{name: Files, adapter: file, address: "out/%MessageID%.json", host: Work}]
orchestrations:
  - {function: "flows:fulfil", bind: {Out: Files}, host: Work}
  - {function: "flows:collect", bind: {Out: Files}, host: Work}
"""


@dataclass
class Office:
    """A pipeline and two processes of the host Work on a PostgreSQL of their own, and what comes to them."""

    server: EmbeddedServer
    agent: Agent
    folder: Path
    hosts: list[subprocess.Popen[bytes]] = field(default_factory=list)
    pipeline: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Whoever does not run."""
        while len(self.hosts) < 2:
            self.hosts.append(self._process("host", "Work"))
        if self.pipeline is None or self.pipeline.poll() is not None:
            self.pipeline = self._process("pipeline", "--home", str(self.folder / "home"))

    def _process(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "errors.txt").open("ab") as errors:
            return subprocess.Popen(
                [str(CROSSDOCK), *command, "--database", self.agent.database],
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def kill(self, host: subprocess.Popen[bytes]) -> None:
        host.kill()
        host.wait()
        self.hosts.remove(host)

    def kill_pipeline(self) -> None:
        assert self.pipeline is not None
        self.pipeline.kill()
        self.pipeline.wait()

    def put(self, place: str, name: str, bodies: Sequence[dict[str, object]]) -> None:
        """One file for the pipeline, complete at once."""
        (self.folder / "in" / place).mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{place}-{name}"
        temporary.write_text("\n".join(map(json.dumps, bodies)))
        os.utime(temporary, (OLD, OLD))
        temporary.rename(self.folder / "in" / place / f"{name}.json")

    def all_read(self, place: str) -> bool:
        """Everything that was put there is published. A pipeline whose Java was not ready for a signal is replaced."""
        self.start()
        return not any((self.folder / "in").glob(f"{place}/*.json"))

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
        for process in [*made.hosts, *([made.pipeline] if made.pipeline is not None else [])]:
            process.kill()
            process.wait()
        for left in processes_of(folder / "home"):
            left.kill()
        assert unbalanced(agent.database) == []
    server.release()


def test_every_conversation_and_convoy_ends_once_whoever_is_killed(office: Office) -> None:
    randomness = random.Random(17)
    cases = [f"C{number}" for number in range(CASES)]
    share = CASES // ROUNDS
    convoys = [f"K{each}" for each in range(share // 5)]
    office.start()

    for number in range(ROUNDS):
        published, read = cases[number * share : (number + 1) * share : 2], cases[number * share + 1 :: 2][: share // 2]
        office.put("orders", str(number), [{"id": each} for each in read])
        office.put("lines", str(number), [{"customer": each, "line": number} for each in convoys])
        office.publish("Order", "OrderId", published)
        office.publish("Line", "Customer", convoys, line=number)
        goal = len(office.notes()) + randomness.randint(1, share // 2)
        until(lambda: len(office.notes()) >= goal, DEADLINE, describe=office.describe)  # noqa: B023
        office.kill(randomness.choice(office.hosts))
        if number % 2:
            stop_postgres(office.server, signal.SIGKILL)
            office.server.acquire()
        else:
            office.kill_pipeline()
        office.publish("Payment", "OrderId", published)
        office.start()
        until(
            lambda: office.all_read("orders"), DEADLINE, describe=office.describe
        )  # a payment never overtakes its order
        office.put("payments", str(number), [{"id": each} for each in read])
    until(lambda: office.all_read("*"), DEADLINE, describe=office.describe)
    until(lambda: office.left("SELECT * FROM instance") == [], DEADLINE, describe=office.describe)
    until(
        lambda: office.left("SELECT 1 FROM queue UNION ALL SELECT 2 FROM claimed UNION ALL SELECT 3 FROM intake") == [],
        DEADLINE,
        describe=office.describe,
    )

    office.both_work()
    assert office.pipeline is not None
    for process in (*office.hosts, office.pipeline):
        process.send_signal(signal.SIGTERM)
    assert [process.wait(120) for process in (*office.hosts, office.pipeline)] == [0, 0, 0]
    assert [(each.kind, each.code, each.reason) for each in office.agent.suspended.messages()] == []
    notes = office.notes()
    once = Counter(cases)
    for what in ("invoice", "ship"):
        assert Counter(str(note["id"]) for note in notes if note["what"] == what) == once
    scanned = {str(note["id"]): note["scanned"] for note in notes if note["what"] == "ship"}
    assert scanned == {each: len(scan(each)) if at % 2 == 0 else 0 for at, each in enumerate(cases)}
    lines = Counter((note["id"], line) for note in notes if note["what"] == "batch" for line in note["lines"])  # type: ignore[attr-defined]
    assert lines == {(each, number): 2 for each in convoys for number in range(ROUNDS)}
    assert "Traceback" not in (office.folder / "errors.txt").read_text()
