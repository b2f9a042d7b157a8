"""Who would get these messages: files through the real pipeline and filters of an application, without a database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from crossdock.adapter.file import file_identity, printable_path
from crossdock.errors import UsageError
from crossdock.message.message import Message
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.deployment import DeployedLocation, Deployment
from crossdock.receive.interchange import IntakeItem
from crossdock.receive.location import ReceiveLocation
from crossdock.subscription.explain import explain, format_explanation
from crossdock.subscription.index import SubscriptionIndex
from crossdock.subscription.router import Router, Subscription


@dataclass(frozen=True, slots=True)
class Routed:
    """One message of a file: who would get it, or why it would be suspended."""

    file: Path
    index: int
    message: Message
    matches: tuple[str, ...]
    error: str | None = None

    @property
    def type(self) -> str | None:
        kind = self.message.context.get("BTS.MessageType")  # only written where it failed
        return None if kind is None else str(kind)

    def entry(self, explanation: Mapping[str, list[str]] | None = None) -> dict[str, Any]:
        """For JSON; what is not there is left out."""
        entry: dict[str, Any] = {"file": printable_path(self.file), "index": self.index, "type": self.type}
        entry["matches"] = list(self.matches)
        if self.error is not None:
            entry["error"] = self.error
        return entry if explanation is None else {**entry, "explanation": explanation}


def route_files(deployment: Deployment, files: Sequence[Path], location: str | None) -> Iterator[Routed]:
    """Each message of each file with the send ports that would get it. Raises UsageError if that cannot be told."""
    router = router_of(deployment)
    chosen = [(file, _location(deployment, file, location)) for file in files]
    for file, deployed in chosen:
        yield from _route_file(router, deployed, file)


def explained(deployment: Deployment, routed: Routed) -> dict[str, list[str]]:
    """For each send port the lines that say why the message matches its filter, or why not."""
    if routed.error is not None:
        return {}
    types, promoted = PropertyRegistry(deployment.properties), routed.message.context.promoted
    ports = [port for port in deployment.ports if not port.waits]
    return {port.name: format_explanation(explain(port.filter, promoted, types)) for port in ports}


def router_of(deployment: Deployment) -> Router:
    """The router an application would have once it is deployed."""
    subscriptions = {
        number: Subscription(number, number, port.name, 0, "started", port.priority)
        for number, port in enumerate(deployment.ports)
    }
    types = PropertyRegistry(deployment.properties)
    filters = [(number, port.filter.groups) for number, port in enumerate(deployment.ports)]
    return Router(0, subscriptions, SubscriptionIndex.build(filters, types, engine="numpy"), types)


def _route_file(router: Router, deployed: DeployedLocation, file: Path) -> Iterator[Routed]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    location = ReceiveLocation.from_definition(0, 0, deployed.definition)
    interchange = location.interchange(IntakeItem(0, 0, file_identity(file), len(content)), 0, content)
    routed = [
        Routed(file, _index(message), message, tuple(each.service for each in router.route(message.context.promoted)))
        for message in interchange.messages
    ]
    failed = [Routed(file, _index(each.message), each.message, (), each.reason) for each in interchange.failures]
    yield from sorted(routed + failed, key=lambda each: each.index)


def _index(message: Message) -> int:
    number = message.context.get("BTS.InterchangeSequenceNumber")  # only written in the report on a failed message
    assert isinstance(number, int)
    return number - 1


def _location(deployment: Deployment, file: Path, name: str | None) -> DeployedLocation:
    """The one that is named, the only one, or the only one whose mask fits the file."""
    if name is not None:
        named = [location for location in deployment.locations if location.name == name]
        if not named:
            known = ", ".join(location.name for location in deployment.locations) or "none"
            raise UsageError(f"There is no receive location {name!r} (declared: {known}).")
        return named[0]
    fitting = list(deployment.locations)
    if len(fitting) > 1:
        fitting = [each for each in fitting if fnmatchcase(file.name, Path(str(each.definition["address"])).name)]
    if len(fitting) != 1:
        found = "no receive location" if not fitting else "more than one receive location"
        raise UsageError(f"{file} fits {found}; name one with --location.")
    return fitting[0]
