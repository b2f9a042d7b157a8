"""Applications with orchestrations in a real MessageBox: deployed from source, run by a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import msgspec

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.host.limits import DEFAULT_LIMITS
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.property import Value
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Published, Reference
from crossdock.messagebox.settle import Complete
from crossdock.orchestration.engine import Engine
from express import living, rows, unbalanced
from walk import until

IMPORTS = "from datetime import timedelta\nfrom crossdock import Correlation, Message, P, Port, Process, Receive, orchestration\n"
APPLICATION = """
application: shop
properties: {OrderId: text, Amount: integer}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id, Amount: $.amount}}
  - {type: Payment, format: json, promote: {OrderId: $.id, Amount: $.amount}}
  - {type: Line, format: json, promote: {OrderId: $.id, Amount: $.amount}}
  - {type: Note, format: json, promote: {OrderId: $.id, Amount: $.amount}}
send_ports:
  - {name: Out, adapter: file, address: "out/%MessageID%.json"}
  - {name: Other, adapter: file, address: "other/%MessageID%.json"}
orchestrations:
"""


def deploy(agent: Agent, folder: Path, source: str, *names: str, bind: str = "{Out: Out}") -> None:
    """Orchestrations of one module, by default with a port `Out` that is bound to the send port of that name."""
    (folder / "flows.py").write_text(IMPORTS + dedent(source))
    each = "\n".join(f'- {{function: "flows:{name}", bind: {bind}}}' for name in names)
    (folder / "shop.yaml").write_text(APPLICATION + indent(each, "  "))
    redeploy(agent, folder)


def redeploy(agent: Agent, folder: Path) -> None:
    """As the files are now."""
    path = folder / "shop.yaml"
    agent.subscriptions.deploy(deployment_of(load_application(path), path, text_limit=256))


def message(agent: Agent, type_: str, id_: str, amount: int = 1, **promoted: Value) -> Message:
    """A message of a type of the application, promoted as its schema does."""
    body = msgspec.json.encode({"id": id_, "amount": amount})
    context = Context({"BTS.MessageType": type_, "OrderId": id_, "Amount": amount, **promoted})
    return Message(agent.message_id(), context, (Part("body", body),))


def publish(agent: Agent, *messages: Message) -> Published:
    return agent.publish([Publication(agent.configuration.hosts()["Default"], messages)])


@contextmanager
def engine(agent: Agent, host: str = "Default") -> Iterator[Engine]:
    """A running engine of a host."""
    limits = replace(DEFAULT_LIMITS, upkeep_seconds=0.05, reconnect_seconds=0.05)
    made = Engine(agent, agent.configuration.hosts()[host], limits=limits)
    made.start()
    try:
        yield made
        made.check()
    finally:
        made.stop()


def settled(agent: Agent, *, seconds: float = 30) -> None:
    """Wait until nothing is ready, claimed or due for orchestrations."""
    query = (
        "SELECT (SELECT count(*) FROM queue JOIN service ON service.id = queue.service_id WHERE class = 'orchestration')"
        " + (SELECT count(*) FROM claimed) + (SELECT count(*) FROM scheduled)"
        " + (SELECT count(*) FROM timer JOIN instance ON instance.id = instance_id"
        " WHERE due_at <= clock() AND state <> 'suspended')"
    )
    until(lambda: rows(agent.database, query) == [(0,)], seconds)


def run(agent: Agent) -> None:
    """Let an engine do everything that there is to do now."""
    with engine(agent):
        settled(agent)


def sent(agent: Agent, port: str = "Out") -> list[Any]:
    """What waits at a send port, in the order in which it was sent: type and body."""
    with living(agent) as life:
        references = agent.queues.dequeue(agent.configuration.hosts()["Default"], life.instance, limit=1000)
        agent.settle(life.instance, [Complete(each) for each in references])
    ports = dict(rows(agent.database, "SELECT id, name FROM service"))
    return [shown(each) for each in references if ports[each.service_id] == port]


def shown(reference: Reference) -> tuple[str, Any]:
    return str(reference.message.context.get("BTS.MessageType")), msgspec.json.decode(reference.message.body)


def instances(agent: Agent) -> list[tuple[str, str, int]]:
    """(orchestration, state, steps) of the running instances."""
    return [(each.orchestration, each.state, each.step) for each in agent.instances.list()]


def clean(agent: Agent) -> None:
    """Nothing is left of any instance, and every reference is counted."""
    for table in ("instance", "history", "held", "timer", "convoy", "instance_subscription"):
        assert rows(agent.database, f"SELECT count(*) FROM {table}") == [(0,)], table
    assert unbalanced(agent.database) == []
