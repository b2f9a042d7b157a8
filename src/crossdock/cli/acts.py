"""The commands by which people act on instances, ports and locations. Each is in the audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from crossdock.cli.asked import Place, acting
from crossdock.cli.options import InstanceIds, ListOutput, LocationName, Output, PortName
from crossdock.cli.output import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossdock.administration.service import StateVerb
    from crossdock.cli.asked import Asked

acts = typer.Typer()

RightName = Annotated[str, typer.Argument(metavar="viewer|operator|bodies|edit|administrator", help="The right.")]
UserName = Annotated[str, typer.Argument(metavar="USER", help="A user of the PostgreSQL server.")]
ApplicationName = Annotated[
    str | None, typer.Option("--application", metavar="NAME", help="Only for what belongs to this application.")
]
WholeApplication = Annotated[
    bool, typer.Option("--application", help="NAME is an application, also if something else has this name.")
]

_OR_AN_APPLICATION = (
    "\n\nOr everything of an application, by its name. If a port has the same name, the port is meant: give "
    "--application."
)
_GO_ON = (
    "\n\nRunning instances of an orchestration go on. The name of an application means all that it has. If a port has "
    "the same name, the port is meant: give --application."
)
_OR_ALL_LOCATIONS = (
    "\n\nOr all locations of an application, by its name. If a location has the same name, the location is meant: give "
    "--application."
)
_STATES: dict[StateVerb, str] = {
    "start": "Start a send port, a group or an orchestration, and resume what was suspended because it was stopped."
    + _OR_AN_APPLICATION,
    "stop": "Stop a send port, a group or an orchestration: what matches from now on is suspended until it is started "
    "again." + _GO_ON,
    "enlist": "Give an unenlisted send port, group or orchestration its subscriptions, stopped." + _OR_AN_APPLICATION,
    "unenlist": "Take the subscriptions of a send port, a group or an orchestration away: nothing matches it any more."
    + _GO_ON,
}


@acts.command()
@acting
def cancel(place: Place, ids: InstanceIds, output: Output = Format.TABLE) -> None:
    """Let instances of orchestrations undo what they have done, by their compensations, and end."""
    from crossdock.cli.output import print_rows

    with place.asked() as service:
        rows = service.cancel(ids)
    print_rows(rows, output, empty="There was nothing to do.")


def _changing(verb: StateVerb) -> Callable[..., None]:
    @acting
    def change(
        place: Place, name: PortName, application: WholeApplication = False, output: ListOutput = Format.TABLE
    ) -> None:
        with place.asked() as service:
            _change(service, verb, name, output, whole=application)

    return change


for _verb, _help in _STATES.items():
    acts.command(_verb, help=_help)(_changing(_verb))


def _enabling(*, enabled: bool) -> Callable[..., None]:
    @acting
    def enable(
        place: Place, name: LocationName, application: WholeApplication = False, output: ListOutput = Format.TABLE
    ) -> None:
        with place.asked() as service:
            _enable(service, name, output, enabled=enabled, whole=application)

    return enable


acts.command("enable", help="Let a receive location receive." + _OR_ALL_LOCATIONS)(_enabling(enabled=True))
acts.command("disable", help="Let a receive location rest; what has arrived there waits." + _OR_ALL_LOCATIONS)(
    _enabling(enabled=False)
)


@acts.command()
@acting
def grant(place: Place, right: RightName, user: UserName, application: ApplicationName = None) -> None:
    """Give a database user a right: to see everything but bodies, to act, to read bodies, to edit, or to do all."""
    with place.asked() as service:
        service.grant(right, user, application)
    typer.echo(
        f"{user!r} now has the right {right}{'' if application is None else f' for application {application!r}'}."
    )


@acts.command()
@acting
def revoke(place: Place, right: RightName, user: UserName, application: ApplicationName = None) -> None:
    """Take a right from a database user."""
    with place.asked() as service:
        service.revoke(right, user, application)
    typer.echo(f"{user!r} no longer has the right {right}{'' if application is None else f' for {application!r}'}.")


def _change(service: Asked, verb: StateVerb, name: str, output: Format, *, whole: bool) -> None:
    """Change the state of a send port, a group, an orchestration or an application, and print each change."""
    from crossdock.cli.output import Row, print_rows

    if whole or service.means_application(name, receiving=False):
        rows: Sequence[Row] = service.change_application(verb, name)
    else:
        verbs = {"start": service.start, "stop": service.stop, "enlist": service.enlist, "unenlist": service.unenlist}
        rows = [verbs[verb](name)]
    print_rows(rows, output, empty=f"Application {name!r} has no port, group or orchestration.")


def _enable(service: Asked, name: str, output: Format, *, enabled: bool, whole: bool) -> None:
    from crossdock.cli.output import print_rows

    state, other = ("enabled", "disabled") if enabled else ("disabled", "enabled")
    if whole or service.means_application(name, receiving=True):
        rows = service.enable_application(name, enabled=enabled)
        print_rows(rows, output, empty=f"Application {name!r} has no receive location.")
        return
    changed = service.enable(name) if enabled else service.disable(name)
    if output is Format.TABLE:
        typer.echo(f"Receive location {name!r} is {'now' if changed else 'already'} {state}.")
    else:
        row = {"kind": "receive location", "name": name, "before": other if changed else state, "after": state}
        print_rows([row], output, empty="")
