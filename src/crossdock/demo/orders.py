"""Orders of different kinds in files of different shapes, some of them wrong on purpose; the same ones every time.

`INCOMPLETE` is always among them: it cannot be delivered to one of its two ports until somebody mends it. `LARGE` is
published by hand, and waits for a payment that is published by hand too.

An orchestration looks after the urgent ones. It writes their invoices into a folder, from which a location reads them
as payments: in the demo the bank pays at once, except for large sums.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

APPLICATION = """# The demo's application: eight ports whose filters overlap, and an orchestration for urgent orders.
application: demo
properties:
  OrderId: text
  Region: text
  Customer: text
  Country: text
  Channel: text
  Amount: decimal
  Urgent: boolean
  Flags: integer
  Placed: datetime
schemas:
  - type: Order
    format: json
    promote:
      OrderId: $.id
      Region: $.region
      Customer: $.customer.name
      Country: $.customer.country
      Channel: $.channel
      Amount: $.amount
      Urgent: $.urgent
      Flags: $.flags
      Placed: $.placed
  - {type: Payment, format: json, promote: {OrderId: $.id}}
  - {type: Invoice, format: json, promote: {OrderId: $.id}}
  - {type: Ship, format: json, promote: {OrderId: $.id}}
receive_ports:
  - name: OrdersIn
    locations:
      - {adapter: file, address: "in/*.json", pipeline: json, schema: Order}
  - name: Payments
    locations:
      - {adapter: file, address: "bank/*.json", pipeline: json, schema: Payment}
send_ports:
  - {name: Bank, adapter: file, address: "bank/%MessageID%.json"}
  - {name: Letters, adapter: file, address: "out/letters/%MessageID%.json"}
  - {name: Shipping, adapter: file, address: "out/shipping/%MessageID%.json"}
  - {name: EuropeLarge, adapter: file, address: "out/europe-large/%MessageID%.json",
     filter: "MessageType = 'Order' AND Region = 'EU' AND Amount >= 1000"}
  - {name: Americas, adapter: file, address: "out/americas/%MessageID%.json", filter: "Region IN ('US', 'LATAM')"}
  - {name: Urgent, adapter: file, address: "out/urgent/%SourceFileName%", filter: "Urgent = TRUE"}
  - {name: NewCustomers, adapter: file, address: "out/new-customers/%MessageID%.json", filter: "Customer LIKE 'New %'"}
  - {name: FraudCheck, adapter: file, address: "out/fraud-check/%MessageID%.json",
     filter: "Channel = 'web' AND Amount > 9000 OR Flags & 4"}
  - {name: Unpriced, adapter: file, address: "out/unpriced/%MessageID%.json",
     filter: "NOT EXISTS(Amount) AND Channel = 'edi'"}
  - {name: Christmas, adapter: file, address: "out/christmas/%Country%/%MessageID%.json",
     filter: "Placed BETWEEN '2026-12-20' AND '2026-12-27'"}
  - {name: Everyday, adapter: file, address: "out/everyday/%MessageID%.json", filter: "Amount < 1000"}
orchestrations:
  - {function: "fulfilment:fulfil", bind: {Bank: Bank, Letters: Letters, Warehouse: Shipping}}
"""

FULFILMENT = """# What happens to an urgent order: an instance of this for each, from the invoice to the goods.
from datetime import timedelta

from crossdock import Correlation, Message, P, Port, Process, Receive, orchestration

bank, letters, warehouse = Port("Bank"), Port("Letters"), Port("Warehouse")
case = Correlation("OrderId", types=["Payment"])  # a payment joins the instance of its order


@orchestration(Receive("Order", (P.Urgent == True) & (P.Amount >= 100), initializes=case))  # noqa: E712
async def fulfil(process: Process, order: Message) -> None:
    large = order["Amount"] >= 1000
    await process.send(letters if large else bank, process.message("Invoice", order.json()))
    if await process.receive(case, timeout=timedelta(days=14)):  # None: the time is over
        await process.send(warehouse, process.message("Ship", {"id": order["OrderId"]}))
