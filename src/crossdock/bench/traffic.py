"""What the throughput benchmark sends: orders of customers, and subscriptions of which so many want each order.

A format is one small function that writes a file of orders, and what an application says about such files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from crossdock.application.deploy import deployment_of
from crossdock.application.model import DEFAULT_HOST, ApplicationModel
from crossdock.errors import UsageError
from crossdock.messagebox.deployment import DeployedPort, Deployment, Level
from crossdock.subscription.predicate import Filter, Operator, Predicate

MESSAGE_TYPE = "Order"
_PROPERTIES = {"OrderId": "text", "Customer": "text", "Region": "text", "Amount": "decimal"}
_REGIONS = ("EU", "US", "NO")
_NAMESPACE = "urn:orders"
_TEXT_LIMIT = 256
_XML_LINE = '<line sku="A-1042"><quantity>3</quantity><price>19.95</price></line>'
_LINE = '{"sku":"A-1042","quantity":3,"price":19.95}'


@dataclass(frozen=True, slots=True)
class Traffic:
    """So many messages for so many subscriptions; exactly `copies` of them want each message."""

    messages: int
    subscriptions: int
    copies: int
    body: int

    def __post_init__(self) -> None:
        if self.copies > self.subscriptions:
            raise UsageError(f"--copies {self.copies} needs at least as many --subscriptions")

    @property
    def customers(self) -> int:
        return self.subscriptions // self.copies

    def customer(self, number: int) -> str:
        """Whose order it is. The same number of subscriptions wants the orders of each customer."""
        return f"C{number % self.customers}"

    def promoted(self, number: int) -> dict[str, str]:
        """What is promoted from an order, as text."""
        return {
            "MessageType": MESSAGE_TYPE,
            "OrderId": f"{number:09}",
            "Customer": self.customer(number),
            "Region": _REGIONS[number % len(_REGIONS)],
            "Amount": f"{100 + number % 90_000}.{number % 100:02}",
        }

    def filters(self, message_type: str = MESSAGE_TYPE) -> Iterator[Filter]:
        """`MessageType = 'Order' AND Customer = 'C7' AND Amount >= 1`; what does not divide evenly waits in vain."""
        for number in range(self.subscriptions):
            customer, copy = divmod(number, self.copies)
            yield Filter(
                (
                    (
                        Predicate("BTS.MessageType", Operator.EQUAL, message_type),
                        Predicate("Customer", Operator.EQUAL, self.wanted(customer)),
                        Predicate("Amount", Operator.GREATER_OR_EQUAL, Decimal(copy)),
                    ),
                )
            )

    def wanted(self, customer: int) -> str:
        return f"C{customer}" if customer < self.customers else "nobody"


@dataclass(frozen=True, slots=True)
class Format:
    """How orders are written in files, and how an application describes them."""

    content: Callable[[Traffic, range], bytes]
    mask: str
    pipeline: str
    schemas: Sequence[Mapping[str, Any]]
    message_type: str = MESSAGE_TYPE


def lines_of_json(traffic: Traffic, numbers: range) -> bytes:
    """Each line of the size that was asked for, or as small as an order can be."""
    return "".join(_json(traffic, number) for number in numbers).encode()


def flat_lines(traffic: Traffic, numbers: range) -> bytes:
    """The same as lines of comma-separated columns."""
    return "".join(_flat(traffic, number) for number in numbers).encode()


def xml_envelope(traffic: Traffic, numbers: range) -> bytes:
    """The same as elements of one envelope."""
    orders = "".join(_xml(traffic, number) for number in numbers)
    return f'<Orders xmlns="{_NAMESPACE}">{orders}</Orders>'.encode()


_FIELDS = {"OrderId": "id", "Customer": "customer", "Region": "region", "Amount": "amount"}
FORMATS: Mapping[str, Format] = {
    "jsonl": Format(
        content=lines_of_json,
        mask="*.jsonl",
        pipeline="json",
        schemas=[
            {
                "type": MESSAGE_TYPE,
                "format": "json",
                "promote": {name: f"$.{field}" for name, field in _FIELDS.items()},
            }
        ],
    ),
    "csv": Format(
        content=flat_lines,
        mask="*.csv",
        pipeline="flat",
        schemas=[
            {"type": MESSAGE_TYPE, "format": "flat", "columns": [*_FIELDS.values(), "note"], "promote": _FIELDS},
        ],
    ),
    "xml": Format(
        content=xml_envelope,
        mask="*.xml",
        pipeline="xml",
        schemas=[
            {
                "type": f"{_NAMESPACE}#Order",
                "format": "xml",
                "namespaces": {"o": _NAMESPACE},
                "promote": {name: f"/o:Order/o:{field}" for name, field in _FIELDS.items()},
            },
            {"type": f"{_NAMESPACE}#Orders", "format": "xml", "namespaces": {"o": _NAMESPACE}, "body": "/o:Orders"},
        ],
        message_type=f"{_NAMESPACE}#Order",
    ),
}


def deployment(traffic: Traffic, format_: Format, folder: Path, tracking: Level = "events") -> Deployment:
    """The application: one receive location for the folder, and a send port for each subscription."""
    model = ApplicationModel.model_validate(
        {
            "application": "bench",
            "track": tracking,
            "properties": _PROPERTIES,
            "schemas": format_.schemas,
            "receive_ports": [
                {
                    "name": "OrdersIn",
                    "locations": [
                        {"adapter": "file", "address": str(folder / format_.mask), "pipeline": format_.pipeline}
                    ],
                }
            ],
        }
    )
    made = deployment_of(model, folder / "bench.yaml", text_limit=_TEXT_LIMIT)
    # Ready-made filters: parsing the text of a hundred thousand would take half a minute.
    ports = [
        DeployedPort(f"Port{number}", DEFAULT_HOST, 5, filter_, {}, track=tracking)
        for number, filter_ in enumerate(traffic.filters(format_.message_type))
    ]
    return Deployment(made.application, made.properties, made.locations, ports)


def _json(traffic: Traffic, number: int) -> str:
    order = traffic.promoted(number)
    head = (
        f'{{"id":"{order["OrderId"]}","customer":"{order["Customer"]}","region":"{order["Region"]}",'
        f'"amount":{order["Amount"]},"lines":['
    )
    lines = ",".join([_LINE] * max(1, (traffic.body - len(head) - 20) // (len(_LINE) + 1)))
    rest = traffic.body - len(head) - len(lines) - len('],"note":""}')
    return f'{head}{lines}],"note":"{"x" * max(0, rest)}"}}\n'


def _flat(traffic: Traffic, number: int) -> str:
    order = traffic.promoted(number)
    head = ",".join(order[name] for name in _FIELDS)
    return f"{head},{'x' * max(0, traffic.body - len(head) - 1)}\n"


def _xml(traffic: Traffic, number: int) -> str:
    order = traffic.promoted(number)
    head = "".join(f"<{field}>{order[name]}</{field}>" for name, field in _FIELDS.items())
    # As a message of its own it declares its namespace.
    rest = traffic.body - len(head) - len(f'<Order xmlns="{_NAMESPACE}"></Order>')
    lines = _XML_LINE * max(1, rest // len(_XML_LINE))
    return f"<Order>{head}{lines}</Order>"
