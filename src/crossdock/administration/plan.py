"""`crossdock plan`: what a deployment would change, and whether running instances could go on with new code.

Nothing is written. Values that may be secrets are not shown, nor are passwords in addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from crossdock.administration.audit import refusals_recorded
from crossdock.administration.difference import Difference, address_change, differences, service_differences
from crossdock.application.store import existing, opened
from crossdock.errors import Mismatch, UsageError
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployed import Deployed, KnownService, nothing_deployed
from crossdock.messagebox.deployment import (
    DeployedOrchestration,
    DeployedPort,
    Deployment,
    Service,
    stored_service,
)
from crossdock.messagebox.stored_filter import read_groups
from crossdock.messagebox.subscriptions import NO_EPOCH
from crossdock.orchestration.program import made_program
from crossdock.orchestration.rehearse import Rehearsed, rehearse
from crossdock.settings import Settings

EQUAL = "replays equal"
_SHORT_VERSION = 12
NOTHING = "nothing changes"

Change = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class ArtefactChange:
    """Something declared. `keys` are those that differ, `address` how the printable address changes.

    `waiting` and `suspended` are references to what is changed or removed; a removed port still delivers them.
    `differences` are the same keys with their values, where these can be shown.
    """

    kind: str
    name: str
    change: Change
    keys: Sequence[str] = ()
    address: str | None = None
    waiting: int = 0
    suspended: int = 0
    differences: Sequence[Difference] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionChange:
    """The filters as text; an empty one matches only what is addressed to its port. None: there is no subscription."""

    name: str
    change: Change
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class LivingVersion:
    """How many instances live on a version of the code. They stay on it."""

    version: str
    instances: int


@dataclass(frozen=True, slots=True)
class ReplayedShape:
    """Instances whose code has done the same so far, and what a replay of some by the new version gave.

    `result` is `replays equal`, or a sentence that says what differs; the others are None where nothing does.
    """

    version: str
    instances: int
    replayed: int
    shape: Sequence[str]
    result: str
    step: int | None = None
    line: str | None = None
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, slots=True)
class VersionChange:
    """An orchestration whose code changes. Only new instances run the version `after`."""

    name: str
    before: str
    after: str
    living: Sequence[LivingVersion]
    shapes: Sequence[ReplayedShape]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a deployment would change. `epoch` is that of the MessageBox, `digest` that of the deployment."""

    summary: str
    application: str
    artefacts: Sequence[ArtefactChange]
    subscriptions: Sequence[SubscriptionChange]
    orchestrations: Sequence[VersionChange]
    epoch: int = field(default=NO_EPOCH.number, compare=False)
    epoch_token: str = field(default=str(NO_EPOCH.token), compare=False)
    digest: str = field(default="", compare=False)


def plan(deployment: Deployment, settings: Settings) -> Plan:
    """Where there is no MessageBox everything is added, and none is created."""
    try:
        existing(settings)
    except UsageError:
        return compared(deployment, nothing_deployed(deployment), [])
    with opened(settings) as agent:
        with refusals_recorded(agent, "plan", [deployment.application]):
            agent.access.require_owner("plan")
        return plan_with(agent, deployment)


def plan_with(agent: Agent, deployment: Deployment) -> Plan:
    """Raises ApplicationError if the deployment would be refused because of what is there."""
    known = agent.configuration.deployed(deployment)
    versions = [_version_change(agent, deployment, *pair) for pair in _new_versions(deployment, known)]
    return compared(deployment, known, versions)


def compared(deployment: Deployment, known: Deployed, versions: Sequence[VersionChange]) -> Plan:
    """The plan, from what is there and what is wanted."""
    artefacts = [
        *_properties(deployment, known),
        *_hosts(deployment, known),
        *_locations(deployment, known),
        *_services(deployment, known),
        *_groups(deployment, known),
    ]
    subscriptions = list(_subscriptions(deployment, known))
    epoch = known.epoch or NO_EPOCH
    return Plan(
        _summary(artefacts, subscriptions, versions, _subscribing(deployment, known)),
        deployment.application,
        artefacts,
        subscriptions,
        versions,
        epoch.number,
        str(epoch.token),
        deployment.digest,
    )


