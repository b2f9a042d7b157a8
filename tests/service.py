"""Services for host instances to deliver to, and a host instance that does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import Event, Lock

from box import NOW
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Complete, Outcome, Service
from crossdock.message.message import Message, Part
from crossdock.messagebox.agent import Agent
from express import a_message, publish


class Partner:
    """A service outside: remembers what it got, in the order it got it, and answers as the test wants it to."""

    name = "Partner"
    in_flight: int | None = None

    def __init__(self, answer: Callable[[str, int], Outcome] | None = None) -> None:
        self._answer = answer or (lambda _, __: Complete())
        self._lock = Lock()
        self.got: list[str] = []
        self.attempts: list[tuple[str, int]] = []
        self.heard = Event()

    def deliver(self, message: Message, *, attempt: int, now: datetime) -> Outcome:
        assert now.tzinfo is not None
        name = message.body.decode()
        outcome = self._answer(name, attempt)
        with self._lock:
            self.attempts.append((name, attempt))
            if isinstance(outcome, Complete):
                self.got.append(name)
        self.heard.set()
        return outcome


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@contextmanager
def running(
    agent: Agent, service: Service | None, clock: Callable[[], datetime] | None = None, workers: int = 4
) -> Iterator[HostInstance]:
    """An instance of the default host whose every service is this one."""
    with _running(
        HostInstance(agent, agent.hosts()["Default"], lambda _: service, workers=workers, clock=clock or Clock())
    ) as made:
        yield made


@contextmanager
def running_all(
    agent: Agent, services: Mapping[int, Service], clock: Callable[[], datetime], workers: int = 4
) -> Iterator[HostInstance]:
    """An instance of the default host with these services."""

    def find(service_id: int) -> Service | None:
        return services.get(service_id)

    with _running(HostInstance(agent, agent.hosts()["Default"], find, workers=workers, clock=clock)) as made:
        yield made


@contextmanager
def _running(made: HostInstance) -> Iterator[HostInstance]:
    made.start()
    try:
        yield made
        made.check()
    finally:
        made.stop()


def publish_named(agent: Agent, *names: str) -> None:
    publish(agent, *(a_message(agent, {"Region": "NO"}, parts=[Part("body", name.encode())]) for name in names))


def settled(agent: Agent) -> bool:
    """Whether nothing is ready or claimed; what waits or is suspended stays."""
    statistics = agent.statistics()
    return not (statistics.ready or statistics.claimed)
