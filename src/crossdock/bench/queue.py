"""How fast the MessageBox takes messages in and gives references out, against plain COPY into the same tables.

Publishing and the COPY ceiling take turns in one run, on two connections each, with the same rows. Claims go through
a real host instance whose service does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import Any

import psycopg

from crossdock.bench.broken import beside_broken
from crossdock.bench.ceiling import copy_ceiling, empty, timed
from crossdock.bench.follower import Correlations, deploy_follower
from crossdock.bench.host_role import beside_host_role
from crossdock.bench.messagebox import fresh_messagebox
from crossdock.bench.nowhere import Counter, NoService, One
from crossdock.host.instance import HostInstance
from crossdock.host.limits import HostLimits
from crossdock.maintenance.schedule import all_jobs
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedPort, Deployment, Level
from crossdock.subscription.text import parse_filter

_BATCH = 2_500
_COPIES = 3
_HOST = "Bench"
_ALIKE = 4
_TURNS = 4
_PROPERTIES = {"Region": PropertyType.TEXT, "Amount": PropertyType.DECIMAL, "Customer": PropertyType.TEXT}

Progress = Callable[[str], None]
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Bench:
    """A MessageBox with subscriptions of which three want every message."""

    agent: Agent
    host: int
    service: int
    progress: Progress


def bench_queue(
    *,
    messages: int,
    subscriptions: int,
    body: int,
    rounds: int,
    reader_seconds: float,
    database: str,
    progress: Progress,
    tracking: Level = "events",
    correlation: Correlations = "none",
    host_role: bool = False,
) -> Figures:
    """Every figure of one run; rates are of wall-clock seconds, the median of the rounds."""
    if host_role:
        return _as_host_role(messages, subscriptions, body, database, progress)
    with _messagebox(database, subscriptions, progress, tracking, correlation) as bench:
        publishing, ceiling, taking, cleaning, few_and_many = [], [], [], [], []
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            ceiling.append(_ceiling(bench, _batches(bench, messages, body)))
            publishing.append(_publish(bench, _batches(bench, messages, body)))
            taking.append(_drain(bench, workers=8))
            cleaning.append(_clean_up(bench))
            few_and_many.append(_by_turns(bench, messages // _TURNS, body))
        pairs = [_beside_broken(bench, messages, body, first=number % 2 == 1) for number in range(rounds)]
        without, beside = (median(each) for each in zip(*pairs, strict=True))
        without_reader, with_reader = _with_open_reader(bench, messages, body, reader_seconds)
        few, many = (median(each) for each in zip(*few_and_many, strict=True))
        dead, size = _settle_down(bench)
    return {
        "messages": messages,
        "subscriptions": subscriptions,
        "body_bytes": body,
        "references_per_message": _COPIES,
        "rounds": rounds,
        "tracking": tracking,
        "correlation": correlation,
        "publish_per_s": round(median(publishing)),
        "copy_ceiling_per_s": round(median(ceiling)),
        "ratio_to_copy": round(median(publishing) / median(ceiling), 3),
        "dequeue_per_s": round(median(taking)),
        "dequeue_per_s_64_workers": round(many),
        "dequeue_per_s_8_workers_by_turns": round(few),
        "dequeue_per_s_with_open_reader": round(with_reader),
        "dequeue_per_s_around_open_reader": round(without_reader),
        "with_open_reader_ratio": round(with_reader / without_reader, 3),
        "open_reader_seconds": reader_seconds,
        "without_broken_port_per_s": round(without),
        "beside_broken_port_per_s": round(beside),
        "beside_broken_port_ratio": round(beside / without, 3),
        "cleanup_per_s": round(median(cleaning)),
        "dead_rows": dead,
        "database_bytes_after": size,
        "beside_broken_port_ratio_each": [round(other / alone, 3) for alone, other in pairs],
        "publish_per_s_each": [round(each) for each in publishing],
        "copy_ceiling_per_s_each": [round(each) for each in ceiling],
        "dequeue_per_s_each": [round(each) for each in taking],
        "dequeue_per_s_64_workers_each": [round(each) for _, each in few_and_many],
        "dequeue_per_s_8_workers_by_turns_each": [round(each) for each, _ in few_and_many],
    }


def _as_host_role(messages: int, subscriptions: int, body: int, database: str, progress: Progress) -> Figures:
    """Only what the role of a host costs."""
    with _messagebox(database, subscriptions, progress) as bench:

        def measure(acting: Agent) -> tuple[float, float]:
            publishing = _publish(bench, _batches(bench, messages, body), acting)
            delivering = _drain(bench, workers=8, acting=acting)
            _clean_up(bench)
            return publishing, delivering

        return {
            "messages": messages,
            "subscriptions": subscriptions,
            "body_bytes": body,
            **beside_host_role(bench.agent, bench.host, measure, progress),
        }


@contextmanager
def _messagebox(
    database: str,
    subscriptions: int,
    progress: Progress,
    tracking: Level = "events",
    correlation: Correlations = "none",
) -> Iterator[_Bench]:
    with fresh_messagebox(database) as (agent, home):
        agent.subscriptions.deploy(_deployment(subscriptions, tracking))
        service = min(each.service_id for each in agent.router().subscriptions.values())
        deploy_follower(agent, home, correlation, host=_HOST, message_type="Order", property_=("Customer", "text"))
        bench = _Bench(agent, agent.configuration.hosts()[_HOST], service, progress)
        _publish(bench, _batches(bench, _BATCH, 16))  # numba compiles on its first batch
        _drain(bench, workers=8)
        yield bench


def _deployment(subscriptions: int, tracking: Level) -> Deployment:
    registry = PropertyRegistry(_PROPERTIES)
    wanted = ["EXISTS(Region)", "Amount >= 0", "Region IN ('EU', 'US', 'NO')"]
    filters = wanted + [f"Customer = 'C{n}' AND Amount < 0" for n in range(subscriptions - len(wanted))]
    ports = [
        DeployedPort(f"Port{n}", _HOST, 5, parse_filter(registry, text), {"name": f"Port{n}"}, track=tracking)
        for n, text in enumerate(filters)
    ]
    return Deployment("bench", _PROPERTIES, [], ports)


def _batches(bench: _Bench, messages: int, body: int) -> list[Publication]:
    """Publications of new messages, made before anything is timed."""
    content = b"x" * body
    made = [_message(bench.agent, n, content) for n in range(messages)]
    return [
        Publication(bench.host, tuple(made[start : start + _BATCH]), service_id=bench.service)
        for start in range(0, messages, _BATCH)
    ]


def _message(agent: Agent, number: int, content: bytes) -> Message:
    promoted = {
        "BTS.MessageType": "Order",
        "BTS.ReceivePortName": "OrdersIn",
        "Region": ("EU", "US", "NO")[number % 3],
        "Amount": Decimal(number),
        "Customer": f"C{number % 1000}",
    }
    id_ = agent.message_id()
    return Message(id_, Context(promoted, {"BTS.MessageID": str(id_)}), (Part("body", content),))


def _publish(bench: _Bench, batches: Sequence[Publication], acting: Agent | None = None) -> float:
    """Messages per second through `agent.publish`, by two threads."""
    bench.progress(f"publishing {sum(len(each.messages) for each in batches):,} messages")
    seconds = timed(batches, lambda batch: (acting or bench.agent).publish([batch]))
    return sum(len(each.messages) for each in batches) / seconds


def _ceiling(bench: _Bench, batches: Sequence[Publication]) -> float:
    bench.progress("the same rows by COPY alone")
    rate = copy_ceiling(bench.agent.database, bench.agent.router(), batches)
    empty(bench.agent.database)
    return rate


def _drain(bench: _Bench, *, workers: int, acting: Agent | None = None) -> float:
    """References per second, claimed, handed to a service and settled, until the queue is empty."""
    references = bench.agent.statistics().ready
    bench.progress(f"delivering {references:,} references with {workers} workers")
    counter = Counter()
    services = One(lambda name: NoService(name, counter))
    instance = HostInstance(acting or bench.agent, bench.host, services, limits=HostLimits(workers=workers))
    began = time.perf_counter()
    instance.start()
    try:
        # Asking the MessageBox would take from what is measured.
        while counter.sent < references or instance.in_hand:
            instance.check()
            time.sleep(0.005)
        rate = references / (time.perf_counter() - began)
        assert bench.agent.queues.idle(bench.host), "references are left in the queue"
        return rate
    finally:
        instance.stop()


def _by_turns(bench: _Bench, messages: int, body: int) -> tuple[float, float]:
    """References per second with 8 and with 64 workers, in short turns: the machine is not the same for long."""
    seconds = {8: 0.0, 64: 0.0}
    for workers in (8, 64, 64, 8) * (_TURNS // 2):
        _publish(bench, _batches(bench, messages, body))
        seconds[workers] += messages * _COPIES / _drain(bench, workers=workers)
        _clean_up(bench)
    references = messages * _COPIES * _TURNS
    return references / seconds[8], references / seconds[64]


def _beside_broken(bench: _Bench, messages: int, body: int, *, first: bool) -> tuple[float, float]:
    """References per second of two ports, without a third one and beside it while its partner hangs."""
    bench.progress("beside a port whose partner hangs")
    others = messages * (_COPIES - 1)
    return beside_broken(
        bench.agent, bench.host, lambda: _publish(bench, _batches(bench, messages, body)), others, first=first
    )


def _with_open_reader(bench: _Bench, messages: int, body: int, seconds: float) -> tuple[float, float]:
    """References per second just before and after, and while somebody has held a transaction open for so long."""

    def rate() -> float:
        _publish(bench, _batches(bench, messages, body))
        rate = _drain(bench, workers=8)
        _clean_up(bench)
        return rate

    before = rate()
    bench.progress(f"with a reader that holds a transaction open for {seconds:.0f} s")
    with psycopg.connect(bench.agent.database, options="-csearch_path=crossdock") as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM queue")
        began, beside = time.monotonic(), rate()
        while time.monotonic() - began < seconds:
            beside = rate()
    return (before + rate()) / 2, beside


def _clean_up(bench: _Bench) -> float:
    """Messages and parts deleted per second by the maintenance jobs."""
    jobs = all_jobs(bench.agent)
    began, deleted = time.perf_counter(), 0
    while done := sum(job.run_once() for job in jobs if type(job).__name__ == "CleanReferences"):
        deleted += done
    for job in jobs:
        job.run_once()
    return deleted / (time.perf_counter() - began)


def _settle_down(bench: _Bench) -> tuple[int, int]:
    """(dead rows, bytes of the database) after PostgreSQL has had a moment to clean up behind us."""
    bench.progress("waiting for PostgreSQL to clean up")
    query = (
        "SELECT coalesce(sum(n_dead_tup), 0)::bigint, pg_database_size(current_database())"
        " FROM pg_stat_user_tables WHERE schemaname = 'crossdock'"
    )
    deadline = time.monotonic() + 120
    seen: list[tuple[int, int]] = []
    with psycopg.connect(bench.agent.database, autocommit=True) as connection:
        # PostgreSQL looks at a table now and then: unchanged for longer than that.
        while time.monotonic() < deadline and (len(seen) < _ALIKE or len(set(seen[-_ALIKE:])) > 1):
            _clean_up(bench)
            row = connection.execute(query).fetchone()
            assert row is not None
            seen.append((row[0], row[1]))
            time.sleep(12)
    return seen[-1]
