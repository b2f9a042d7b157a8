"""The commands by which people act on instances, ports and locations. Each is in the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from crossdock.cli.options import (
    Database,
    Home,
    InstanceIds,
    LocationName,
    Output,
    Person,
    PortName,
    Reason,
    settings_of,
)
from crossdock.cli.output import Format

if TYPE_CHECKING:
    from crossdock.settings import Settings

acts = typer.Typer()

RightName = Annotated[str, typer.Argument(metavar="viewer|operator|bodies|edit|administrator", help="The right.")]
UserName = Annotated[str, typer.Argument(metavar="USER", help="A user of the PostgreSQL server.")]
ApplicationName = Annotated[
    str | None, typer.Option("--application", metavar="NAME", help="Only for what belongs to this application.")
]


@acts.command()
def cancel(
    ids: InstanceIds,
    home: Home = None,
    database: Database = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Let instances of orchestrations undo what they have done, by their compensations, and end."""
    from crossdock.administration.service import opened
    from crossdock.cli.output import print_rows

    with opened(settings_of(home=home, database=database, person=person, reason=reason)) as service:
        rows = service.cancel(ids)
    print_rows(rows, output, empty="There was nothing to do.")


@acts.command()
def start(
    name: PortName,
    home: Home = None,
    database: Database = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Start a send port, a group or an orchestration, and resume what was suspended because it was stopped."""
    _change("start", name, settings_of(home=home, database=database, person=person, reason=reason), output)


@acts.command()
def stop(
    name: PortName,
    home: Home = None,
    database: Database = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Stop a send port, a group or an orchestration: what matches from now on is suspended until it is started again.

    Running instances of an orchestration go on.
    """
    _change("stop", name, settings_of(home=home, database=database, person=person, reason=reason), output)


@acts.command()
def enlist(
    name: PortName,
    home: Home = None,
    database: Database = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Give an unenlisted send port, group or orchestration its subscriptions, stopped."""
    _change("enlist", name, settings_of(home=home, database=database, person=person, reason=reason), output)


@acts.command()
def unenlist(
    name: PortName,
    home: Home = None,
    database: Database = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Take the subscriptions of a send port, a group or an orchestration away: nothing matches it any more.

    Running instances of an orchestration go on.
    """
    _change("unenlist", name, settings_of(home=home, database=database, person=person, reason=reason), output)


@acts.command()
def enable(
    name: LocationName, home: Home = None, database: Database = None, person: Person = None, reason: Reason = None
) -> None:
    """Let a receive location receive."""
    _enable(name, settings_of(home=home, database=database, person=person, reason=reason), enabled=True)


@acts.command()
def disable(
    name: LocationName, home: Home = None, database: Database = None, person: Person = None, reason: Reason = None
) -> None:
    """Let a receive location rest; what has arrived there waits."""
    _enable(name, settings_of(home=home, database=database, person=person, reason=reason), enabled=False)


@acts.command()
def grant(
    right: RightName,
    user: UserName,
    application: ApplicationName = None,
    home: Home = None,
    database: Database = None,
    person: Person = None,
    reason: Reason = None,
) -> None:
    """Give a database user a right: to see everything but bodies, to act, to read bodies, to edit, or to do all."""
    from crossdock.administration.service import opened

    with opened(settings_of(home=home, database=database, person=person, reason=reason)) as service:
        service.grant(right, user, application)
    typer.echo(
        f"{user!r} now has the right {right}{'' if application is None else f' for application {application!r}'}."
    )


@acts.command()
def revoke(
    right: RightName,
    user: UserName,
    application: ApplicationName = None,
    home: Home = None,
    database: Database = None,
    person: Person = None,
    reason: Reason = None,
) -> None:
    """Take a right from a database user."""
    from crossdock.administration.service import opened

    with opened(settings_of(home=home, database=database, person=person, reason=reason)) as service:
        service.revoke(right, user, application)
    typer.echo(f"{user!r} no longer has the right {right}{'' if application is None else f' for {application!r}'}.")


def _change(
    verb: Literal["start", "stop", "enlist", "unenlist"],
    name: str,
    settings: Settings,
    output: Format,
) -> None:
    """Change the state of a send port, a group or an orchestration, and print the change."""
    from crossdock.administration.service import opened
    from crossdock.cli.output import print_rows

    with opened(settings) as service:
        verbs = {
            "start": service.start,
            "stop": service.stop,
            "enlist": service.enlist,
            "unenlist": service.unenlist,
        }
        transition = verbs[verb](name)
    print_rows([transition], output, empty="")


def _enable(name: str, settings: Settings, *, enabled: bool) -> None:
    from crossdock.administration.service import opened

    with opened(settings) as service:
        changed = service.enable(name) if enabled else service.disable(name)
    state = "enabled" if enabled else "disabled"
    typer.echo(f"Receive location {name!r} is {'now' if changed else 'already'} {state}.")
