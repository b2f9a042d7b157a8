"""Turns an application into what the MessageBox keeps: properties, locations, ports and filters.

Everything that can be wrong with an application is found here, before anything starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from crossdock.application.model import ApplicationModel, LocationModel, ReceivePortModel, SchemaModel, SendPortModel
from crossdock.errors import ApplicationError, FilterError
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.pipeline.json import parse_path
from crossdock.receive.location import LocationDefinition, PromotedField
from crossdock.send.port import PortDefinition
from crossdock.subscription.predicate import Filter, filter_of_groups
from crossdock.subscription.text import parse_filter


def deployment_of(application: ApplicationModel, file: Path, *, text_limit: int) -> Deployment:
    """The deployment of the application in `file`, whose addresses are relative to it. Raises ApplicationError."""
    try:
        registry = PropertyRegistry(application.properties)
        _check_names(application)
        folder = file.absolute().parent
        schemas = {schema.type: schema for schema in application.schemas}
        for schema in application.schemas:
            _check_promotions(registry, schema)
        locations = [
            _location(port, location, schemas, registry, folder, text_limit)
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
    _refuse_repeats("receive port", (port.name for port in application.receive_ports))
    _refuse_repeats(
        "receive location", (location.name for port in application.receive_ports for location in port.locations)
    )
    _refuse_repeats("send port", (port.name for port in application.send_ports))


def _refuse_repeats(kind: str, names: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ApplicationError(f"the name {repeated[0]!r} is used for more than one {kind}; give each its own")


def _check_promotions(registry: PropertyRegistry, schema: SchemaModel) -> None:
    for name, path in schema.promote.items():
        if name not in registry.declared:
            meant = registry.suggest(name)
            hint = f"did you mean {meant!r}?" if meant else "declare it under `properties`"
            raise ApplicationError(f"schema {schema.type!r} promotes {name!r}, which is not declared; {hint}")
        try:
            parse_path(path)
        except ApplicationError as error:
            raise ApplicationError(f"schema {schema.type!r}, property {name!r}: {error}") from error


def _location(
    port: ReceivePortModel,
    location: LocationModel,
    schemas: Mapping[str, SchemaModel],
    registry: PropertyRegistry,
    folder: Path,
    text_limit: int,
) -> DeployedLocation:
    schema = _schema(location, schemas)
    definition = LocationDefinition(
        name=location.name,
        port=port.name,
        adapter=location.adapter,
        address=_mask(folder, location),
        message_type=schema.type,
        promote={name: PromotedField(type=registry.type_of(name), field=path) for name, path in schema.promote.items()},
        split=location.split,
        interchange=location.interchange,
        text_limit=text_limit,
        labels=tuple(location.labels),
    )
    return DeployedLocation(location.name, location.host, definition.model_dump(mode="json"))


def _schema(location: LocationModel, schemas: Mapping[str, SchemaModel]) -> SchemaModel:
    """The one the location names, or the only one of its format."""
    if location.schema_ is not None:
        if location.schema_ not in schemas:
            known = ", ".join(schemas) or "none"
            raise ApplicationError(
                f"receive location {location.name!r} names the schema {location.schema_!r}, which is not declared "
                f"(declared: {known})"
            )
        return schemas[location.schema_]
    fitting = list(schemas.values())  # there is one format so far
    if len(fitting) != 1:
        problem = "no schema" if not fitting else "more than one schema"
        raise ApplicationError(
            f"receive location {location.name!r}: there is {problem} of format {location.pipeline!r}; "
            + ("declare one under `schemas`" if not fitting else "name one with `schema:`")
        )
    return fitting[0]


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
