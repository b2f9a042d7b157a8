"""How long it takes to ask about one message among very many that are tracked: explain, trace, and a search by value.

All but the last messages are delivered and gone from the box. Each question is asked about messages from everywhere in
the track, by their short ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from statistics import median
from typing import Any

from crossdock.administration.service import Administration
from crossdock.bench.ceiling import timed
from crossdock.bench.messagebox import fresh_messagebox
from crossdock.bench.nowhere import Counter, NoService, One
from crossdock.host.instance import HostInstance
from crossdock.host.limits import HostLimits
from crossdock.maintenance.schedule import all_jobs
from crossdock.message.context import Context
from crossdock.message.message import Message, Part, short_id
from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedPort, Deployment
from crossdock.subscription.text import parse_filter

_BATCH = 2_500
_CHUNK = 40  # batches that are published before they are delivered
_ASKED = 15
HOST = "Bench"
_WANTED = ("EXISTS(OrderId)", "Amount >= 0", "Region IN ('EU', 'US', 'NO')")
_PROPERTIES = {"OrderId": PropertyType.TEXT, "Region": PropertyType.TEXT, "Amount": PropertyType.DECIMAL}

Progress = Callable[[str], None]


def bench_questions(*, messages: int, subscriptions: int, database: str, progress: Progress) -> dict[str, Any]:
    """Milliseconds of each question, the median and the longest."""
    with fresh_messagebox(database) as (agent, _):
        agent.subscriptions.deploy(deployment(subscriptions))
        asked = fill(agent, messages, progress)
        service = Administration(agent, text_limit=256)
        questions: dict[str, Callable[[str, str], object]] = {
            "explain": lambda id_, _: service.explain(id_),
            "trace": lambda id_, _: service.trace(id_),
            "describe": lambda id_, _: service.describe(id_),
            "search": lambda _, order: service.messages(where=f"OrderId = '{order}'", limit=10),
            "newest": lambda _, __: service.messages(limit=100),
        }
        figures: dict[str, Any] = {"messages": messages, "subscriptions": subscriptions}
        for name, ask in questions.items():
            progress(f"asking: {name}")
            took = [_milliseconds(ask, id_, order) for id_, order in asked]
            figures |= {f"{name}_ms": round(median(took), 1), f"{name}_ms_longest": round(max(took), 1)}
    return figures


def _milliseconds(ask: Callable[[str, str], object], id_: str, order: str) -> float:
    began = time.perf_counter()
    ask(id_, order)
    return (time.perf_counter() - began) * 1000


def fill(agent: Agent, messages: int, progress: Progress) -> list[tuple[str, str]]:
    """Publish and deliver; gives (short id, order) of messages from everywhere, the last of which are still queued."""
    host = agent.configuration.hosts()[HOST]
    asked, every = [], max(1, messages // _ASKED)
    for begin in range(0, messages, _BATCH * _CHUNK):
        numbers = range(begin, min(messages, begin + _BATCH * _CHUNK))
        progress(f"publishing and delivering up to {numbers.stop:,} of {messages:,} messages")
        batches = orders(agent, host, numbers)
        made = [message for batch in batches for message in batch.messages]
        asked += [(short_id(each.id), f"A{n}") for n, each in zip(numbers, made, strict=True) if n % every == every - 1]
        timed(batches, lambda batch: agent.publish([batch]))
        if numbers.stop < messages:
            deliver(agent, host)
            for job in all_jobs(agent):
                job.run_once()
    return asked


def orders(agent: Agent, host: int, numbers: range) -> list[Publication]:
    """Messages with these numbers in batches, each of which is published at once."""
    made = [_message(agent, number) for number in numbers]
    return [Publication(host, tuple(made[start : start + _BATCH])) for start in range(0, len(made), _BATCH)]


def deliver(agent: Agent, host: int) -> None:
    """Everything that is ready, to nowhere."""
    counter = Counter()
    instance = HostInstance(agent, host, One(lambda name: NoService(name, counter)), limits=HostLimits(workers=8))
    instance.start()
    try:
        while not agent.queues.idle(host):
            instance.check()
            time.sleep(0.005)
    finally:
        instance.stop()


def deployment(subscriptions: int, more: Sequence[str] = ()) -> Deployment:
    registry = PropertyRegistry(_PROPERTIES)
    others = [f"OrderId = 'none' AND Amount = {n}" for n in range(subscriptions - len(_WANTED))]
    ports = [
        DeployedPort(f"Port{n}", HOST, 5, parse_filter(registry, text), {"name": f"Port{n}"})
        for n, text in enumerate([*_WANTED, *others, *more])
    ]
    return Deployment("questions", _PROPERTIES, [], ports)


def _message(agent: Agent, number: int) -> Message:
    id_ = agent.message_id()
    promoted: dict[str, Value] = {
        "BTS.MessageType": "Parcel",
        "OrderId": f"A{number}",
        "Region": ("EU", "US", "NO")[number % 3],
        "Amount": Decimal(number % 1000),
    }
    return Message(id_, Context(promoted, {"BTS.MessageID": str(id_)}), (Part("body", b"x" * 100),))
