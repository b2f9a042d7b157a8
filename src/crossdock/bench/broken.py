"""What a partner that hangs costs the ports beside it, at the same host instance."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Event

from crossdock.bench.ceiling import empty
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Clock, Complete, Outcome
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent

_BROKEN = "Port0"
_LOOK_SECONDS = 0.005


class _Partner:
    """Counts what it gets, and takes as long as it likes for it."""

    name = "Partner"
    in_flight = None

    def __init__(self, answers: Event) -> None:
        self.delivered: deque[None] = deque()
        self._answers = answers

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:  # noqa: ARG002
        self._answers.wait()
        self.delivered.append(None)
        return Complete()


def beside_broken(
    agent: Agent, host: int, publish: Callable[[], object], others: int, *, first: bool
) -> tuple[float, float]:
    """References per second of the other ports, which get `others`: without the broken one, and beside it.

    Whether the broken one comes `first` should change from one time to the next: the server has more to clean up later.
    """
    rates: dict[bool, float] = {}
    for broken in (first, not first):
        (agent.subscriptions.start if broken else agent.subscriptions.unenlist)(_BROKEN)
        publish()
        rates[broken] = _rate(agent, host, others)
        empty(agent.database)
    agent.subscriptions.start(_BROKEN)
    return rates[False], rates[True]


def _rate(agent: Agent, host: int, others: int) -> float:
    """Until all others have theirs; whatever the broken one got is let go then."""
    services = {definition["name"]: id_ for id_, _, definition in agent.configuration.services() if definition}
    broken_id = services[_BROKEN]
    working, hanging = Event(), Event()
    working.set()
    partner, broken = _Partner(working), _Partner(hanging)
    instance = HostInstance(agent, host, lambda service: broken if service == broken_id else partner)
    began = time.perf_counter()
    instance.start()
    try:
        while len(partner.delivered) < others:
            instance.check()
            time.sleep(_LOOK_SECONDS)
        return others / (time.perf_counter() - began)
    finally:
        hanging.set()
        instance.stop()
