"""Worker processes for tests of restarts: `python worker_process.py publish|host|clean DATABASE FOLDER`, until SIGTERM.

Each goes on through whatever happens to PostgreSQL; what a kill -9 leaves behind is for the others to find.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TypeVar

from box import a_publication, ids
from crossdock.errors import TransientError
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Clock, Complete, Outcome, Retry
from crossdock.maintenance.schedule import Schedule, all_jobs
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent
from crossdock.receive.item import IntakeItem

DELIVERED = "delivered.txt"
_SOURCES = 5
_PAUSE_SECONDS = 0.05

Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


def publish(agent: Agent, stop: Event, _: Path) -> None:
    """Publish sources of the ledger, a few at a time and in no order, so that publishers meet; forget what is done."""
    while not stop.is_set():
        try:
            unread = agent.ledger.read(0, 2**62)
            _publish(agent, random.sample(unread, min(len(unread), _SOURCES)))
            agent.ledger.forget([sequence for sequence, _, _ in agent.ledger.published(after=0)])
        except TransientError as error:
            logger.warning("The publisher waits: %s", error)
            unread = []
        if not unread:
            stop.wait(_PAUSE_SECONDS)


def _publish(agent: Agent, items: list[IntakeItem]) -> None:
    """The size of a source is the number of its messages."""
    agent.publish(
        [a_publication(agent, item.sequence, *[{"Region": "NO"}] * item.size, bits=item.random_bits) for item in items]
    )


def host(agent: Agent, stop: Event, folder: Path) -> None:
    """Deliver: every message is a line of the file, with its service."""
    file = os.open(folder / DELIVERED, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    _, host_id = _patiently(stop, lambda: ids(agent))
    instance = _patiently(stop, lambda: HostInstance(agent, host_id, lambda service: _Recorder(file, service)))
    instance.start()
    while not stop.wait(_PAUSE_SECONDS):
        instance.check()
    instance.stop()
    instance.check()


@dataclass(frozen=True, slots=True)
class _Recorder:
    """Appends a line at once and whole; the first attempt at one message in 64 has to wait."""

    name = "Partner"
    in_flight = None

    file: int
    service: int

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:  # noqa: ARG002
        sequence, _, position = message.body.decode().partition("/")
        if attempt == 0 and (int(sequence) + int(position)) % 64 == 0:
            return Retry(timedelta(milliseconds=50), "not yet")
        os.write(self.file, f"{message.id} {self.service} {sequence} {position}\n".encode())
        return Complete()


def clean(agent: Agent, stop: Event, _: Path) -> None:
    """All jobs of maintenance, one after the other without a pause to speak of."""
    schedule = Schedule(dict.fromkeys(all_jobs(agent), _PAUSE_SECONDS))
    schedule.start()
    stop.wait()
    schedule.stop()


def _patiently(stop: Event, ask: Callable[[], Answer]) -> Answer:
    """PostgreSQL may be away when a process starts."""
    while True:
        try:
            return ask()
        except TransientError:
            if stop.wait(_PAUSE_SECONDS):
                sys.exit(0)


def main() -> None:
    kind, database, folder = sys.argv[1:]
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with Agent(database) as agent:
        {"publish": publish, "host": host, "clean": clean}[kind](agent, stop, Path(folder))


if __name__ == "__main__":
    main()
