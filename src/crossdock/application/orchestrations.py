"""The orchestrations of an application as they are deployed: code, subscription, correlations, bindings.

The code is loaded from its bundle, as every host will do it, so that what cannot be loaded there is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from crossdock.application.model import ApplicationModel, OrchestrationModel, SchemaModel
from crossdock.application.pipelines import Pipelines
from crossdock.application.problems import Problems
from crossdock.errors import ApplicationError
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.deployment import DeployedOrchestration
from crossdock.orchestration.bundle import bundle_of, sources_of
from crossdock.orchestration.check import Bound, Declared, activation_filter, check, receive_filter
from crossdock.orchestration.declare import Correlation, Orchestration, Receive
from crossdock.orchestration.version import load, version_in
from crossdock.pipeline.build import BUILT_IN
from crossdock.subscription.predicate import Filter

DIRECT = "direct"


def deployed_orchestrations(
    application: ApplicationModel, pipelines: Pipelines, registry: PropertyRegistry, folder: Path, problems: Problems
) -> list[DeployedOrchestration]:
    """Those without a mistake; every mistake in every other one is a problem of its own."""
    if not application.orchestrations:
        return []
    bundle = problems.tried(("orchestrations",), partial(bundle_of, folder))
    if bundle is None:
        return []
    sources = sources_of(bundle)
    kinds = _kinds(application)
    schemas = {type_: each.model_dump(mode="json") for type_, each in pipelines.making().items()}
    found, owners = [], dict[int, Orchestration]()
    for number, model in enumerate(application.orchestrations):
        try:
            orchestration = load(bundle, model.function)
            declared = _declared(application, registry, model, kinds)
            mistakes = [
                *_unknown_bindings(model, kinds),
                *_shared_correlations(orchestration, owners),
                *map(str, check(orchestration, model.function, sources, declared)),
            ]
            if not mistakes:
                deployed = _deployed(model, orchestration, bundle, kinds, registry, pipelines, schemas)
                found.append(replace(deployed, track=model.track or application.track))
        except ApplicationError as error:
            mistakes = [str(error)]
        for mistake in mistakes:
            problems.add(("orchestrations", number), f"orchestration {model.name!r}: {mistake}")
    return found


def _deployed(
    model: OrchestrationModel,
    orchestration: Orchestration,
    bundle: bytes,
    kinds: Mapping[str, Bound],
    registry: PropertyRegistry,
    pipelines: Pipelines,
    schemas: Mapping[str, Any],
) -> DeployedOrchestration:
    version = version_in(bundle, model.function)
    groups = [group for receive in orchestration.receives for group in activation_filter(registry, receive).groups]
    definition = {
        "name": model.name,
        "function": model.function,
        "version": version.digest,
        "late": orchestration.late,
        "receives": [_receive(registry, receive) for receive in orchestration.receives],
        "bind": {port: _bound(name, kinds) for port, name in model.bind.items()},
        "schemas": schemas,
        "maps": {name: pipelines.mapping(each).model_dump(mode="json") for name, each in model.maps.items()},
    }
    return DeployedOrchestration(
        model.name,
        model.host,
        Filter(tuple(dict.fromkeys(groups))),
        {each.name: _correlated(registry, each) for each in orchestration.correlations},
        definition,
        version,
    )


def _receive(registry: PropertyRegistry, receive: Receive) -> dict[str, Any]:
    filter_ = receive_filter(registry, receive)
    return {
        "type": receive.type,
        "filter": None if filter_ is None else str(filter_),
        "initializes": [each.name for each in receive.initializes],
        "convoy": receive.is_convoy,
    }


def _correlated(registry: PropertyRegistry, correlation: Correlation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = (registry.resolve(name) or name for name in correlation.properties)
    return tuple(sorted(set(names))), tuple(sorted(set(correlation.types)))


# Bindings


def _kinds(application: ApplicationModel) -> dict[str, Bound]:
    """What a port may be bound to, by name."""
    kinds: dict[str, Bound] = {}
    for port in application.send_ports:
        kinds[port.name] = "dynamic" if port.dynamic else "two-way port" if port.response is not None else "port"
    kinds |= {group.name: "group" for group in application.send_port_groups}
    kinds |= {each.name: "orchestration" for each in application.orchestrations}
    return kinds | {DIRECT: "direct"}


def _bound(name: str, kinds: Mapping[str, Bound]) -> dict[str, str]:
    kind = kinds[name]
    if kind == "direct":
        return {"kind": kind}
    return {"kind": "port" if kind == "two-way port" else kind, "name": name}


def _unknown_bindings(model: OrchestrationModel, kinds: Mapping[str, Bound]) -> Iterator[str]:
    for port, name in model.bind.items():
        if name not in kinds:
            close = get_close_matches(name, kinds, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(kinds)})"
            yield f"port {port!r} is bound to {name!r}, which is no send port, group or orchestration{hint}"


def _shared_correlations(orchestration: Orchestration, owners: dict[int, Orchestration]) -> Iterator[str]:
    """Two functions with one set would each be given what is meant for the other."""
    for correlation in orchestration.correlations:
        owner = owners.setdefault(id(correlation), orchestration)
        if owner is not orchestration:
            yield (
                f"it uses the correlation {correlation.name!r} of {owner.name!r}, and a correlation belongs to one "
                "orchestration; declare another"
            )


# What the code is checked against


def _declared(
    application: ApplicationModel, registry: PropertyRegistry, model: OrchestrationModel, kinds: Mapping[str, Bound]
) -> Declared:
    own_code = any(each.components or each.disassemble not in BUILT_IN for each in application.pipelines)
    return Declared(
        registry,
        {schema.type: _promoted(schema) for schema in application.schemas},
        {port: kinds.get(name, "direct") for port, name in model.bind.items()},
        by_schemas_only=not own_code,
        maps=frozenset(model.maps),
    )


def _promoted(schema: SchemaModel) -> frozenset[str]:
    records = (record for record in (schema, schema.header, schema.trailer) if record is not None)
    return frozenset(name for record in records for name in record.promote)