# Artefacts


def _properties(deployment: Deployment, known: Deployed) -> Iterator[ArtefactChange]:
    """They are never removed."""
    yield from (
        ArtefactChange("property", name, "added") for name in deployment.properties if name not in known.properties
    )


def _hosts(deployment: Deployment, known: Deployed) -> Iterator[ArtefactChange]:
    """They are never removed; one that is only named is made without labels."""
    named = [each.host for each in (*deployment.locations, *deployment.services)]
    for name in dict.fromkeys([*deployment.hosts, *named]):
        if name not in known.hosts:
            yield ArtefactChange("host", name, "added")
        elif name in deployment.hosts and set(deployment.hosts[name]) != set(known.hosts[name]):
            labels = [", ".join(sorted(each)) for each in (known.hosts[name], deployment.hosts[name])]
            yield ArtefactChange("host", name, "changed", ["labels"], differences=[Difference("labels", *labels)])


def _locations(deployment: Deployment, known: Deployed) -> Iterator[ArtefactChange]:
    kind, wanted = "receive location", {each.name: each for each in deployment.locations}
    for name, location in wanted.items():
        if name not in known.locations:
            yield ArtefactChange(kind, name, "added")
        elif known.locations[name] != (location.host, location.definition, location.track):
            host, before, track = known.locations[name]
            found = [Difference("host", host, location.host)] if host != location.host else []
            found += [Difference("track", track, location.track)] if track != location.track else []
            found += differences(before, location.definition)
            address = address_change(before, location.definition)
            yield ArtefactChange(kind, name, "changed", _keys(found), address, differences=found)
    yield from (ArtefactChange(kind, name, "removed") for name in known.locations if name not in wanted)


def _services(deployment: Deployment, known: Deployed) -> Iterator[ArtefactChange]:
    """Without members of groups, which follow their ports, and without what waits for responses."""
    wanted = {each.name: each for each in deployment.services}
    for name, service in wanted.items():
        kind = _kind(service)
        if kind is None or name not in known.changed:
            continue
        if name not in known.services:
            yield ArtefactChange(kind, name, "added")
        else:
            before, after = known.services[name].stored, stored_service(service)
            found, address = service_differences(before, after), address_change(before[4], after[4])
            references = known.references.get(name, (0, 0))
            yield ArtefactChange(kind, name, "changed", _keys(found), address, *references, found)
    for name, each in known.services.items():
        kind = _known_kind(each)
        if kind is not None and name not in wanted:
            yield ArtefactChange(kind, name, "removed", (), None, *known.references.get(name, (0, 0)))


def _kind(service: Service) -> str | None:
    if isinstance(service, DeployedPort):
        return None if service.waits or service.group else "port"
    return "orchestration"


def _known_kind(service: KnownService) -> str | None:
    if service.class_ == "orchestration":
        return "orchestration"
    return None if service.group or service.class_ != "messaging" else "port"


def _groups(deployment: Deployment, known: Deployed) -> Iterator[ArtefactChange]:
    kind = "group"
    for name in deployment.groups:
        if name not in known.groups:
            yield ArtefactChange(kind, name, "added")
            continue
        after = {each.name: stored_service(each)[5] for each in deployment.ports if each.group == name}
        before = {each: service.stored[5] for each, service in known.services.items() if service.group == name}
        same = before.keys() & after.keys()
        keys = ["filter"] if any(before[each] != after[each] for each in same) else []
        keys += ["ports"] if before.keys() != after.keys() else []
        if keys:
            yield ArtefactChange(kind, name, "changed", keys)
    yield from (ArtefactChange(kind, name, "removed") for name in known.groups if name not in deployment.groups)


def _keys(found: Iterable[Difference]) -> list[str]:
    return [each.key for each in found]


# Subscriptions


