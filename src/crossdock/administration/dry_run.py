"""Who would get these messages: files through the real pipeline and filters of an application, without a database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from crossdock.adapter.file.adapter import file_identity, printable_path
from crossdock.application.deploy import deployment_of
from crossdock.application.folders import received_again
from crossdock.application.load import load_application
from crossdock.errors import UsageError
from crossdock.message.message import Message
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.deployment import DeployedLocation, Deployment
from crossdock.receive.item import IntakeItem
from crossdock.receive.location import ReceiveLocation
from crossdock.receive.ranges import SIZE_LIMIT_BYTES
from crossdock.settings import Settings
from crossdock.subscription.correlation import explain_correlation
from crossdock.subscription.explain import explain, format_explanation
from crossdock.subscription.lint import Finding, lint
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter
from crossdock.whole_file import check_whole, read_whole


@dataclass(frozen=True, slots=True)
class Routed:
    """One message of a file: who would get it, or why it would be suspended.

    `matches` are send ports and orchestrations. `activates` are those of the orchestrations, of which it would start an
    instance. `joins` are orchestrations of which it would join an instance, if one waits for these values of it. In a
    convoy an orchestration is in both: the message starts an instance only if none waits for its values.
    """

    file: Path
    index: int
    message: Message
    matches: tuple[str, ...]
    error: str | None = None
    activates: tuple[str, ...] = ()
    joins: Mapping[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str | None:
        kind = self.message.context.get("BTS.MessageType")  # only written where it failed
        return None if kind is None else str(kind)

    def entry(self, explanation: Mapping[str, list[str]] | None = None) -> dict[str, Any]:
        """For JSON; what is not there is left out."""
        entry: dict[str, Any] = {"file": printable_path(self.file), "index": self.index, "type": self.type}
        entry["matches"] = list(self.matches)
        if self.activates:
            entry["activates"] = list(self.activates)
        if self.joins:
            entry["joins"] = dict(self.joins)
        if self.error is not None:
            entry["error"] = self.error
        return entry if explanation is None else {**entry, "explanation": explanation}


def route_files(deployment: Deployment, files: Sequence[Path], location: str | None) -> Iterator[Routed]:
    """Each message of each file with whoever would get it. Raises UsageError if that cannot be told."""
    for file in files:
        check_whole(file, SIZE_LIMIT_BYTES)
    chosen = [(file, _location(deployment, file, location)) for file in files]
    for file, deployed in chosen:
        yield from _route_file(deployment, deployed, file)


def lint_application(application: Path, settings: Settings) -> list[Finding]:
    """Filters of an application that are probably not what was meant, and ports that write where it receives."""
    model = load_application(application)
    deployment = deployment_of(model, application, text_limit=settings.text_limit)
    promoted = [name for schema in model.schemas for name in schema.promote]
    filters = {port.group or port.name: port.filter for port in deployment.ports if not port.waits}
    circles = [
        Finding(port, "received again", f"receive location {location!r} may list what this port writes")
        for port, location in received_again(model, application.absolute().parent)
    ]
    return [*lint(filters, promoted), *circles]


def explained(deployment: Deployment, routed: Routed) -> dict[str, list[str]]:
    """For each send port and orchestration the lines that say why the message matches its filter, or why not.

    For an orchestration also why it may join an instance, or why not.
    """
    if routed.error is not None:
        return {}
    types, promoted = PropertyRegistry(deployment.properties), routed.message.context.promoted
    shown = {
        name: format_explanation(explain(filter_, promoted, types))
        for name, filter_ in _filters(deployment, leaving_out=[port.name for port in deployment.ports if port.waits])
    }
    for each in deployment.orchestrations:
        for name, (properties, of_types) in each.correlations.items():
            verdict = explain_correlation(name, properties, of_types, promoted)
            joins = f"joins an instance that waits for {verdict.values} (correlation {name}), if there is one"
            shown[each.name].append(f"  {joins if verdict.may_follow else verdict.reason}")
    return shown


def _route_file(deployment: Deployment, deployed: DeployedLocation, file: Path) -> Iterator[Routed]:
    content = read_whole(file, SIZE_LIMIT_BYTES)
    location = ReceiveLocation.from_definition(0, 0, deployed.definition)
    orchestrations = {each.name for each in deployment.orchestrations}
    publication = location.publication(IntakeItem(0, 0, file_identity(file), len(content), 0), content)
    routed = [
        Routed(
            file,
            _index(message),
            message,
            matches := _matching(deployment, message),
            activates=tuple(name for name in matches if name in orchestrations),
            joins=_joining(deployment, message),
        )
        for message in publication.messages
    ]
    failed = [Routed(file, _index(each.message), each.message, (), each.reason) for each in publication.failures]
    yield from sorted(routed + failed, key=lambda each: each.index)


def _matching(deployment: Deployment, message: Message) -> tuple[str, ...]:
    """By the specification: an index would take longer to build than it saves on a few messages."""
    matcher, promoted = Matcher(), message.context.promoted
    return tuple(name for name, filter_ in _filters(deployment) if matcher.matches(filter_, promoted))


def _filters(deployment: Deployment, *, leaving_out: Sequence[str] = ()) -> Iterator[tuple[str, Filter]]:
    """Of send ports, then of orchestrations."""
    yield from ((port.name, port.filter) for port in deployment.ports if port.name not in leaving_out)
    yield from ((each.name, each.filter) for each in deployment.orchestrations)


def _joining(deployment: Deployment, message: Message) -> dict[str, str]:
    """Orchestrations that have a correlation for the type and the properties of the message, with its values."""
    promoted = message.context.promoted
    found = {
        each.name: [
            verdict.values
            for name, (properties, types) in each.correlations.items()
            if (verdict := explain_correlation(name, properties, types, promoted)).may_follow
        ]
        for each in deployment.orchestrations
    }
    return {name: "; ".join(dict.fromkeys(values)) for name, values in found.items() if values}


def _index(message: Message) -> int:
    number = message.context.get("BTS.InterchangeSequenceNumber")  # only written in the report on a failed message
    assert isinstance(number, int)
    return number - 1


def _location(deployment: Deployment, file: Path, name: str | None) -> DeployedLocation:
    """The one that is named, the only one, or the only one whose mask, or mask and folder, fits the file."""
    if name is not None:
        named = [location for location in deployment.locations if location.name == name]
        if not named:
            known = ", ".join(location.name for location in deployment.locations) or "none"
            raise UsageError(f"There is no receive location {name!r} (declared: {known}).")
        return named[0]
    fitting = list(deployment.locations)
    if len(fitting) > 1:
        fitting = [each for each in fitting if fnmatchcase(file.name, Path(str(each.definition["address"])).name)]
    if len(fitting) > 1:  # the same mask in several folders: the folder of the file decides, if it is one of them
        folder = file.resolve().parent
        beside = [each for each in fitting if Path(str(each.definition["address"])).parent == folder]
        fitting = beside or fitting
    if len(fitting) != 1:
        found = "no receive location" if not fitting else "more than one receive location"
        known = ", ".join(location.name for location in fitting or deployment.locations) or "none"
        raise UsageError(f"{file} fits {found}; name one with --location NAME: {known}.")
    return fitting[0]
