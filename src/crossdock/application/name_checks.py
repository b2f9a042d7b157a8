"""Names that an application uses twice: what has a name is started, stopped, bound and listed by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from crossdock.application.model import ApplicationModel
from crossdock.application.problems import Place, Problems
from crossdock.receive.express import response_service

_Named = tuple[str, Place]


def check_names(application: ApplicationModel, problems: Problems) -> None:
    """Each name that is used more than once is a problem, at its last use."""
    receive_ports = _places("receive_ports", [port.name for port in application.receive_ports])
    locations: list[_Named] = [
        (location.name, ("receive_ports", number, "locations", position))
        for number, port in enumerate(application.receive_ports)
        for position, location in enumerate(port.locations)
    ]
    ports = _places("send_ports", [port.name for port in application.send_ports])
    groups = _places("send_port_groups", [group.name for group in application.send_port_groups])
    orchestrations = _places("orchestrations", [each.name for each in application.orchestrations])
    members = [
        (member_name(group.name, port), place)
        for group, (_, place) in zip(application.send_port_groups, groups, strict=True)
        for port in dict.fromkeys(group.ports)
    ]
    waiting = [
        (response_service(port.name), place)
        for port, (_, place) in zip(application.receive_ports, receive_ports, strict=True)
        if port.two_way
    ]
    for kind, named in (
        ("host", _places("hosts", [host.name for host in application.hosts])),
        ("schema", _places("schemas", [schema.type for schema in application.schemas])),
        ("pipeline", _places("pipelines", [pipeline.name for pipeline in application.pipelines])),
        ("receive port", receive_ports),
        ("receive location", locations),
    ):
        _check_repeats(kind, named, problems)
    told: set[str] = set()  # one name may be repeated in more than one of these ways
    for kind, named in (
        ("send port, group or orchestration", [*ports, *groups, *orchestrations]),
        ("send port, port in a group or response of a receive port", [*ports, *members, *waiting]),
        ("port or orchestration", [*members, *waiting, *orchestrations]),
    ):
        told |= _check_repeats(kind, [each for each in named if each[0] not in told], problems)
    for group, (_, place) in zip(application.send_port_groups, groups, strict=True):
        _check_repeats(f"port of group {group.name!r}", [(name, place) for name in group.ports], problems)


def member_name(group: str, port: str) -> str:
    """The name of the service that a port is as member of a group."""
    return f"{group}/{port}"


def _places(key: str, names: Sequence[str]) -> list[_Named]:
    return [(name, (key, number)) for number, name in enumerate(names)]


def _check_repeats(kind: str, named: Sequence[_Named], problems: Problems) -> set[str]:
    """The names that are there more than once."""
    places = dict(named)
    repeated = {name for name, count in Counter(name for name, _ in named).items() if count > 1}
    for name in sorted(repeated):
        problems.add(places[name], f"the name {name!r} is used for more than one {kind}; give each its own")
    return repeated
