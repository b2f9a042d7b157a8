"""How long a message takes through the express lane, against one bare commit and a NOTIFY in the same run.

From before `agent.publish` is called with one small message to the moment the subscriber's code is called with it, by a
real host instance in the same process. The baseline takes turns with what is measured, half a period apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from statistics import median
from threading import Condition, Thread
from typing import Any

import psycopg

from crossdock.bench.exchange import http_exchange
from crossdock.bench.follower import Correlations, deploy_follower
from crossdock.bench.messagebox import fresh_messagebox
from crossdock.errors import CrossdockError
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Clock, Complete, Outcome
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedPort, Deployment, Level
from crossdock.subscription.text import parse_filter

_HOST, _TYPE = "Bench", "Ping"
_PROPERTIES = {"Number": PropertyType.INTEGER}
_RATE, _OTHER_RATES = 10, (1, 100)
_WARM_UP = 20
_PUBLISHERS, _SATURATION_SECONDS = 4, 5.0
_DEADLINE_SECONDS = 60.0

Progress = Callable[[str], None]
Figures = dict[str, Any]


def bench_latency(
    *,
    seconds: float,
    database: str,
    progress: Progress,
    tracking: Level = "events",
    correlation: Correlations = "none",
) -> Figures:
    """Every figure of one run. Raises CrossdockError unless every message that was published was seen just once."""
    with fresh_messagebox(database) as (agent, home):
        deploy_follower(agent, home, correlation, host=_HOST, message_type=_TYPE, property_=("Number", "integer"))
        figures = _express_lane(agent, seconds, progress, tracking)
        progress("http requests and their answers")
        return {
            "seconds": seconds,
            "tracking": tracking,
            "correlation": correlation,
            **figures,
            "http": http_exchange(agent, home, seconds, _percentiles),
        }


def _express_lane(agent: Agent, seconds: float, progress: Progress, tracking: Level) -> Figures:
    with _subscribed(agent, tracking) as lane, _listening(agent.database) as baseline:
        progress("warming up")
        for _ in range(_WARM_UP):
            baseline.measure()
            lane.publish()
        lane.latencies()
        progress(f"{_RATE} a second, for {seconds:.0f} s")
        commits: list[float] = []
        messages = _paced(lane, _RATE, seconds, lambda: commits.append(baseline.measure()))
        rates: Figures = {}
        for rate in _OTHER_RATES:
            progress(f"{rate} a second, for {seconds:.0f} s")
            rates[str(rate)] = _percentiles(_paced(lane, rate, seconds))
        progress("as many as it takes")
        rates["saturation"] = _saturated(lane, min(seconds, _SATURATION_SECONDS))
    return {
        **_percentiles(messages),
        "commit_notify_p50_ms": _milliseconds(median(commits)),
        "ratio": round(median(messages) / median(commits), 2),
        "p99_ratio": round(_p99(messages) / median(messages), 2),
        "rates": rates,
    }


def _paced(lane: _Lane, rate: int, seconds: float, between: Callable[[], None] | None = None) -> list[float]:
    """The latencies of so many messages a second; halfway to the next one something else may be done."""
    began = time.perf_counter()
    for number in range(max(1, round(rate * seconds))):
        _sleep_until(began + number / rate)
        lane.publish()
        if between is not None:
            _sleep_until(began + (number + 0.5) / rate)
            between()
    return lane.latencies()


def _saturated(lane: _Lane, seconds: float) -> Figures:
    """Several threads publish one message per call, as fast as that goes."""
    began = time.perf_counter()

    def publish_all(_: int) -> None:
        while time.perf_counter() - began < seconds:
            lane.publish()

    with ThreadPoolExecutor(_PUBLISHERS) as pool:
        list(pool.map(publish_all, range(_PUBLISHERS)))
    latencies = lane.latencies()
    return {"per_s": round(len(latencies) / (lane.last_arrival - began)), **_percentiles(latencies)}


class _Subscriber:
    """Notes when it is called with each message."""

    name = "Partner"
    in_flight = None

    def __init__(self) -> None:
        self.arrivals: list[tuple[MessageId, float]] = []
        self._arrived = Condition()

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:  # noqa: ARG002
        at = time.perf_counter()
        with self._arrived:
            self.arrivals.append((message.id, at))
            self._arrived.notify_all()
        return Complete()

    def wait_for(self, count: int) -> None:
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.arrivals) >= count, _DEADLINE_SECONDS)


@dataclass(slots=True)
class _Lane:
    """Publishes, and pairs what was published with what the subscriber saw. Threads may publish."""

    agent: Agent
    instance: HostInstance
    subscriber: _Subscriber
    host: int
    service: int
    published: list[tuple[MessageId, float]]
    last_arrival: float = 0.0

    def publish(self) -> None:
        """One message. The clock starts when it is complete."""
        id_ = self.agent.message_id()
        context = Context({"BTS.MessageType": _TYPE, "Number": 1}, {"BTS.MessageID": str(id_)})
        message = Message(id_, context, (Part("body", b"ping"),))
        publication = Publication(self.host, (message,), service_id=self.service)
        began = time.perf_counter()
        self.agent.publish([publication])
        self.published.append((id_, began))

    def latencies(self) -> list[float]:
        """In seconds, of everything published since the last call, once all of it is delivered and settled."""
        self.subscriber.wait_for(len(self.published))
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while self.instance.in_hand and time.monotonic() < deadline:
            self.instance.check()
            time.sleep(0.005)
        published, arrivals = dict(self.published), dict(self.subscriber.arrivals)
        seen = len(self.subscriber.arrivals)
        if published.keys() != arrivals.keys() or seen != len(self.published):
            missing = len(published.keys() - arrivals.keys())
            raise CrossdockError(
                f"The figures are void: {missing} of {len(published)} messages were not seen by their subscriber, "
                f"and {seen - len(arrivals)} were seen again"
            )
        self.last_arrival = max(arrivals.values())
        self.published.clear()
        self.subscriber.arrivals.clear()
        return [arrivals[id_] - began for id_, began in published.items()]


@contextmanager
def _subscribed(agent: Agent, tracking: Level) -> Iterator[_Lane]:
    """One subscriber, and a host instance that gives it what arrives."""
    filter_ = parse_filter(PropertyRegistry(_PROPERTIES), f"MessageType = '{_TYPE}' AND Number >= 0")
    port = DeployedPort("Subscriber", _HOST, 5, filter_, {"name": "Subscriber"}, track=tracking)
    agent.subscriptions.deploy(Deployment("bench", _PROPERTIES, [], [port]))
    service = max(each.service_id for each in agent.router().subscriptions.values())  # the one that came last
    host, subscriber = agent.configuration.hosts()[_HOST], _Subscriber()
    instance = HostInstance(agent, host, lambda _: subscriber)
    instance.start()
    try:
        yield _Lane(agent, instance, subscriber, host, service, [])
    finally:
        instance.stop()


class _CommitAndNotify:
    """One row inserted and committed, then a NOTIFY, heard by another connection in a thread of its own."""

    def __init__(self, connection: psycopg.Connection, listener: psycopg.Connection) -> None:
        self._connection = connection
        self._listener = listener
        self._heard: SimpleQueue[tuple[str, float]] = SimpleQueue()
        self._number = 0

    def measure(self) -> float:
        """Seconds from before the insert until it was heard."""
        self._number += 1
        began = time.perf_counter()
        self._connection.execute("INSERT INTO public.bench_commit (number) VALUES (%s)", [self._number])
        self._connection.execute(f"NOTIFY bench_commit, '{self._number}'")
        try:
            number, at = self._heard.get(timeout=_DEADLINE_SECONDS)
        except Empty as error:
            raise CrossdockError("The figures are void: a NOTIFY of the baseline was not heard") from error
        assert number == str(self._number), "the notifications of the baseline are out of order"
        return at - began

    def listen(self) -> None:
        for notification in self._listener.notifies():
            if notification.payload == "end":
                return
            self._heard.put((notification.payload, time.perf_counter()))


@contextmanager
def _listening(database: str) -> Iterator[_CommitAndNotify]:
    # Each statement commits by itself: a bare commit takes one round trip.
    with (
        psycopg.connect(database, autocommit=True, options="-csynchronous_commit=on") as connection,
        psycopg.connect(database, autocommit=True) as listener,
    ):
        connection.execute("CREATE TABLE public.bench_commit (number bigint)")
        listener.execute("LISTEN bench_commit")
        baseline = _CommitAndNotify(connection, listener)
        thread = Thread(target=baseline.listen, name="bench-listen", daemon=True)
        thread.start()
        try:
            yield baseline
        finally:
            connection.execute("NOTIFY bench_commit, 'end'")
            thread.join()
            connection.execute("DROP TABLE public.bench_commit")


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))


def _percentiles(latencies: Sequence[float]) -> Figures:
    return {
        "messages": len(latencies),
        "p50_ms": _milliseconds(median(latencies)),
        "p99_ms": _milliseconds(_p99(latencies)),
    }


def _p99(latencies: Sequence[float]) -> float:
    return sorted(latencies)[int(0.99 * len(latencies))]


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
