"""Turns an application into what the MessageBox keeps: properties, locations, ports and filters.

Everything that can be wrong with an application is found here, before anything starts.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from crossdock.adapter.allowed import Allowed
from crossdock.adapter.contract import is_pushed, place_of
from crossdock.adapter.registry import allowing, kind_of_place, receive_adapter, send_adapter, transport_of
from crossdock.adapter.transport import checked, credential, resolved
from crossdock.application.folders import check_folders
from crossdock.application.model import (
    AllowModel,
    ApplicationModel,
    FilteredModel,
    LocationModel,
    ReceivePortModel,
    SendPortGroupModel,
    SendPortModel,
    Track,
    WindowModel,
)
from crossdock.application.name_checks import check_names, member_name
from crossdock.application.orchestrations import deployed_orchestrations
from crossdock.application.pipelines import Pipelines
from crossdock.application.problems import Place, Problems, place_text
from crossdock.application.send_checks import check_macros, check_retries
from crossdock.errors import ApplicationError, FilterError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment, unanswerable
from crossdock.pipeline.definition import SendPipelineDefinition
from crossdock.receive.express import response_service
from crossdock.receive.location import LocationDefinition
from crossdock.send.port import PortDefinition
from crossdock.send.window import ServiceWindow
from crossdock.subscription.predicate import Filter, filter_of_groups, is_storable
from crossdock.subscription.text import parse_filter


def deployment_of(application: ApplicationModel, file: Path, *, text_limit: int) -> Deployment:
    """The deployment of the application in `file`, whose addresses are relative to it.

    Raises ApplicationError that says everything that is wrong, each with its artefact, and its line where known.
    """
    problems = Problems(file, application.lines)
    _check_storable(application.model_dump(by_alias=True), (), problems)
    registry = _registry(application, problems)
    problems.raise_any()  # whatever is looked at from here on would be wrong for the same reason
    folder = file.absolute().parent
    check_names(application, problems)
    check_macros(application, registry, problems)
    check_folders(application, folder, problems)
    pipelines = Pipelines(application, registry, folder, text_limit, problems)
    locations = list(_locations(application, pipelines, folder, problems))
    ports = [
        replace(
            _port(port, ("send_ports", number), pipelines, registry, folder, problems),
            track=port.track or application.track,
        )
        for number, port in enumerate(application.send_ports)
    ]
    for number, group in enumerate(application.send_port_groups):
        ports += _members(group, ("send_port_groups", number), ports, registry, problems)
    ports += [_waiting(port, application.track) for port in application.receive_ports if port.two_way]
    _check_answerable(application, problems)
    orchestrations = deployed_orchestrations(application, pipelines, registry, folder, problems)
    problems.raise_any()
    hosts = {host.name: tuple(host.labels) for host in application.hosts}
    groups = tuple(group.name for group in application.send_port_groups)
    return Deployment(
        application.application,
        application.types,
        locations,
        ports,
        hosts,
        groups,
        orchestrations,
        application.personal,
    )


def _registry(application: ApplicationModel, problems: Problems) -> PropertyRegistry:
    registry = PropertyRegistry({})
    for name, type_ in application.types.items():
        problems.tried(("properties", name), partial(registry.declare, name, type_))
    return registry


def _check_storable(value: Any, place: Place, problems: Problems) -> None:
    """PostgreSQL's text has neither NUL nor half of a surrogate pair."""
    if isinstance(value, str):
        _check_text(value, place_text(place), place, problems)
    elif isinstance(value, dict):
        for key, each in value.items():
            _check_text(key, f"a key of {place_text(place)}", place, problems)
            _check_storable(each, (*place, key), problems)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            _check_storable(each, (*place, number), problems)


def _check_text(text: str, where: str, place: Place, problems: Problems) -> None:
    if not is_storable(text):
        what = "has a NUL or half of a surrogate pair, which PostgreSQL cannot hold"
        problems.add(place, f"{where}: {reprlib.repr(text)} {what}")


