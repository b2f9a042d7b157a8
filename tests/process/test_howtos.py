"""Every command in the blocks of the how-tos is typed into a shell, over an application at work and with what it names.

The tutorial has a test of its own. What goes on until it is ended, such as `crossdock run`, is typed elsewhere.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import yaml

from crossdock.administration.service import Administration
from office import Office, free_port
from pages import CURRENT, ROOT, name, typed
from roles import Roles, roles
from walk import CROSSDOCK, until

__all__ = ["roles"]

pytestmark = pytest.mark.process

_APPLICATION = """
application: orders
properties: {OrderId: text, CustomerId: text, Region: text, Amount: decimal, Cost: decimal}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id, CustomerId: $.customer, Region: $.region, Amount: $.amount}}
  - {type: Payment, format: json, promote: {OrderId: $.id}}
  - {type: Invoice, format: json}
receive_ports:
  - {name: Orders, locations: [{adapter: file, address: "in/*.json", pipeline: json, schema: Order}]}
  - {name: Payments, locations: [{adapter: file, address: "paid/*.payment", pipeline: json, schema: Payment}]}
send_ports:
  - {name: Invoices, adapter: http, address: NOBODY, filter: MessageType = 'Order', retry: {count: 0}}
  - {name: EuropeLarge, adapter: file, address: "large/%MessageID%.json", filter: Region = 'EU' AND Amount >= 5000}
  - {name: LargeOrders, adapter: file, address: "large/%MessageID%.json", filter: MessageType = 'Order' AND Amount >= 1000}
  - {name: Mail, adapter: file, address: "out/%MessageID%.json"}
orchestrations:
  - {function: "flows:fulfil", bind: {Customer: Mail}}
"""
_FLOWS = """
from crossdock import Correlation, Message, Port, Process, Receive, P, orchestration

customer = Port("Customer")
case = Correlation("OrderId", types=["Payment"])


@orchestration(Receive("Order", P.Region == "EU", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    await process.send(customer, process.message("Invoice", {"id": order["OrderId"]}))
    await process.receive(case)
    raise ValueError("the payment does not fit")
"""
_MISTAKE = ["/%MessageID%.json", "/%Colour%.json"]
# Commands that go on until they are ended, or that take another machine; and the tests that type them.
_ELSEWHERE = {
    r"crossdock run examples/.*": "orchestration/test_examples_at_work.py",
    r"crossdock run .*": "process/test_walk.py",
    r"crossdock pipeline .*": "process/test_host_role_processes.py",
    r"crossdock host .*": "process/test_host_role_processes.py",
    r"crossdock console.*": "process/test_console.py",
    r"crossdock grant .*@.*": "messagebox/test_access.py",
}
_PAGES = [page for page in CURRENT if name(page) != "docs/tutorial.md" and list(typed(page))]


class World:
    """A folder with an application that runs, and what the commands of the pages name."""

    def __init__(self, database: str, folder: Path, person: str) -> None:
        self.folder, self._number, self.person = folder, count(1), person
        declared = yaml.safe_load(_APPLICATION.replace("NOBODY", f"http://127.0.0.1:{free_port()}"))
        (folder / "flows.py").write_text(_FLOWS)
        for each in ("in", "samples", "saved"):
            (folder / each).mkdir()
        self._declare(yaml.safe_dump(declared))
        flat = (ROOT / "docs/how-to/flat-files.md").read_text()
        (folder / "flat.yaml").write_text(re.findall(r"```yaml\n(.*?)```", flat, re.DOTALL)[0])
        (folder / "in/orders.csv").write_text("H;ACME\nA1;EU;1200.00\nT;1\n")
        for file in ("samples/large-order.json", "order.json", "fixed.json", "in/a1.json"):
            (folder / file).write_text('{"id": "A17", "customer": "C17", "region": "EU", "amount": 7000}')
        self.office = Office(database, folder, declared)
        self.service = Administration(self.office.agent, text_limit=256)
        self.environment = {
            **os.environ,
            "PATH": f"{CROSSDOCK.parent}{os.pathsep}{os.environ['PATH']}",
            "CROSSDOCK_DATABASE": database,
            "EDITOR": "sed -i s/120/130/",
        }

    def _declare(self, text: str) -> None:
        (self.folder / "orders.yaml").write_text(text)

    def change(self, old: str, new: str) -> None:
        file = self.folder / "orders.yaml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    def received(self, location: str, body: str) -> str:
        file = self.folder / f"{uuid4()}.json"
        file.write_text(body)
        [published] = self.service.publish([file], location=location, to=None, properties=[])
        return published.id

    def suspended(self) -> str:
        """A new order that nobody could be told of."""
        id_ = self.received("Orders.file", f'{{"id": "S{next(self._number)}", "region": "test", "amount": 1200}}')
        until(lambda: any(row.id == id_ for row in self.service.suspended()), 60)
        return id_

    def failed(self) -> tuple[str, str, str]:
        """An instance that has failed, its order and its payment."""
        known = {row.id for row in self.service.instances()}
        number = f"F{next(self._number)}"
        order = self.received("Orders.file", f'{{"id": "{number}", "region": "EU", "amount": 20}}')
        until(lambda: any(row.waits_for and row.id not in known for row in self.service.instances()), 60)
        payment = self.received("Payments.file", f'{{"id": "{number}"}}')

        def new() -> list[str]:
            return [row.id for row in self.service.instances() if row.state == "suspended" and row.id not in known]

        until(lambda: bool(new()), 60)
        return new()[0], order, payment

    def sampled(self) -> None:
        """As the process that looks after the box does every few seconds."""
        self.office.agent.cleanup.fold_counts()
        self.office.agent.samples.take()

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Whoever is asked says yes."""
        theirs, ours = pty.openpty()
        try:
            os.write(theirs, b"y\n")
            return subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=self.folder,
                env=self.environment,
                stdin=ours,
                capture_output=True,
                text=True,
                timeout=120,
            )
        finally:
            os.close(theirs)
            os.close(ours)


@pytest.fixture
def world(database: str, folder: Path, roles: Roles) -> Iterator[World]:  # noqa: ARG001 - it drops the roles of the person
    person = f"ann_{uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {person}".encode())
    made = World(database, folder, person)
    with made.office.open(), closing(made.office.agent):
        made.received("Orders.file", '{"id": "broken"')
        made.suspended()
        made.sampled()
        yield made
        made.office.settled()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {person}; DROP ROLE {person}".encode())


