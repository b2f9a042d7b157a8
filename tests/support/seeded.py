"""A shop at work with faults in it, for the console: what is delivered, what fails, what nobody wants, what waits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossdock.administration.service import Administration
from office import Office, free_port
from walk import until

FLOWS = '''
from datetime import timedelta

from crossdock import Correlation, Message, P, Port, Process, Receive, orchestration

bank, warehouse = Port("Bank"), Port("Warehouse")
case = Correlation("OrderId", types=["Payment"])


@orchestration(Receive("Order", P.Amount >= 1000, initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    """Ask for the money, wait for it, and send the goods."""
    await process.send(bank, process.message("Invoice", {"id": order["OrderId"]}))
    if order["Amount"] == 13000:
        raise ValueError("nobody pays 13,000")
    if await process.receive(case, timeout=timedelta(days=14)):
        await process.send(warehouse, process.message("Ship", {"id": order["OrderId"]}))
'''


def application(folder: Path, partner: str) -> dict[str, Any]:
    """The shop, with the address of its partner."""
    order = {"OrderId": "$.id", "Region": "$.region", "Customer": "$.customer", "Amount": "$.amount"}
    (folder / "flows.py").write_text(FLOWS)
    return {
        "application": "shop",
        "properties": {"OrderId": "text", "Region": "text", "Amount": "decimal", "Customer": "text"},
        "schemas": [
            {"type": "Order", "format": "json", "promote": order},
            {"type": "Payment", "format": "json", "promote": {"OrderId": "$.id"}},
            {"type": "Invoice", "format": "json", "promote": {"OrderId": "$.id"}},
            {"type": "Ship", "format": "json", "promote": {"OrderId": "$.id"}},
        ],
        "receive_ports": [
            {"name": "Orders", "locations": [{"name": "OrdersIn", "adapter": "file", "address": "in/*.json", "pipeline": "json", "schema": "Order"}]},
            {"name": "Bank", "locations": [{"name": "Payments", "adapter": "file", "address": "bank/*.json", "pipeline": "json", "schema": "Payment"}]},
        ],
        "send_ports": [
            _file("Archive", "MessageType = 'Order'"),
            _file("EuropeLarge", "MessageType = 'Order' AND Region = 'EU' AND Amount >= 1000"),
            _file("Americas", "Region IN ('US', 'LATAM')"),
            _file("Customs", "MessageType = 'Order' AND Region = 'CH'"),
            _file("Invoices", "MessageType = 'Invoice'"),
            _file("Shipping", "MessageType = 'Ship'"),
            {
                "name": "Partner",
                "adapter": "http",
                "address": f"{partner}/orders",
                "filter": "MessageType = 'Order' AND Region = 'EU' AND Amount >= 5000",
                "retry": {"count": 0},
            },
            {
                "name": "Courier",
                "adapter": "http",
                "address": f"{partner}/parcels",
                "filter": "MessageType = 'Order' AND Region = 'NO'",
                "retry": {"count": 50, "interval": 3600},
            },
        ],
        "orchestrations": [{"function": "flows:fulfil", "bind": {"Bank": "Invoices", "Warehouse": "Shipping"}}],
    }  # fmt: skip


def _file(name: str, filter_: str) -> dict[str, Any]:
    return {"name": name, "adapter": "file", "address": f"out/{name.lower()}/%MessageID%.json", "filter": filter_}


class Shop:
    """`open` it while it is to work; `order` gives it something to do."""

    def __init__(self, database: str, folder: Path, partner: str | None = None) -> None:
        """Nobody listens at the partner's, unless it is given."""
        self.partner = partner or f"http://127.0.0.1:{free_port()}"
        self.folder = folder
        self.application = application(folder, self.partner)
        self.office = Office(database, folder, self.application)
        self.service = Administration(self.office.agent, text_limit=256)

    @contextmanager
    def open(self) -> Iterator[Shop]:
        with self.office.open():
            yield self

    def receive(self, name: str, content: bytes, location: str = "OrdersIn") -> str:
        """A file that comes in at a location; gives the id of its message."""
        file = self.folder / "in" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        [published] = self.service.publish([file], location=location, to=None, properties=[])
        file.unlink()
        return published.id

    def order(self, number: int, region: str, amount: float, **more: object) -> str:
        body: Mapping[str, object] = {"id": f"ORD-{number:06}", "region": region, "amount": amount, **more}
        return self.receive(f"order-{number:06}.json", json.dumps(body, indent=2).encode())

    def suspended_at(self, port: str) -> Sequence[str]:
        return [row.id for row in self.service.suspended() if row.port == port]

    def settled(self) -> None:
        self.office.settled()

    def sampled(self) -> None:
        """As the process that looks after the box does every few seconds."""
        self.office.agent.cleanup.fold_counts()
        self.office.agent.samples.take()

    def seed(self, orders: int = 12) -> None:
        """Deliveries that work, that fail, that are stopped, what cannot be read, and what nobody wants."""
        self.service.stop("Customs")
        for number in range(orders):
            self.order(number, ("EU", "US", "LATAM", "APAC")[number % 4], 100 + 450 * number, customer="Nordic Traders")
        self.order(900, "EU", 7_200, customer="Delta Foods")
        self.order(901, "CH", 80)
        self.order(902, "NO", 80)
        self.order(903, "EU", 13_000)
        self.receive("broken.json", b'{"id": "broken", "amount": 12')
        self.receive("nobody.json", b'{"id": "ORD-000904"}', location="Payments")
        until(lambda: len(self.suspended_at("Partner")) >= 2, 60)
        until(lambda: any(each.state == "suspended" for each in self.service.instances()), 60)
        self.settled()
        self.sampled()
