"""The bulk lane as `crossdock run` runs it, for a benchmark: files in, references in the queues, and out again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from crossdock.adapter.file.transport import MINIMUM_AGE_SECONDS
from crossdock.bench.nowhere import Counter, NoService, Nowhere, One
from crossdock.bench.traffic import Format, Traffic
from crossdock.dataflow.outcome import RangeOutcome
from crossdock.dataflow.receive import ReceiveFlow
from crossdock.dataflow.session import Spark, start_spark
from crossdock.errors import CrossdockError
from crossdock.host.instance import HostInstance
from crossdock.maintenance.schedule import Schedule, all_jobs
from crossdock.messagebox.agent import Agent
from crossdock.pipeline.send import SendPipeline
from crossdock.receive.intake import Intake
from crossdock.receive.location import ReceiveLocation
from crossdock.send.port import PortDefinition, SendPort
from crossdock.settings import Settings

_FILE_MESSAGES = 2_500
_ROUND_SECONDS = 0.25
_LOOK_SECONDS = 0.02
_SETTLE_SECONDS = 5.0
_STUCK_SECONDS = 300.0
_LATENCY_FILES, _LATENCY_SECONDS = 100, 10.0
_PUBLISHED = """
    SELECT (SELECT coalesce(sum(received), 0) FROM publication WHERE NOT counted)
         + (SELECT coalesce(sum(received), 0) FROM publication_total)
"""


@dataclass(slots=True)
class Lane:
    """Spark runs; `publish` and `deliver` do one half each and give the seconds."""

    agent: Agent
    spark: Spark
    flow: ReceiveFlow
    intake: Intake
    locations: dict[int, ReceiveLocation]
    outcomes: list[RangeOutcome] = field(default_factory=list)

    def end_to_end(self, messages: int, references: int) -> float:
        """Seconds from the first listing to the last settled reference, publishing and delivering at the same time."""
        [host] = self.agent.configuration.hosts().values()
        counter = Counter()
        instance = HostInstance(self.agent, host, One(self._port_to_nowhere(counter)))
        began = time.perf_counter()
        instance.start()
        try:
            self._take_in(messages)
            while counter.sent < references or not self.agent.queues.idle(host):
                instance.check()
                if time.perf_counter() - began > _STUCK_SECONDS + references / 1_000:
                    raise CrossdockError(f"Delivering is stuck after {counter.sent:,} of {references:,} references")
                time.sleep(_LOOK_SECONDS)
            seconds = time.perf_counter() - began
        finally:
            instance.stop()
        self.intake.acknowledge(self.locations)
        if counter.sent != references:
            raise CrossdockError(f"The figures are void: {counter.sent:,} deliveries of {references:,} references")
        return seconds

    def publish(self, messages: int) -> float:
        """Wait until so many more messages have been taken in; the files are there and complete."""
        seconds = self._take_in(messages)
        self.intake.acknowledge(self.locations)
        return seconds

    def _take_in(self, messages: int) -> float:
        with psycopg.connect(self.agent.database, options="-csearch_path=crossdock", autocommit=True) as connection:
            goal = _published(connection) + messages
            began = round_at = time.perf_counter()
            while (done := _published(connection)) < goal:
                if time.perf_counter() >= round_at:
                    self.intake.round(self.locations, {})
                    self.flow.check()
                    round_at = time.perf_counter() + _ROUND_SECONDS
                if time.perf_counter() - began > _STUCK_SECONDS + messages / 1_000:
                    raise CrossdockError(
                        f"Receiving is stuck with {goal - done:,} messages to go; see {self.spark.log}"
                    )
                time.sleep(_LOOK_SECONDS)
            return time.perf_counter() - began

    def latency(self, traffic: Traffic, format_: Format, folder: Path) -> list[float]:
        """Seconds from a file being written to its message being committed, for ten small files a second."""
        written: list[float] = []
        seen: list[float] = []
        with psycopg.connect(self.agent.database, options="-csearch_path=crossdock", autocommit=True) as connection:
            before = _published(connection)
            round_at, next_file = 0.0, time.monotonic()
            while len(seen) < _LATENCY_FILES:
                now = time.monotonic()
                if now >= next_file and len(written) < _LATENCY_FILES:
                    _put(traffic, format_, folder, len(written))
                    written.append(time.monotonic())
                    next_file += _LATENCY_SECONDS / _LATENCY_FILES
                if now >= round_at:
                    self.intake.round(self.locations, {})
                    round_at = now + _ROUND_SECONDS
                new = _published(connection) - before - len(seen)
                seen += [time.monotonic()] * new
                time.sleep(_LOOK_SECONDS / 4)
        return [end - begin for begin, end in zip(written, seen, strict=True)]

    def deliver(self, references: int) -> tuple[float, float]:
        """Deliver so many references, until the queue is empty: references per second to nowhere.

        The first half goes through a send port, the other to a service that does nothing at all.
        """
        [host] = self.agent.configuration.hosts().values()
        counter = Counter()
        port = self._port_to_nowhere(counter)
        through_port = self._drain(HostInstance(self.agent, host, One(port)), counter, references // 2)
        others, left = Counter(), self.agent.statistics().ready
        bare = self._drain(HostInstance(self.agent, host, One(lambda name: NoService(name, others))), others, left)
        if not self.agent.queues.idle(host):
            raise CrossdockError("References are left in the queue though all that were expected were delivered")
        return through_port, bare

    def _port_to_nowhere(self, counter: Counter) -> Callable[[str], SendPort]:
        def port(name: str) -> SendPort:
            definition = PortDefinition(name=name, adapter="file", address="")
            return SendPort(definition, SendPipeline(), None, self.agent.message_id, Nowhere(counter))

        return port

    def _drain(self, instance: HostInstance, counted: Counter, references: int) -> float:
        """References per second, until so many have been delivered. What else it holds it delivers or gives back."""
        began = time.perf_counter()
        instance.start()
        try:
            # Asking the MessageBox would take from what is measured.
            while counted.sent < references:
                instance.check()
                time.sleep(_LOOK_SECONDS / 4)
            return counted.sent / (time.perf_counter() - began)
        finally:
            instance.stop()

    def stages(self) -> dict[str, float]:
        """Seconds of all workers together, and forget them; the sink hears of a batch a moment after its commit."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while self.flow.busy() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        heard, self.outcomes[:] = list(self.outcomes), []
        return {
            "read_and_promote": sum(each.read_seconds for each in heard),
            "match": sum(each.match_seconds for each in heard),
            "store": sum(each.store_seconds for each in heard),
        }


