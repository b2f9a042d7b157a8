"""An ordered port keeps its order whatever fails: for now, for good, in a way nobody expected, or with its process."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count, pairwise
from threading import Lock

import pytest

from crossdock.adapter.contract import Reply, SendAdapter
from crossdock.errors import Interruption, UnavailableError
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Clock, Complete, Outcome, Retry, Suspend
from crossdock.message.message import Message, MessageId, Part
from crossdock.messagebox.agent import Agent
from crossdock.pipeline.build import receive_pipeline
from crossdock.pipeline.build_send import send_pipeline
from crossdock.pipeline.definition import PipelineDefinition
from crossdock.send.port import PortDefinition, SendPort
from express import a_message, deploy, kinds, port, publish, rows, unbalanced
from office import eventually
from server_clock import JumpingClock
from service import quick_upkeep
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
NUMBERED = 10_000 if SOAK else 1_000
READING = PipelineDefinition(disassemble="passthrough")


class Moody:
    """A service that refuses some, stumbles over others, and at random fails for now, or so that its process must end."""

    name = "Partner"
    in_flight = None

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = Lock()
        self.got: list[str] = []
        self.ended = 0

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:  # noqa: ARG002
        with self._lock:  # two at once would be wrong already
            name = message.body.decode()
            if name.endswith("13"):
                return Suspend("refused")
            if name.endswith("57"):
                raise ZeroDivisionError("a bug")
            fate = self._random.random()
            if fate < 0.005:
                self.ended += 1
                raise Interruption("the process has to end")
            if fate < 0.05:
                return Retry(timedelta(minutes=5), "down")
            self.got.append(name)
            return Complete()


def test_ordered_port_keeps_its_order_whatever_fails_and_whoever_ends(agent: Agent, database: str) -> None:
    clock = JumpingClock(database)
    service = Moody(12)
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    names = [f"{n:05}" for n in range(NUMBERED)]
    for start in range(0, NUMBERED, 250):
        bodies = [[Part("body", name.encode())] for name in names[start : start + 250]]
        publish(agent, *(a_message(agent, {"Region": "NO"}, parts=body) for body in bodies))
    accepted = [name for name in names if not name.endswith(("13", "57"))]

    def new_instance() -> HostInstance:
        made = HostInstance(
            agent, agent.configuration.hosts()["Default"], lambda _: service, limits=quick_upkeep(workers=2)
        )
        made.start()
        return made

    instances = [new_instance(), new_instance()]

    def all_delivered() -> bool:
        clock.jump(minutes=5)
        for position, each in enumerate(instances):
            try:
                each.check()
            except UnavailableError:
                each.stop()
                instances[position] = new_instance()
        return len(set(service.got)) == len(accepted)

    try:
        until(all_delivered, 1800 if SOAK else 120)
        until(lambda: agent.queues.idle(agent.configuration.hosts()["Default"]), 30)
    finally:
        for each in instances:
            each.stop()

    # What was delivered when its process ended is not settled: it comes again, and everything after it in its order.
    assert list(dict.fromkeys(service.got)) == accepted
    place = {name: number for number, name in enumerate(accepted)}
    steps = [place[after] - place[before] for before, after in pairwise(service.got)]
    assert max(steps) == 1
    assert 0 < sum(step < 1 for step in steps) <= service.ended
    assert kinds(agent) == [("send", "Line")] * (NUMBERED - len(accepted))
    assert rows(database, "SELECT held_by, blocked_by FROM subqueue_lease") == [(None, None)]
    assert agent.statistics().ports == {"Line": len(accepted)}
    assert unbalanced(database) == []


class Broken:
    """An adapter with a bug that shows now and then."""

    def __init__(self) -> None:
        self.broken = True
        self.got: list[bytes] = []

    def send(self, message: Message, *, attempt: int) -> Reply | None:  # noqa: ARG002
        if self.broken and message.body == b"1":
            raise ZeroDivisionError("a bug")
        self.got.append(message.body)
        return None

    def close(self) -> None:
        pass


@contextmanager
def stopping_line(
    agent: Agent,
    adapter: SendAdapter,
    *,
    response: PipelineDefinition | None = None,
    route_failures: bool = False,
    taken_id: int = -1,
) -> Iterator[list[Message]]:
    """Four messages for an ordered port that stops on failure and is at work, the second of them suspended.

    `taken_id` is the one of the ids it draws that is taken: what has it cannot be published.
    """
    definition = PortDefinition(
        name="Line", adapter="file", address="unused", stop_on_failure=True, route_failures=route_failures
    )
    reading = None if response is None else receive_pipeline(response)
    deploy(agent, port("Line", "Region = 'NO'", ordered=True), port("Failures", "ErrorReport.FailureCode = 'send'"))
    messages = [a_message(agent, {"Region": "NO"}, parts=[Part("body", str(n).encode())]) for n in range(4)]
    publish(agent, *messages)
    drawn = count()

    def new_id() -> MessageId:
        return messages[3].id if next(drawn) == taken_id else agent.message_id()

    service = SendPort(definition, send_pipeline(definition.pipeline), reading, new_id, adapter)
    host = agent.configuration.hosts()["Default"]
    instance = HostInstance(agent, host, lambda _: service, limits=quick_upkeep(workers=2))
    instance.start()
    try:
        eventually(lambda: [each for each in kinds(agent) if each[0] == "send"], [("send", "Line")])
        until(lambda: agent.queues.idle(host), 30)
        yield messages
    finally:
        instance.stop()


def test_ordered_port_that_stops_on_failure_stops_also_for_what_nobody_expected(agent: Agent) -> None:
    adapter = Broken()
    with stopping_line(agent, adapter) as messages:
        assert adapter.got == [b"0"]
        adapter.broken = False
        agent.suspended.resume([messages[1].id])

        eventually(lambda: adapter.got, [b"0", b"1", b"2", b"3"])


class Answering(Broken):
    """One that gives an answer to each."""

    def send(self, message: Message, *, attempt: int) -> Reply:
        super().send(message, attempt=attempt)
        return Reply(b"answer")


def test_answer_that_cannot_be_published_stops_the_line(agent: Agent) -> None:
    adapter = Answering()
    adapter.broken = False
    with stopping_line(agent, adapter, response=READING, taken_id=1) as messages:
        assert adapter.got == [b"0", b"1"]
        agent.suspended.resume([messages[1].id])

        eventually(lambda: adapter.got, [b"0", b"1", b"1", b"2", b"3"])


def test_report_that_cannot_be_published_stops_the_line(agent: Agent) -> None:
    adapter = Broken()
    with stopping_line(agent, adapter, route_failures=True, taken_id=0) as messages:
        assert adapter.got == [b"0"]
        adapter.broken = False
        agent.suspended.resume([messages[1].id])

        eventually(lambda: adapter.got, [b"0", b"1", b"2", b"3"])
