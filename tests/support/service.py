"""Services for host instances to deliver to, and a host instance that does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock
from typing import Any

from crossdock.host.instance import HostInstance
from crossdock.host.limits import HostLimits
from crossdock.host.outcome import Clock, Complete, Outcome, Service, Services
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

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:
        assert now().tzinfo is not None
        name = message.body.decode()
        outcome = self._answer(name, attempt)
        with self._lock:
            self.attempts.append((name, attempt))
            if isinstance(outcome, Complete):
                self.got.append(name)
        self.heard.set()
        return outcome


class BatchPartner(Partner):
    """Takes many at once."""

    batches = True

    def deliver_batch(self, messages: Sequence[tuple[Message, int]], *, now: Clock) -> Sequence[Outcome]:
        return [self.deliver(message, attempt=attempt, now=now) for message, attempt in messages]


def quick_upkeep(**limits: Any) -> HostLimits:
    """What is due, and what the dead left, is looked for at once."""
    return HostLimits(**{"upkeep_seconds": 0.05, "reconnect_seconds": 0.05, "workers": 4, **limits})


@contextmanager
def running(agent: Agent, service: Service | None, **limits: Any) -> Iterator[HostInstance]:
    """An instance of the default host whose every service is this one."""
    with _running(agent, lambda _: service, quick_upkeep(**limits)) as made:
        yield made


@contextmanager
def running_all(agent: Agent, services: Mapping[int, Service], **limits: Any) -> Iterator[HostInstance]:
    """An instance of the default host with these services."""

    def find(service_id: int) -> Service | None:
        return services.get(service_id)

    with _running(agent, find, quick_upkeep(**limits)) as made:
        yield made


@contextmanager
def _running(agent: Agent, services: Services, limits: HostLimits) -> Iterator[HostInstance]:
    made = HostInstance(agent, agent.configuration.hosts()["Default"], services, limits=limits)
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
