"""The states of everything that an application has, changed in one transaction: services, groups, receive locations.

The caller holds the subscription lock alone, as for a change of one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import psycopg

from crossdock.errors import NotAllowedError, UsageError
from crossdock.messagebox.audit import DONE, UNCHANGED, Act, record_acts
from crossdock.messagebox.deployment import change_state, settle_members
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.lifeline import channel
from crossdock.messagebox.statement import statement
from crossdock.messagebox.undeployment import deployed_applications

StateVerb = Literal["start", "stop", "enlist", "unenlist"]
# What a verb makes of each state. What it does not name stays as it is.
_AFTER: Mapping[StateVerb, Mapping[str, str]] = {
    "start": {"stopped": "started", "unenlisted": "started"},
    "stop": {"started": "stopped"},
    "enlist": {"unenlisted": "stopped"},
    "unenlist": {"started": "unenlisted", "stopped": "unenlisted"},
}
_GROUP = "group"

Row: TypeAlias = "tuple[Any, ...]"  # kind, name, state, service and host; a group has neither of these two


@dataclass(frozen=True, slots=True)
class ArtefactTransition:
    """What became of one artefact of an application, and how many references were resumed by that.

    `kind` is port, group, orchestration or receive location. A location is enabled or disabled.
    """

    kind: str
    name: str
    before: str
    after: str
    resumed: int = 0


def change_application(
    connection: psycopg.Connection, verb: StateVerb, application: str, moved: Callable[[], object]
) -> list[ArtefactTransition]:
    """Change all its ports, orchestrations and groups; `moved` begins a new epoch, and is called if anything changes.

    UsageError if it is not deployed, or if a group would be left without an enlisted port.
    """
    _refuse_unknown_or_foreign(connection, application)
    found = connection.execute(statement("list_subscribing"), {"application": application}).fetchall()
    if verb == "unenlist":  # a group is never enlisted without a port that is
        found = [row for row in found if row[0] == _GROUP] + [row for row in found if row[0] != _GROUP]
    changing = [row for row in found if row[2] in _AFTER[verb]]
    done = {(kind, name): ArtefactTransition(kind, name, state, state) for kind, name, state, _, _ in found}
    if changing:
        moved()
        for kind, name, before, service, _ in changing:
            after = _AFTER[verb][before]
            resumed = change_one(connection, None if kind == _GROUP else service, name, before, after)
            done[kind, name] = ArtefactTransition(kind, name, before, after, resumed)
        for key, count in _follow(connection, changing).items():
            if key in done:  # a group of another application may have followed
                done[key] = replace(done[key], resumed=done[key].resumed + count)
    _record(connection, verb, application, list(done.values()))
    return list(done.values())


def change_one(connection: psycopg.Connection, service: int | None, name: str, before: str, after: str) -> int:
    """Change a service, or a group, which is none; gives how many references were resumed.

    UsageError if a group would be enlisted without an enlisted port: what it should be given would go nowhere.
    """
    if (service is None) != (after == "unenlisted"):
        row = connection.execute(statement("list_last_ports"), {"name": name}).fetchone()
        if service is None and row is None:
            raise UsageError(f"No port of group {name!r} is enlisted. Enlist one first, with: crossdock enlist NAME")
        if service is not None and row is not None:
            raise UsageError(f"{name!r} is the last enlisted port of group {row[0]!r}. Unenlist the group first.")
    if service is None:
        connection.execute(host_statement("set_group_state", None), {"name": name, "state": after})
        return 0
    return change_state(connection, service, before, after)


def _follow(connection: psycopg.Connection, changing: Sequence[Row]) -> Counter[tuple[str, str]]:
    """Let members of groups follow, and wake hosts; gives what that resumed by the kind and name of port or group."""
    members = settle_members(connection)
    for host in {row[4] for row in changing if row[4] is not None} | {host for _, host, _ in members}:
        connection.execute(statement("announce"), {"channel": channel(host)})
    ports = {row[3]: row[1] for row in changing}
    counts = {service: count for service, _, count in members}
    resumed: Counter[tuple[str, str]] = Counter()
    for service, port, group in connection.execute(statement("list_members_of"), {"service": list(counts)}):
        resumed[("port", ports[port]) if port in ports else (_GROUP, group)] += counts[service]
    return resumed


def enable_application(
    connection: psycopg.Connection, application: str, moved: Callable[[], object], *, enabled: bool
) -> list[ArtefactTransition]:
    """Enable or disable all its receive locations. UsageError if it is not deployed."""
    _refuse_unknown_or_foreign(connection, application)
    found = connection.execute(statement("list_receiving"), {"application": application}).fetchall()
    if any(before != enabled for _, before in found):
        moved()
        changing = {"application": application, "enabled": enabled}
        connection.execute(host_statement("set_application_enabled", None), changing)
    done = [ArtefactTransition("receive location", name, _shown(before), _shown(enabled)) for name, before in found]
    _record(connection, "enable" if enabled else "disable", application, done)
    return done


def _shown(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"


def _record(connection: psycopg.Connection, verb: str, application: str, done: Sequence[ArtefactTransition]) -> None:
    """A row for each artefact, with the facts that a change of one of them has."""
    record_acts(
        connection,
        [
            Act(
                verb,
                each.name,
                _facts(each.before),
                _facts(each.after) | ({} if each.kind == "receive location" else {"resumed": each.resumed}),
                UNCHANGED if each.before == each.after else DONE,
                application,
            )
            for each in done
        ],
    )


def _facts(state: str) -> dict[str, object]:
    return {"enabled": state == "enabled"} if state in ("enabled", "disabled") else {"state": state}


def _refuse_unknown_or_foreign(connection: psycopg.Connection, application: str) -> None:
    known = [each.name for each in deployed_applications(connection)]
    if application not in known:
        raise UsageError(
            f"There is no application {application!r} deployed (there are: {', '.join(known) or 'none'}). "
            "See: crossdock get applications"
        )
    refuse_foreign(connection, "All that it has", application)


def refuse_foreign(connection: psycopg.Connection, what: str, application: str) -> None:
    """A policy would leave the row alone without a word."""
    row = connection.execute(statement("may_operate"), {"application": application}).fetchone()
    if row is None or not row[0]:
        raise NotAllowedError(
            f"{what} is of application {application!r}: you may not change it. "
            f"An administrator allows that with: crossdock grant operator USER --application {application}"
        )
