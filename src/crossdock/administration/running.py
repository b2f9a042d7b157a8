"""Running an application, or one half of it, in this process until somebody stops it or nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.application.store import existing
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.rows import Statistics
from crossdock.settings import Settings

__all__ = ["Deployment", "Statistics", "Summary", "deliver", "loaded", "receive", "run"]

Progress = Callable[[str, Statistics], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did and what it left: received, published and delivered by this run; the rest as it is now.

    Waiting are deliveries until their next attempt, and sources and locations that cannot be read. `all_delivered`:
    nothing is left that somebody has to look at, or that a run which was interrupted did not get to.
    """

    received: int
    published: int
    delivered: int
    suspended: int
    unrouted: int
    waiting: int
    ports: Mapping[str, int]
    all_delivered: bool

    @classmethod
    def of(cls, statistics: Statistics) -> Summary:
        looked_at = statistics.suspended or statistics.unrouted or statistics.waiting
        left = looked_at or statistics.unread or statistics.ready or statistics.claimed
        return cls(
            statistics.received,
            statistics.published,
            statistics.delivered,
            statistics.suspended,
            statistics.unrouted,
            statistics.waiting + statistics.unread,
            dict(statistics.ports),
            not left,
        )


def loaded(application: Path, settings: Settings) -> Deployment:
    """The application in a file, as the MessageBox would see it. Raises ApplicationError if it is wrong."""
    return deployment_of(load_application(application), application, text_limit=settings.text_limit)


def run(deployment: Deployment, settings: Settings, *, until_idle: bool, stop: Event, progress: Progress) -> Summary:
    """Deploy an application and run everything on this machine."""
    from crossdock.application.runtime import run as run_application  # Spark takes a while to import

    return Summary.of(run_application(deployment, settings, until_idle=until_idle, stop=stop, progress=progress))


def receive(settings: Settings, *, stop: Event, progress: Progress) -> None:
    """Receive for everything that is deployed; other processes deliver."""
    from crossdock.application.runtime import receive as receive_all

    receive_all(existing(settings), stop=stop, progress=progress)


def deliver(settings: Settings, hosts: Sequence[str], *, stop: Event, progress: Progress) -> None:
    """Run one more instance of each of these hosts; other processes receive."""
    from crossdock.application.runtime import deliver as deliver_for

    deliver_for(existing(settings), hosts, stop=stop, progress=progress)