def _subscriptions(deployment: Deployment, known: Deployed) -> Iterator[SubscriptionChange]:
    """Of what an operator unenlisted there is none, and a deployment makes none."""
    wanted = {each.name: each for each in deployment.services if not (isinstance(each, DeployedPort) and each.waits)}
    for name, service in wanted.items():
        there, after = known.services.get(name), str(service.filter)
        if there is None:
            if not _stays_unenlisted(service, known):
                yield SubscriptionChange(name, "added", None, after)
        elif there.state != "unenlisted" and there.stored[5] != stored_service(service)[5]:
            yield SubscriptionChange(name, "changed", str(read_groups(there.stored[5])), after)
    for name, each in known.services.items():
        if name not in wanted and each.state != "unenlisted" and each.class_ != "messaging isolated":
            yield SubscriptionChange(name, "removed", str(read_groups(each.stored[5])), None)


def _stays_unenlisted(service: Service, known: Deployed) -> bool:
    """A new member of a group follows its group and its port."""
    if not isinstance(service, DeployedPort) or service.group is None:
        return False
    port = known.services.get(service.port or "")
    return known.groups.get(service.group) == "unenlisted" or (port is not None and port.state == "unenlisted")


# Orchestrations


def _new_versions(deployment: Deployment, known: Deployed) -> Iterator[tuple[DeployedOrchestration, str]]:
    """Orchestrations whose code changes, with the version that is deployed now."""
    for each in deployment.orchestrations:
        there = known.services.get(each.name)
        before = None if there is None else str(there.stored[4].get("version", ""))
        if before is not None and before != each.version.digest:
            yield each, before


def _version_change(
    agent: Agent, deployment: Deployment, orchestration: DeployedOrchestration, before: str
) -> VersionChange:
    types = PropertyRegistry({**agent.configuration.properties(), **deployment.properties})
    program = made_program(0, 0, orchestration.version, orchestration.definition, types)
    living = [LivingVersion(*each) for each in agent.instances.versions(orchestration.name).items()]
    shapes = [_replayed_shape(each) for each in rehearse(agent, program)]
    return VersionChange(orchestration.name, before, program.version, living, shapes)


def _replayed_shape(each: Rehearsed) -> ReplayedShape:
    counts = (each.version, each.instances, each.replayed, each.shape)
    match each.mismatch:
        case None:
            return ReplayedShape(*counts, EQUAL)
        case Mismatch() as error:
            return ReplayedShape(*counts, str(error), error.step, error.line, error.expected, error.found)
        case error:
            return ReplayedShape(*counts, str(error))


# The first line


def _subscribing(deployment: Deployment, known: Deployed) -> int:
    """How many subscriptions the application has once it is deployed."""
    services = [each for each in deployment.services if not (isinstance(each, DeployedPort) and each.waits)]
    there = known.services
    return sum(
        there[each.name].state != "unenlisted" if each.name in there else not _stays_unenlisted(each, known)
        for each in services
    )


def _summary(
    artefacts: Sequence[ArtefactChange],
    subscriptions: Sequence[SubscriptionChange],
    versions: Iterable[VersionChange],
    subscribing: int,
) -> str:
    """As `3 ports added, 1 changed; 12 subscriptions: 3 added`."""
    kinds = dict.fromkeys(each.kind for each in artefacts)
    said = [_counted(kind, Counter(each.change for each in artefacts if each.kind == kind)) for kind in kinds]
    changes = ", ".join(f"{count:,} {what}" for what, count in Counter(each.change for each in subscriptions).items())
    total = f"{subscribing:,} subscription{'' if subscribing == 1 else 's'}"
    parts = [", ".join(said) or NOTHING, f"{total}: {changes}" if changes else total]
    for each in versions:
        for living in each.living:
            if living.version != each.after:
                verb = "instance stays" if living.instances == 1 else "instances stay"
                parts.append(f"{living.instances:,} {verb} on version {living.version[:_SHORT_VERSION]} of {each.name}")
    return "; ".join(parts)


def _counted(kind: str, changes: Mapping[Change, int]) -> str:
    """As `3 ports added, 1 changed`."""
    (change, count), *others = changes.items()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    first = f"{count:,} {kind if count == 1 else plural} {change}"
    return ", ".join([first, *(f"{count:,} {change}" for change, count in others)])
