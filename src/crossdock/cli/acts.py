"""The commands by which people act on instances, ports and locations. Each is in the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from crossdock.cli.asked import Token, Url, asked
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
    from crossdock.administration.service import Transition

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
    url: Url = None,
    token: Token = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Let instances of orchestrations undo what they have done, by their compensations, and end."""
    from crossdock.cli.output import print_rows

    with asked(url, token, home=home, database=database, person=person, reason=reason) as service:
        rows = service.cancel(ids)
    print_rows(rows, output, empty="There was nothing to do.")


@acts.command()
def start(
    name: PortName,
    home: Home = None,
    database: Database = None,
    url: Url = None,
    token: Token = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Start a send port, a group or an orchestration, and resume what was suspended because it was stopped."""
    with asked(url, token, home=home, database=database, person=person, reason=reason) as service:
        _print(service.start(name), output)


@acts.command()
def stop(
    name: PortName,
    home: Home = None,
    database: Database = None,
    url: Url = None,
    token: Token = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Stop a send port, a group or an orchestration: what matches from now on is suspended until it is started again.

    Running instances of an orchestration go on.
    """
    with asked(url, token, home=home, database=database, person=person, reason=reason) as service:
        _print(service.stop(name), output)


@acts.command()
def enlist(
    name: PortName,
    home: Home = None,
    database: Database = None,
    url: Url = None,
    token: Token = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Give an unenlisted send port, group or orchestration its subscriptions, stopped."""
    with asked(url, token, home=home, database=database, person=person, reason=reason) as service:
        _print(service.enlist(name), output)


@acts.command()
def unenlist(
    name: PortName,
    home: Home = None,
    database: Database = None,
    url: Url = None,
    token: Token = None,
    person: Person = None,
    reason: Reason = None,
    output: Output = Format.TABLE,
) -> None:
    """Take the subscriptions of a send port, a group or an orchestration away: nothing matches it any more.

    Running instances of an orchestration go on.
    """
    with asked(url, token, home=home, database=database, person=person, reason=reason) as service:
        _print(service.unenlist(name), output)


@acts.command()
def enable(
    name: LocationName,
    home: Home = None,
    database: Database = None,
    url: Url = None,
    token: Token = None,
    person: Person = None,
    reason: Reason = None,
) -> None:
    """Let a receive location receive."""
    with asked(url, token, home=home, database=database, person=person, reason=reason) as service:
        changed = service.enable(name)
    _say(name, changed=changed, state="enabled")


@acts.command()
def disable(
    name: LocationName,
    home: Home = None,
    database: Database = None,
    url: Url = None,
    token: Token = None,
    person: Person = None,
    reason: Reason = None,
) -> None:
    """Let a receive location rest; what has arrived there waits."""
    with asked(url, token, home=home, database=database, person=person, reason=reason) as service:
        changed = service.disable(name)
    _say(name, changed=changed, state="disabled")


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


def _print(transition: Transition, output: Format) -> None:
    from crossdock.cli.output import print_rows

    print_rows([transition], output, empty="")


def _say(name: str, *, changed: bool, state: str) -> None:
    typer.echo(f"Receive location {name!r} is {'now' if changed else 'already'} {state}.")