"""

LARGE = "LARGE-1"
INCOMPLETE = "NO-COUNTRY-1"

# Beside the application, to be published by hand.
BY_HAND = {
    "large.json": {"id": LARGE, "region": "EU", "customer": {"name": "Nordic", "country": "NO"}, "channel": "phone",
                   "urgent": True, "amount": 25_000, "placed": "2026-12-03T09:00:00+01:00"},
    "payment.json": {"id": LARGE},
}  # fmt: skip
_INCOMPLETE = {"id": INCOMPLETE, "region": "EU", "customer": {"name": "Delta Foods"}, "channel": "web",
               "urgent": False, "amount": 240, "placed": "2026-12-24T09:00:00+01:00"}  # fmt: skip
_BAD_FILES = {
    "broken.json": b'{"id": "broken", "region": "EU", "amount": 12',
    "empty.json": b"",
    "latin-1.json": '{"id": "umlaut", "customer": {"name": "Müller"}}'.encode("latin-1"),
    "text-amount.json": b'{"id": "text-amount", "region": "EU", "amount": "a lot"}',
    "nobody-wants-it.json": b'{"id": "nobody", "region": "MARS", "channel": "pigeon"}',
    "one-bad-line.json": b'{"id": "good-1", "region": "US"}\n{"id": "bad" oops}\n{"id": "good-2", "region": "US"}\n',
}


_BAD_MESSAGES = 8  # in the bad files: one of them has three


def message_count(orders: int) -> int:
    """How many messages arrive in `in/`, good and bad."""
    return orders + 1 + _BAD_MESSAGES


def make_demo(folder: Path, orders: int) -> Path:
    """Write the application and its input under `folder`; gives the application file."""
    application = folder / "demo.yaml"
    inbox = folder / "in"
    inbox.mkdir(parents=True)
    application.write_text(APPLICATION)
    (folder / "bank").mkdir()
    (folder / "fulfilment.py").write_text(FULFILMENT)
    for name, document in BY_HAND.items():
        (folder / name).write_text(json.dumps(document))
    for name, content in _files(orders):
        path = inbox / name
        path.write_bytes(content)
        os.utime(path, (1_700_000_000, 1_700_000_000))  # complete long ago: nobody has to wait for it
    return application


def _files(orders: int) -> Iterator[tuple[str, bytes]]:
    """One order per file, then files of lines, then arrays."""
    randomness = random.Random(20261224)
    made = [_order(randomness, number) for number in range(orders)]
    alone, lines = orders // 10, orders * 7 // 10
    for number, order in enumerate(made[:alone]):
        yield f"order-{number:05}.json", json.dumps(order, indent=2).encode()
    for start in range(alone, lines, 100):
        yield f"lines-{start:05}.json", "\n".join(map(json.dumps, made[start : min(start + 100, lines)])).encode()
    for start in range(lines, orders, 250):
        yield f"array-{start:05}.json", json.dumps(made[start : start + 250]).encode()
    yield from _BAD_FILES.items()
    yield "no-country.json", json.dumps(_INCOMPLETE, indent=2).encode()


def _order(randomness: random.Random, number: int) -> dict[str, object]:
    customer = randomness.choice(["New ", ""]) + randomness.choice(
        ["York Traders", "Ports Ltd", "Delta Foods", "Nordic"]
    )
    order: dict[str, object] = {
        "id": f"ORD-{number:06}",
        "region": randomness.choice(["EU", "eu", "US", "LATAM", "APAC"]),
        "customer": {"name": customer, "country": randomness.choice(["NO", "DE", "BR", "JP"])},
        "channel": randomness.choice(["web", "edi", "phone"]),
        "urgent": randomness.random() < 0.1,
        "flags": randomness.randrange(8) if randomness.random() < 0.2 else 0,
        "placed": f"2026-12-{randomness.randrange(1, 32):02}T{randomness.randrange(24):02}:00:00+01:00",
    }
    if randomness.random() < 0.95:
        order["amount"] = round(randomness.lognormvariate(5.5, 1.8), 2)
    return order
