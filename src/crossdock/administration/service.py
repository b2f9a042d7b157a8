"""Questions and actions of an operator on a MessageBox that already exists: one service behind every face."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from crossdock.administration.publish import PublishedMessage, given_properties, publish_files
from crossdock.administration.suspended import (
    Resumed,
    Saved,
    SuspendedRow,
    Terminated,
    list_suspended,
    resume,
    save,
    terminate,
)
from crossdock.application.store import existing
from crossdock.application.store import opened as opened_store
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.overview import (
    GroupOverview,
    HostOverview,
    LocationOverview,
    PortOverview,
    SubscriptionOverview,
)
from crossdock.messagebox.subscriptions import Transition
from crossdock.settings import Settings

__all__ = [
    "Administration",
    "GroupOverview",
    "HostOverview",
    "LocationOverview",
    "PortOverview",
    "SubscriptionOverview",
    "SuspendedRow",
    "opened",
]


@contextmanager
def opened(settings: Settings) -> Iterator[Administration]:
    """The service for one command. It creates no MessageBox: UsageError if there is none in the home."""
    with opened_store(existing(settings)) as agent:
        yield Administration(agent, text_limit=settings.text_limit)


class Administration:
    """The lists give typed rows. The verbs say what became of each thing they were asked about."""

    def __init__(self, agent: Agent, *, text_limit: int) -> None:
        self._agent = agent
        self._text_limit = text_limit

    # Lists

    def ports(self) -> Sequence[PortOverview]:
        return self._agent.configuration.list_ports()

    def groups(self) -> Sequence[GroupOverview]:
        return self._agent.configuration.list_groups()

    def locations(self) -> Sequence[LocationOverview]:
        return self._agent.configuration.list_locations()

    def subscriptions(self) -> Sequence[SubscriptionOverview]:
        return self._agent.configuration.list_subscriptions()

    def hosts(self) -> Sequence[HostOverview]:
        return self._agent.configuration.list_hosts()

    def suspended(self) -> Sequence[SuspendedRow]:
        return list_suspended(self._agent)

    # Send ports, groups and receive locations

    def start(self, name: str) -> Transition:
        """Start a send port or a group, and resume what was suspended because it was stopped."""
        return self._agent.subscriptions.start(name)

    def stop(self, name: str) -> Transition:
        """What matches the port or the group from now on is suspended."""
        return self._agent.subscriptions.stop(name)

    def enlist(self, name: str) -> Transition:
        """Give a port or a group its subscriptions, stopped."""
        return self._agent.subscriptions.enlist(name)

    def unenlist(self, name: str) -> Transition:
        """Take the subscriptions of a port or a group away."""
        return self._agent.subscriptions.unenlist(name)

    def enable(self, location: str) -> bool:
        """Let a receive location receive; False if it did already."""
        return self._agent.subscriptions.enable(location, enabled=True)

    def disable(self, location: str) -> bool:
        """Let a receive location rest; False if it did already."""
        return self._agent.subscriptions.enable(location, enabled=False)

    # Messages

    def publish(
        self, files: Sequence[Path], *, location: str | None, to: str | None, properties: Sequence[str]
    ) -> Iterator[PublishedMessage]:
        """Publish files at once, with properties as `NAME=VALUE`; what became of each message once it is committed."""
        promoted = given_properties(self._agent, properties, to, text_limit=self._text_limit)
        yield from publish_files(self._agent, files, location=location, properties=promoted)

    def resume(self, ids: Sequence[str]) -> Sequence[Resumed]:
        """Take suspended messages up again where they stopped."""
        return resume(self._agent, ids)

    def terminate(self, ids: Sequence[str]) -> Sequence[Terminated]:
        """End suspended messages for good."""
        return terminate(self._agent, ids)

    def save(self, ids: Sequence[str], folder: Path) -> Sequence[Saved]:
        """Write the original bytes of messages to files named by their id."""
        return save(self._agent, ids, folder)
