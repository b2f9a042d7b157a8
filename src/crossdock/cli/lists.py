"""What is the same for every list of `crossdock get`, whatever its rows are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from crossdock.cli.output import Format, Row, columns_of

if TYPE_CHECKING:
    from crossdock.cli.asked import Asked

# How a list of this name is printed: its rows are given, and what else is said with them.
Show = Callable[[], None]


def print_list(rows: Sequence[Row], output: Format, show: Show, columns: Sequence[str], *, watched: bool) -> None:
    """As `show` does it; but CSV has its header also without rows, and of JSON lines each look at a list is one."""
    from crossdock.cli import formats

    if output is Format.CSV and not rows:
        formats.print_csv([], columns)
    elif output is Format.JSONL and watched:
        formats.print_json_line([columns_of(row) for row in rows])
    else:
        show()


def known_port(service: Asked, name: str) -> None:
    """Nothing is found for a name that is written wrongly either: raises UsageError if nobody has this one."""
    from difflib import get_close_matches

    from crossdock.errors import UsageError

    names = [row.name for row in service.ports()] + [row.name for row in service.orchestrations()]
    if name in names or name.endswith(".response"):
        return
    close = get_close_matches(name, names, 1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    raise UsageError(f"There is no send port or orchestration {name!r}. {meant}See: crossdock get ports|orchestrations")


def columns_of_list(what: str) -> list[str]:
    """The columns of `get WHAT`, also where there are no rows."""
    from crossdock.administration import service
    from crossdock.administration.messages import MessageRow

    rows = {
        "applications": service.DeployedApplication,
        "ports": service.PortOverview,
        "groups": service.GroupOverview,
        "locations": service.LocationOverview,
        "orchestrations": service.OrchestrationOverview,
        "instances": service.Instance,
        "subscriptions": service.SubscriptionOverview,
        "messages": MessageRow,
        "suspended": service.SuspendedRow,
        "suspended by": service.SuspendedGroup,
        "waiting": service.WaitingOverview,
        "hosts": service.HostOverview,
        "access": service.GivenRight,
        "audit": service.AuditRow,
    }
    return [each.name.rstrip("_") for each in fields(rows[what])]
