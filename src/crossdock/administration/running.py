"""Running an application, or one half of it, in this process until somebody stops it or nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from crossdock.administration.deploying import Applied, deploy
from crossdock.application.deploy import deployment_of
from crossdock.application.express_lane import prepare_express_lane
from crossdock.application.load import load_application
from crossdock.application.store import existing
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.rows import Statistics
from crossdock.settings import Settings

__all__ = ["Applied", "Deployment", "Statistics", "Summary", "deliver", "loaded", "receive", "run"]

Progress = Callable[[str, Statistics], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did and what it left: received, published and delivered by this run; the rest as it is now.

    Waiting are deliveries until their next attempt, instances of orchestrations, and sources and locations that cannot
    be read. Suspended instances are among the suspended; `instances` are all that live. `all_delivered`: nothing is
    left that somebody has to look at, or that a run which was interrupted did not get to.
    """

    received: int
    published: int
    delivered: int
    suspended: int
    unrouted: int
    waiting: int
    instances: int
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
            statistics.instances,
            dict(statistics.ports),
            not left,
        )

    def advice(self) -> list[tuple[str, str]]:
        """What is left, each with the command that shows it or does something about it."""
        said = []
        if self.suspended:
            said.append((f"{_are(self.suspended)} suspended", "crossdock get suspended"))
        if self.unrouted:
            said.append((f"{_are(self.unrouted)} unrouted: no filter matches", "crossdock get suspended"))
        if self.waiting:
            verb = "waits" if self.waiting == 1 else "wait"
            shown = "crossdock get instances" if self.instances else "crossdock get ports"
            said.append((f"{self.waiting:,} {verb} for a message, a partner or a source", shown))
        return said


def _are(count: int) -> str:
    return f"{count:,} {'is' if count == 1 else 'are'}"


def loaded(application: Path, settings: Settings) -> Deployment:
    """The application in a file, as the MessageBox would see it. Raises ApplicationError if it is wrong."""
    return deployment_of(load_application(application), application, text_limit=settings.text_limit)


def run(
    deployment: Deployment,
    settings: Settings,
    *,
    until_idle: bool,
    stop: Event,
    progress: Progress,
    deployed: Callable[[Applied], object] = lambda _: None,
) -> Summary:
    """Deploy an application and run everything on this machine; `deployed` hears what the deployment has changed."""
    prepare_express_lane(deployment)
    from crossdock.application.processes import run as run_application  # takes a while to import

    def deploy_and_tell(agent: Agent) -> None:
        deployed(deploy(agent, deployment, settings))

    return Summary.of(run_application(deploy_and_tell, settings, until_idle=until_idle, stop=stop, progress=progress))


def receive(settings: Settings, *, stop: Event, progress: Progress) -> None:
    """Receive for everything that is deployed; other processes deliver."""
    from crossdock.application.processes import receive as receive_all

    receive_all(existing(settings), stop=stop, progress=progress)


def deliver(settings: Settings, hosts: Sequence[str], *, stop: Event, progress: Progress) -> None:
    """Run one more instance of each of these hosts; other processes receive."""
    from crossdock.application.processes import deliver as deliver_for

    deliver_for(existing(settings), hosts, stop=stop, progress=progress)
