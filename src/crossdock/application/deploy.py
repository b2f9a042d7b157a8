"""Turns an application into what the MessageBox keeps: properties, locations, ports and filters.

Everything that can be wrong with an application is found here, before anything starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossdock.adapter.http_address import parse_address
from crossdock.adapter.registry import dynamic_options, is_own, receive_adapter, send_adapter
from crossdock.application.model import (
    ApplicationModel,
    FilteredModel,
    LocationModel,
    ReceivePortModel,
    SendPortGroupModel,
    SendPortModel,
    WindowModel,
)
from crossdock.application.pipelines import Pipelines
from crossdock.errors import ApplicationError, FilterError
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment, unanswerable
from crossdock.receive.express import response_service
from crossdock.receive.location import LocationDefinition
from crossdock.send.port import PortDefinition
from crossdock.send.window import ServiceWindow
from crossdock.subscription.predicate import Filter, filter_of_groups
from crossdock.subscription.text import parse_filter

_TWO_WAY_SEND = ("http",)
_TWO_WAY_RECEIVE = ("http",)
_CERTIFICATES = ("certificate", "key", "ca", "certificate_key")


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
        ports = [_port(port, pipelines, registry, folder) for port in application.send_ports]
        ports += [each for group in application.send_port_groups for each in _members(group, ports, registry)]
        ports += [_waiting(port) for port in application.receive_ports if port.two_way]
        _refuse_repeats("service (a port, a `group/port`, a `port.response`)", (port.name for port in ports))
        _refuse_unanswerable(application)
        _refuse_shared_paths(application)
    except ApplicationError as error:
        raise ApplicationError(f"{file}: {error}") from error
    hosts = {host.name: tuple(host.labels) for host in application.hosts}
    groups = tuple(group.name for group in application.send_port_groups)
    return Deployment(application.application, application.properties, locations, ports, hosts, groups)


def _check_names(application: ApplicationModel) -> None:
    _refuse_repeats("host", (host.name for host in application.hosts))
    _refuse_repeats("schema", (schema.type for schema in application.schemas))
    _refuse_repeats("pipeline", (pipeline.name for pipeline in application.pipelines))
    _refuse_repeats("receive port", (port.name for port in application.receive_ports))
    _refuse_repeats(
        "receive location", (location.name for port in application.receive_ports for location in port.locations)
    )
    ports = [port.name for port in application.send_ports]
    _refuse_repeats("send port or group", [*ports, *(group.name for group in application.send_port_groups)])
    members = [_member(group.name, port) for group in application.send_port_groups for port in set(group.ports)]
    waiting = [response_service(port.name) for port in application.receive_ports if port.two_way]
    _refuse_repeats("send port, port in a group or response of a receive port", [*ports, *members, *waiting])


def _refuse_repeats(kind: str, names: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ApplicationError(f"the name {repeated[0]!r} is used for more than one {kind}; give each its own")


def _refuse_unanswerable(application: ApplicationModel) -> None:
    """A response carries the labels of its request. What other hosts have is known when it is deployed."""
    hosts = {host.name: host.labels for host in application.hosts}
    for port in application.receive_ports:
        for location in port.locations:
            lacking = sorted(set(location.labels).difference(hosts.get(location.host, location.labels)))
            if port.two_way and lacking:
                raise ApplicationError(unanswerable(location.name, location.host, lacking))


def _refuse_shared_paths(application: ApplicationModel) -> None:
    """Locations of different hosts may be served on different machines; those of one host are not."""
    taken: dict[tuple[str, str, int, str], str] = {}
    for port in application.receive_ports:
        for location in port.locations:
            if location.adapter == "http":
                _, host, number, path = parse_address(location.address)
                other = taken.setdefault((location.host, host, number, path), location.name)
                if other != location.name:
                    raise ApplicationError(f"receive location {location.name!r}: {other!r} listens on the same path")


def _location(port: ReceivePortModel, location: LocationModel, pipelines: Pipelines, folder: Path) -> DeployedLocation:
    definition = LocationDefinition(
        name=location.name,
        port=port.name,
        adapter=location.adapter,
        address=_mask(folder, location) if location.adapter == "file" else location.address,
        options=_options(folder, location.adapter, location.options),
        pipeline=pipelines.of(port, location),
        labels=tuple(location.labels),
        route_failures=port.failed_messages == "route",
        two_way=port.two_way,
        response=pipelines.answering(port),
    )
    if port.two_way and location.adapter not in _TWO_WAY_RECEIVE:
        raise ApplicationError(
            f"receive location {location.name!r}: its port is two-way, and adapter {location.adapter!r} cannot answer"
        )
    try:
        receive_adapter(definition.adapter, definition.address, definition.options, code=str(folder))
    except ApplicationError as error:
        raise ApplicationError(f"receive location {location.name!r}: {error}") from error
    return DeployedLocation(location.name, location.host, definition.model_dump(mode="json"))


def _options(folder: Path, adapter: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """As they are, with the folder of an archive where it really is, and certificates beside the application.

    Of a dynamic port they are the options of each adapter, by its name.
    """
    if adapter is None:
        return {
            kind: _options(folder, kind, each) if isinstance(each, dict) else each for kind, each in options.items()
        }
    found = dict(options)
    if adapter == "file" and isinstance(archive := options.get("archive"), str):
        found["archive"] = str((folder / archive).resolve())
    for name in _CERTIFICATES if adapter == "http" else ():
        if isinstance(file := options.get(name), str) and file:
            found[name] = str(folder / file)  # a link stays one: it may lead to another certificate next year
    return found


def _port(port: SendPortModel, pipelines: Pipelines, registry: PropertyRegistry, folder: Path) -> DeployedPort:
    definition = PortDefinition(
        name=port.name,
        adapter=port.adapter,
        address=_absolute(folder, port.address) if port.address and port.adapter == "file" else port.address,
        options=_options(folder, port.adapter, port.options),
        pipeline=pipelines.sending(port.name, port.pipeline, port.maps),
        response=pipelines.responding(port),
        retry_count=port.retry.count,
        retry_interval=port.retry.interval,
        window=_window(port.service_window),
        in_flight=port.in_flight,
        stop_on_failure=port.stop_on_failure,
        route_failures=port.failed_messages == "route",
    )
    _check_adapter(port, folder)
    return DeployedPort(
        port.name,
        port.host,
        port.priority,
        compile_filter(registry, port),
        definition.model_dump(mode="json"),
        ordered=port.ordered,
        two_way=port.response is not None,
    )


def _window(window: WindowModel | None) -> ServiceWindow | None:
    return None if window is None else ServiceWindow(start=window.from_, end=window.to, zone=window.timezone)


def _check_adapter(port: SendPortModel, folder: Path) -> None:
    try:
        if port.adapter is None:
            for kind, options in port.options.items():
                dynamic_options(kind, options)
        else:
            send_adapter(port.adapter, port.address or "", port.options, code=str(folder)).close()
    except ApplicationError as error:
        raise ApplicationError(f"send port {port.name!r}: {error}") from error
    if port.response is not None and not (port.adapter in (None, *_TWO_WAY_SEND) or is_own(port.adapter)):
        raise ApplicationError(f"send port {port.name!r}: adapter {port.adapter!r} gets no answer to publish")


def _members(
    group: SendPortGroupModel, ports: Sequence[DeployedPort], registry: PropertyRegistry
) -> Iterator[DeployedPort]:
    """Each port of a group once more, with the filter of the group."""
    known = {port.name: port for port in ports}
    _refuse_repeats(f"port of group {group.name!r}", group.ports)
    for name in group.ports:
        if name not in known:
            raise ApplicationError(f"send port group {group.name!r}: there is no send port {name!r}")
        port = known[name]
        if port.two_way or port.definition["adapter"] is None:
            raise ApplicationError(f"send port group {group.name!r}: {name!r} is no static one-way port")
        filter_ = compile_filter(registry, group)
        yield replace(port, name=_member(group.name, name), filter=filter_, group=group.name, port=name)


def _member(group: str, port: str) -> str:
    """The name of the service that a port is as member of a group."""
    return f"{group}/{port}"


def _waiting(port: ReceivePortModel) -> DeployedPort:
    """The service that waits for the responses of a two-way receive port."""
    host = port.locations[0].host
    return DeployedPort(response_service(port.name), host, 5, Filter(), {"name": port.name}, waits=True)


def compile_filter(registry: PropertyRegistry, port: FilteredModel) -> Filter:
    """The filter of a port or group in any of its spellings; none means that nothing is routed here by content."""
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
            f"{_kind(port)} {port.name!r}, filter{place}: {error.reason}" + (f"\n{pointed}" if pointed else "")
        ) from error


def _kind(port: FilteredModel) -> str:
    return "send port" if isinstance(port, SendPortModel) else "send port group"


def _mask(folder: Path, location: LocationModel) -> str:
    """The folder by its one real name, however it was written, then the mask: the same file is the same source."""
    path = folder / location.address
    if location.address.endswith("/") or any(character in str(path.parent) for character in "*?["):
        raise ApplicationError(
            f"receive location {location.name!r}: the address {location.address!r} is a folder without wildcards, "
            'then a mask for the names of files, such as "in/*.json"'
            + ("; for the folders below there is the option `subfolders`" if "**" in location.address else "")
        )
    return str(path.parent.resolve() / path.name)


def _absolute(folder: Path, address: str) -> str:
    return str(folder / address)