def _check_answerable(application: ApplicationModel, problems: Problems) -> None:
    """A response carries the labels of its request. What other hosts have is known when it is deployed."""
    hosts = {host.name: host.labels for host in application.hosts}
    for number, port in enumerate(application.receive_ports):
        for position, location in enumerate(port.locations):
            lacking = sorted(set(location.labels).difference(hosts.get(location.host, location.labels)))
            if port.two_way and lacking:
                place = ("receive_ports", number, "locations", position)
                problems.add(place, unanswerable(location.name, location.host, lacking))


def _locations(
    application: ApplicationModel, pipelines: Pipelines, folder: Path, problems: Problems
) -> Iterator[DeployedLocation]:
    """Locations of different hosts may be served on different machines; of one host no two listen at one place."""
    taken: dict[object, str] = {}
    for number, port in enumerate(application.receive_ports):
        response = problems.tried(("receive_ports", number, "response"), partial(pipelines.answering, port))
        for position, location in enumerate(port.locations):
            at = ("receive_ports", number, "locations", position)
            artefact = f"receive location {location.name!r}"
            make = partial(_location, port, location, pipelines, folder, response or SendPipelineDefinition())
            made = problems.tried(at, make, artefact)
            if made is None:
                continue
            deployed, place = made
            deployed = replace(deployed, track=location.track or application.track)
            other = location.name if place is None else taken.setdefault((location.host, place), location.name)
            if other != location.name:
                problems.add((*at, "address"), f"{artefact}: {other!r} listens at the same place")
            yield deployed


def _location(
    port: ReceivePortModel,
    location: LocationModel,
    pipelines: Pipelines,
    folder: Path,
    response: SendPipelineDefinition,
) -> tuple[DeployedLocation, object]:
    """The location, and the place where it listens if partners send to it."""
    receive = transport_of(location.adapter, str(folder)).receive
    definition = LocationDefinition(
        name=location.name,
        port=port.name,
        adapter=location.adapter,
        address=receive.address(folder, location.address),
        options=resolved(receive.options, folder, location.options),
        pipeline=pipelines.of(port, location),
        labels=tuple(location.labels),
        route_failures=port.failed_messages == "route",
        two_way=port.two_way,
        response=response,
    )
    adapter = receive_adapter(definition.adapter, definition.address, definition.options, code=str(folder))
    if port.two_way and not (is_pushed(adapter) and getattr(adapter, "answers", False)):
        raise ApplicationError(f"its port is two-way, and adapter {location.adapter!r} cannot answer")
    place = place_of(definition.adapter, definition.address, adapter) if is_pushed(adapter) else None
    return DeployedLocation(location.name, location.host, definition.model_dump(mode="json")), place


def _port(
    port: SendPortModel,
    place: Place,
    pipelines: Pipelines,
    registry: PropertyRegistry,
    folder: Path,
    problems: Problems,
) -> DeployedPort:
    """The port without what is wrong with it, which is one of the problems."""
    artefact = f"send port {port.name!r}"
    address, options = problems.tried(place, partial(_destination, port, folder), artefact) or (None, {})
    allowed = [
        problems.tried((*place, "allow", number), partial(_allowed, port, each, folder), f"{artefact}, allow")
        for number, each in enumerate(port.allow)
    ]
    sending = partial(pipelines.sending, port.name, port.pipeline, port.maps)
    definition = PortDefinition(
        name=port.name,
        adapter=port.adapter,
        address=address,
        options=options,
        allow=tuple(each for each in allowed if each is not None),
        pipeline=problems.tried((*place, "pipeline"), sending) or SendPipelineDefinition(),
        response=problems.tried((*place, "response"), partial(pipelines.responding, port)),
        retry_count=port.retry.count,
        retry_interval=port.retry.interval,
        window=_window(port.service_window),
        in_flight=port.in_flight,
        stop_on_failure=port.stop_on_failure,
        route_failures=port.failed_messages == "route",
    )
    return DeployedPort(
        port.name,
        port.host,
        port.priority,
        problems.tried((*place, "filter"), partial(compile_filter, registry, port)) or Filter(),
        definition.model_dump(mode="json"),
        ordered=port.ordered,
        two_way=port.response is not None,
    )


