"""A MessageBox with something in it to look at and to act on, for tests of the console and its API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from box import PROPERTIES, an_orchestration
from crossdock.message.property import Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, Deployment
from express import deploy, port, publish

APPLICATION = """
application: shop
properties: {Region: text}
schemas:
  - {type: Order, format: json, promote: {Region: $.region}}
send_ports:
  - {name: North, adapter: file, address: /tmp/north/%MessageID%, filter: "Region = 'NO'"}
"""


@dataclass(frozen=True)
class Seeded:
    """What is in it: a stopped port with a suspended message, another application, an instance."""

    agent: Agent
    suspended: str
    instance: str

    def held_back(self, count: int, port: str = "Stopped") -> list[str]:
        """Messages that are suspended at a stopped port."""
        before = {row.sequence for row in self.agent.suspended.messages(port=port)}
        publish(self.agent, *(an_order(port, number) for number in range(count)))
        return [str(row.id) for row in self.agent.suspended.messages(port=port) if row.sequence not in before]


def an_order(region: str, amount: int) -> Mapping[str, Value]:
    """The promoted properties of one."""
    return {"Region": region, "Amount": Decimal(amount)}


def seeded(agent: Agent) -> Seeded:
    application = Deployment(
        "orders",
        PROPERTIES,
        [DeployedLocation("orders.in", "Default", {"secret": "hidden"})],
        [port("Plain", "Region = 'NO'"), port("Stopped", "Region = 'Stopped'")],
        {"Default": ()},
        orchestrations=[an_orchestration("Flow", "Region = 'IN'")],
    )
    agent.subscriptions.deploy(application)
    deploy(agent, port("Other", "Region = 'Other'"), application="others")
    agent.subscriptions.stop("Stopped")
    agent.subscriptions.stop("Other")
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    publish(agent, {"Region": "Stopped", "Amount": Decimal(5)})
    [row] = agent.suspended.messages(port="Stopped")
    [instance] = agent.instances.list()
    return Seeded(agent, str(row.id), str(instance.id))
