"""Turns an application into what the MessageBox keeps: properties, locations, ports and filters.

Everything that can be wrong with an application is found here, before anything starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crossdock.adapter.registry import receive_adapter
from crossdock.application.model import ApplicationModel, LocationModel, ReceivePortModel, SendPortModel
from crossdock.application.pipelines import Pipelines
from crossdock.errors import ApplicationError, FilterError
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.receive.location import LocationDefinition
from crossdock.send.port import PortDefinition
from crossdock.subscription.predicate import Filter, filter_of_groups
from crossdock.subscription.text import parse_filter


def deployment_of(application: ApplicationModel, file: Path, *, text_limit: int) -> Deployment:
    """The deployment of the application in `file`, whose addresses are relative to it. Raises ApplicationError."""
    try:
        registry = PropertyRegistry(application.properties)
        _check_names(application)
        folder = file.absolute().parent
        pipelines = Pipelines(application, registry, folder, text_limit)
        locations = [
            _location(port, location, pipelines, folder)
            for port in application.receive_ports
            for location in port.locations
        ]
        ports = [_port(port, registry, folder) for port in application.send_ports]
    except ApplicationError as error:
        raise ApplicationError(f"{file}: {error}") from error
    hosts = {host.name: tuple(host.labels) for host in application.hosts}
    return Deployment(application.application, application.properties, locations, ports, hosts)


def _check_names(application: ApplicationModel) -> None:
    _refuse_repeats("host", (host.name for host in application.hosts))
    _refuse_repeats("schema", (schema.type for schema in application.schemas))
    _refuse_repeats("pipeline", (pipeline.name for pipeline in application.pipelines))
    _refuse_repeats("receive port", (port.name for port in application.receive_ports))
    _refuse_repeats(
        "receive location", (location.name for port in application.receive_ports for location in port.locations)
    )
    _refuse_repeats("send port", (port.name for port in application.send_ports))


def _refuse_repeats(kind: str, names: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ApplicationError(f"the name {repeated[0]!r} is used for more than one {kind}; give each its own")


def _location(port: ReceivePortModel, location: LocationModel, pipelines: Pipelines, folder: Path) -> DeployedLocation:
    definition = LocationDefinition(
        name=location.name,
        port=port.name,
        adapter=location.adapter,
        address=_mask(folder, location) if location.adapter == "file" else location.address,
        options=_options(folder, location),
        pipeline=pipelines.of(port, location),
        labels=tuple(location.labels),
        route_failures=port.failed_messages == "route",
    )
    try:
        receive_adapter(definition.adapter, definition.address, definition.options)
    except ApplicationError as error:
        raise ApplicationError(f"receive location {location.name!r}: {error}") from error
    return DeployedLocation(location.name, location.host, definition.model_dump(mode="json"))


def _options(folder: Path, location: LocationModel) -> dict[str, Any]:
    """As they are, with the folder of an archive where it really is."""
    archive = location.options.get("archive")
    if location.adapter != "file" or not isinstance(archive, str):
        return location.options
    return {**location.options, "archive": str((folder / archive).resolve())}


def _port(port: SendPortModel, registry: PropertyRegistry, folder: Path) -> DeployedPort:
    definition = PortDefinition(name=port.name, adapter=port.adapter, address=_absolute(folder, port.address))
    return DeployedPort(
        port.name,
        port.host,
        port.priority,
        compile_filter(registry, port),
        definition.model_dump(mode="json"),
        ordered=port.ordered,
    )


def compile_filter(registry: PropertyRegistry, port: SendPortModel) -> Filter:
    """The filter of a port in any of its spellings; none means that nothing is routed here by content."""
    if port.filter is None:
        return Filter()
    try:
        if isinstance(port.filter, str):
            return parse_filter(registry, port.filter)
        return filter_of_groups(registry, port.filter)
    except FilterError as error:
        pointed = error.pointed()
        place = f" (column {error.position + 1})" if error.position is not None else ""
        raise ApplicationError(
            f"send port {port.name!r}, filter{place}: {error.reason}" + (f"\n{pointed}" if pointed else "")
        ) from error


def _mask(folder: Path, location: LocationModel) -> str:
    """The folder by its one real name, however it was written, then the mask: the same file is the same source."""
    path = folder / location.address
    if location.address.endswith("/") or any(character in str(path.parent) for character in "*?["):
        raise ApplicationError(
            f"receive location {location.name!r}: the address {location.address!r} is a folder without wildcards, "
            'then a mask for the names of files, such as "in/*.json"'
        )
    return str(path.parent.resolve() / path.name)


def _absolute(folder: Path, address: str) -> str:
    return str(folder / address)