def named(world: World, command: str, known: dict[str, str]) -> str:
    """The command with things that there are in the places of those that the page names."""
    if "00000000-" in command:
        return re.sub(r"00000000-002a[-0-9a-f]+", world.suspended(), command)
    if "48213-0" in command and "48213-0" not in known:
        known["48213-0"] = world.suspended()
    if re.search(r"resume|terminate", command) and not re.search(r"\bID\b", command):
        world.suspended()  # the last such command left none
    if re.search(r"\bID\b", command) and "ID" not in known:
        known |= dict(zip(("ID", "ORDER", "PAYMENT"), world.failed(), strict=True))
    known |= {"APP FILE": "orders.yaml in/a1.json", "ann": world.person}
    for word, there in known.items():
        command = re.sub(rf"(?<![\w.-]){re.escape(word)}\b", there, command)
    if re.match(r"crossdock (resume|cancel|terminate) ", command):
        known.pop("ID", None)  # it has ended, or works again
    return command


def prepare(world: World, page: str, number: int) -> int:
    """What the page says was done before its command with this number; and the exit code of that command."""
    if page == "docs/how-to/deploy-an-application.md":
        if number == 0:
            world.change("Amount >= 5000", "Amount >= 6000")
        elif number == 3:
            world.change(*_MISTAKE)
        return 2 if number >= 3 else 0
    return 0


@pytest.mark.parametrize("page", _PAGES, ids=name)
def test_commands_of_a_page_do_what_they_are_said_to(page: Path, request: pytest.FixtureRequest) -> None:
    here = [each for each in typed(page) if not any(re.fullmatch(other, each) for other in _ELSEWHERE)]
    if not here:
        return
    world: World = request.getfixturevalue("world")
    known: dict[str, str] = {}

    for number, command in enumerate(here):
        expected = prepare(world, name(page), number)
        command = named(world, command, known)
        done = world.shell(command)
        assert done.returncode == expected, (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, (command, done.stderr)
        if stopped := re.match(r"crossdock stop (\w+)", command):
            world.service.start(stopped[1])


def test_what_is_typed_elsewhere_is_typed_there() -> None:
    assert [file for file in _ELSEWHERE.values() if not (ROOT / "tests" / file).is_file()] == []
