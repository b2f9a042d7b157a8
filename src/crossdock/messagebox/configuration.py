"""What is deployed: ports, groups, locations, hosts, properties, and how a message names whom it is for."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from crossdock.errors import UsageError
from crossdock.message.property import PropertyType
from crossdock.messagebox.database import Database
from crossdock.messagebox.deployed import Deployed, read_deployed
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.lifeline import INSTANCE_LOCK, SILENCE
from crossdock.messagebox.overview import (
    GroupOverview,
    HostOverview,
    LocationOverview,
    OrchestrationOverview,
    PortOverview,
    SubscriptionOverview,
    WaitingOverview,
)
from crossdock.messagebox.undeployment import DeployedApplication


class Configuration:
    """`agent.configuration`: the questions about what is deployed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_applications(self) -> list[DeployedApplication]:
        return self._database.listed("list_applications", DeployedApplication)

    def names(self) -> dict[str, list[str]]:
        """Of what is deployed, by kind: application, host, location, group, port, orchestration."""
        return dict(self._database.rows("list_names"))

    def list_ports(self, *, after: tuple[str, str] | None = None, limit: int | None = None) -> list[PortOverview]:
        """All; or a page by application and name, `after` those of the last port."""
        return self._database.listed("list_ports", PortOverview, _place(after, limit))

    def list_waiting(self, *, port: str | None = None, limit: int = 100) -> list[WaitingOverview]:
        """What waits for its next attempt, the first that is due before the others."""
        return self._database.listed("list_waiting", WaitingOverview, {"port": port, "limit": limit})

    def list_groups(self) -> list[GroupOverview]:
        return self._database.listed("list_groups", GroupOverview)

    def list_orchestrations(self) -> list[OrchestrationOverview]:
        return self._database.listed("list_orchestrations", OrchestrationOverview)

    def list_locations(
        self, *, after: tuple[str, str] | None = None, limit: int | None = None
    ) -> list[LocationOverview]:
        """Likewise."""
        return self._database.listed("list_locations", LocationOverview, _place(after, limit))

    def list_hosts(self) -> list[HostOverview]:
        return self._database.listed("list_hosts", HostOverview.from_row, {"lock": INSTANCE_LOCK, "silence": SILENCE})

    def list_subscriptions(
        self, *, after: tuple[str, int] | None = None, limit: int | None = None
    ) -> list[SubscriptionOverview]:
        """All; or a page `after` the kind and id of the last one."""
        kind, id_ = after or (None, None)
        sought = {"after_kind": kind, "after": id_, "limit": limit}
        return self._database.listed("list_subscriptions", SubscriptionOverview, sought)

    def deployed(self, deployment: Deployment) -> Deployed:
        """What is deployed of this application, to be compared. Raises ApplicationError if it would be refused."""
        with self._database.connection() as connection:
            return read_deployed(connection, deployment)

    def properties(self) -> dict[str, PropertyType]:
        """The properties declared for the whole group."""
        return {name: PropertyType(type_) for name, type_ in self._database.rows("list_properties")}

    def personal(self) -> frozenset[str]:
        """The properties whose values are about a person, and not shown."""
        return frozenset(name for (name,) in self._database.rows("list_personal"))

    def clock(self) -> datetime:
        """What time it is for everything in the MessageBox."""
        now: datetime = self._database.value("read_clock")
        return now

    def case_sensitive(self) -> bool:
        return bool(self._database.value("read_case_sensitive"))

    def hosts(self) -> dict[str, int]:
        return dict(self._database.rows("list_host_ids"))

    def locations(self, *, enabled: bool = True) -> list[tuple[int, int, dict[str, Any]]]:
        """(id, host, definition) of the receive locations that are enabled, or that are not; of hosts that are ours."""
        return [(*row,) for row in self._database.rows("list_location_definitions", {"enabled": enabled})]

    def services(self) -> list[tuple[int, int, dict[str, Any] | None]]:
        """(id, host, definition) of the send ports, also of those no longer enlisted.

        Of hosts that our database user may not work for there is no definition.
        """
        return [(*row,) for row in self._database.rows("list_service_definitions")]

    def orchestrations(self) -> list[tuple[int, int, dict[str, Any] | None]]:
        """The same for orchestrations."""
        return [(*row,) for row in self._database.rows("list_orchestration_definitions")]

    def service_names(self) -> dict[int, str]:
        """The names of everything that was ever deployed and could be given messages, by service."""
        return dict(self._database.rows("list_service_names"))

    def waiting_services(self) -> dict[str, int]:
        """Ids of the two-way receive ports, by their service's name."""
        return dict(self._database.rows("list_waiting_services"))

    def group_id(self, group: str) -> str | None:
        """What to promote as BTS.SPGroupID, so that a message reaches all ports of a group; None if there is none.

        Raises UsageError if the group is not enlisted.
        """
        found = self._database.rows("find_group_address", {"name": group})
        return _address("Send port group", group, *found[0]) if found else None

    def transport_id(self, port: str) -> str:
        """What to promote as BTS.SPTransportID, so that a message surely reaches this port, once.

        Raises UsageError if there is no such port, or if it is not enlisted.
        """
        found = self._database.rows("find_port_address", {"name": port})
        if not found:
            raise UsageError(f"There is no send port {port!r} deployed. List them with: crossdock get ports")
        return _address("Send port", port, *found[0])


def _address(what: str, name: str, id_: UUID, state: str) -> str:
    if state == "unenlisted":
        raise UsageError(
            f"{what} {name!r} is not enlisted: nothing reaches it. Enlist it with: crossdock enlist {name}"
        )
    return str(id_)


def _place(after: tuple[str, str] | None, limit: int | None) -> dict[str, object]:
    application, name = after or (None, None)
    return {"after_application": application, "after": name, "limit": limit}
