"""Turns an application into what the MessageBox keeps: properties, locations, ports and filters.

Everything that can be wrong with an application is found here, before anything starts.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossdock.adapter.allowed import Allowed
from crossdock.adapter.contract import is_pushed, place_of
from crossdock.adapter.registry import allowing, kind_of_place, receive_adapter, send_adapter, transport_of
from crossdock.adapter.transport import checked, credential, resolved
from crossdock.application.model import (
    AllowModel,
    ApplicationModel,
    FilteredModel,
    LocationModel,
    ReceivePortModel,
    SendPortGroupModel,
    SendPortModel,
    WindowModel,
)
from crossdock.application.pipelines import Pipelines
from crossdock.application.send_checks import check_macros, check_retries
from crossdock.errors import ApplicationError, FilterError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment, unanswerable
from crossdock.receive.express import response_service
from crossdock.receive.location import LocationDefinition
from crossdock.send.port import PortDefinition
from crossdock.send.window import ServiceWindow
from crossdock.subscription.predicate import Filter, filter_of_groups, is_storable
from crossdock.subscription.text import parse_filter


def deployment_of(application: ApplicationModel, file: Path, *, text_limit: int) -> Deployment:
    """The deployment of the application in `file`, whose addresses are relative to it. Raises ApplicationError."""
    try:
        _refuse_unstorable(application.model_dump(by_alias=True))
        registry = PropertyRegistry(application.properties)
        _check_names(application)
        check_macros(application, registry)
        folder = file.absolute().parent
        pipelines = Pipelines(application, registry, folder, text_limit)
        locations = list(_locations(application, pipelines, folder))
        ports = [_port(port, pipelines, registry, folder) for port in application.send_ports]
        ports += [each for group in application.send_port_groups for each in _members(group, ports, registry)]
        ports += [_waiting(port) for port in application.receive_ports if port.two_way]
        _refuse_repeats("service (a port, a `group/port`, a `port.response`)", (port.name for port in ports))
        _refuse_unanswerable(application)
    except ApplicationError as error:
        raise ApplicationError(f"{file}: {error}") from error
    hosts = {host.name: tuple(host.labels) for host in application.hosts}
    groups = tuple(group.name for group in application.send_port_groups)
    return Deployment(application.application, application.properties, locations, ports, hosts, groups)


def _refuse_unstorable(value: Any, place: str = "") -> None:
    """PostgreSQL's text has neither NUL nor half of a surrogate pair."""
    if isinstance(value, str):
        if not is_storable(value):
            what = "has a NUL or half of a surrogate pair, which PostgreSQL cannot hold"
            raise ApplicationError(f"{place}: {reprlib.repr(value)} {what}")
    elif isinstance(value, dict):
        for key, each in value.items():
            _refuse_unstorable(key, f"a key of {place or 'the application'}")
            _refuse_unstorable(each, f"{place}.{key}" if place else key)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            _refuse_unstorable(each, f"{place}[{number}]")


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


def _locations(application: ApplicationModel, pipelines: Pipelines, folder: Path) -> Iterator[DeployedLocation]:
    """Locations of different hosts may be served on different machines; of one host no two listen at one place."""
    taken: dict[object, str] = {}
    for port in application.receive_ports:
        for location in port.locations:
            with _blamed(f"receive location {location.name!r}"):
                deployed, place = _location(port, location, pipelines, folder)
                other = location.name if place is None else taken.setdefault((location.host, place), location.name)
                if other != location.name:
                    raise ApplicationError(f"{other!r} listens at the same place")
            yield deployed


def _location(
    port: ReceivePortModel, location: LocationModel, pipelines: Pipelines, folder: Path
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
        response=pipelines.answering(port),
    )
    adapter = receive_adapter(definition.adapter, definition.address, definition.options, code=str(folder))
    if port.two_way and not (is_pushed(adapter) and getattr(adapter, "answers", False)):
        raise ApplicationError(f"its port is two-way, and adapter {location.adapter!r} cannot answer")
    place = place_of(definition.adapter, definition.address, adapter) if is_pushed(adapter) else None
    return DeployedLocation(location.name, location.host, definition.model_dump(mode="json")), place


@contextmanager
def _blamed(artefact: str) -> Iterator[None]:
    """What is wrong in the block is said of this artefact."""
    try:
        yield
    except ApplicationError as error:
        raise ApplicationError(f"{artefact}: {error}") from error


def _port(port: SendPortModel, pipelines: Pipelines, registry: PropertyRegistry, folder: Path) -> DeployedPort:
    with _blamed(f"send port {port.name!r}"):
        address, options = _destination(port, folder)
    definition = PortDefinition(
        name=port.name,
        adapter=port.adapter,
        address=address,
        options=options,
        allow=tuple(_allowed(port, each, folder) for each in port.allow),
        pipeline=pipelines.sending(port.name, port.pipeline, port.maps),
        response=pipelines.responding(port),
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
        compile_filter(registry, port),
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
    with _blamed(f"send port {port.name!r}, allow"):
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