def _destination(port: SendPortModel, folder: Path) -> tuple[str | None, dict[str, Any]]:
    """The address and the options as they are deployed; of a dynamic port, the options of each adapter by its name."""
    if port.adapter is None:
        return None, {kind: _shared_options(kind, options, folder) for kind, options in port.options.items()}
    send = transport_of(port.adapter, str(folder)).send
    address, options = send.address(folder, port.address or ""), resolved(send.options, folder, port.options)
    adapter = send_adapter(port.adapter, address, options, code=str(folder))
    try:
        with FOREIGN_CODE:
            adapter.close()
    except Exception as error:
        raise ApplicationError(f"adapter {port.adapter!r} cannot be closed: {described(error)}") from error
    check_retries(port, adapter)
    if port.response is not None and not send.answers:
        raise ApplicationError(f"adapter {port.adapter!r} gets no answer to publish")
    return address, options


def _shared_options(kind: str, options: Any, folder: Path) -> dict[str, Any]:
    """The options of one adapter for every place that a dynamic port allows: they hold no credentials."""
    allowing(kind)  # raises if no message may choose it
    if not isinstance(options, dict):
        raise ApplicationError(f"the options of adapter {kind!r} are a mapping")
    model = transport_of(kind).send.options
    checked(kind, model, options)
    if (given := credential(model, options)) is not None:
        raise ApplicationError(
            f"option {given!r} of adapter {kind!r} would go to every place that is allowed; "
            "give it beside the one that it is for, as allow: [{address: ..., options: {...}}]"
        )
    return resolved(model, folder, options)


def _allowed(port: SendPortModel, allow: AllowModel, folder: Path) -> Allowed:
    """A place that a dynamic port allows, with the options of its adapter there."""
    kind = kind_of_place(allow.address)
    send = transport_of(kind).send
    address = send.address(folder, allowing(kind).plain(allow.address))
    allowing(kind).check(address, folder)
    options = resolved(send.options, folder, {**port.options.get(kind, {}), **allow.options})
    adapter = send_adapter(kind, address, options)
    adapter.close()
    check_retries(port, adapter)
    return Allowed(kind=kind, address=address, options=options)


def _window(window: WindowModel | None) -> ServiceWindow | None:
    return None if window is None else ServiceWindow(start=window.from_, end=window.to, zone=window.timezone)


def _members(
    group: SendPortGroupModel,
    place: Place,
    ports: Sequence[DeployedPort],
    registry: PropertyRegistry,
    problems: Problems,
) -> list[DeployedPort]:
    """Each port of a group once more, with the filter of the group."""
    known = {port.name: port for port in ports}
    filter_ = problems.tried((*place, "filter"), partial(compile_filter, registry, group)) or Filter()
    members = []
    for name in group.ports:
        port = known.get(name)
        if port is None:
            problems.add((*place, "ports"), f"send port group {group.name!r}: there is no send port {name!r}")
        elif port.two_way or port.definition["adapter"] is None:
            problems.add((*place, "ports"), f"send port group {group.name!r}: {name!r} is no static one-way port")
        else:
            named = member_name(group.name, name)
            members.append(replace(port, name=named, filter=filter_, group=group.name, port=name))
    return members


def _waiting(port: ReceivePortModel, track: Track) -> DeployedPort:
    """The service that waits for the responses of a two-way receive port. It is tracked as the first location is."""
    first = port.locations[0]
    kept = {"name": port.name}
    name, track = response_service(port.name), first.track or track
    return DeployedPort(name, first.host, 5, Filter(), kept, waits=True, track=track)


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