@contextmanager
def running_lane(agent: Agent, home: Path) -> Iterator[Lane]:
    """Start the maintenance and Spark as a run does; the locations are those that are deployed."""
    with ExitStack() as stack:
        schedule = Schedule(all_jobs(agent))
        schedule.start()
        stack.callback(schedule.stop)
        spark = start_spark(Settings(home=home))
        stack.callback(spark.close)
        intake = Intake(agent.ledger)
        outcomes: list[RangeOutcome] = []
        [host] = agent.configuration.hosts().values()
        flow = ReceiveFlow(spark, agent.database, host, agent.outage.waits, outcomes.append)
        flow.start()
        stack.callback(flow.stop)
        yield Lane(agent, spark, flow, intake, deployed_locations(agent), outcomes)


def deployed_locations(agent: Agent) -> dict[int, ReceiveLocation]:
    return {
        id_: ReceiveLocation.from_definition(id_, host, kept) for id_, host, kept in agent.configuration.locations()
    }


def write_files(traffic: Traffic, format_: Format, folder: Path, *, begin: int = 0) -> None:
    """The messages from number `begin` on, in files of a few thousand; old enough on return to be complete."""
    for start in range(begin, begin + traffic.messages, _FILE_MESSAGES):
        numbers = range(start, min(start + _FILE_MESSAGES, begin + traffic.messages))
        (folder / format_.mask.replace("*", f"orders-{start:09}")).write_bytes(format_.content(traffic, numbers))
    time.sleep(MINIMUM_AGE_SECONDS)


def _put(traffic: Traffic, format_: Format, folder: Path, number: int) -> None:
    """One message in a file that appears at once."""
    content = format_.content(traffic, range(number, number + 1))
    hidden = folder / f".{number}"
    hidden.write_bytes(content)
    hidden.rename(folder / format_.mask.replace("*", f"single-{number:09}"))


def _published(connection: psycopg.Connection) -> int:
    row = connection.execute(_PUBLISHED).fetchone()
    assert row is not None
    return int(row[0])
