"""The commands about API tokens, and about the lines of a file with users and passwords."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from crossdock.cli.asked import Place, acting, asking
from crossdock.cli.options import Output
from crossdock.cli.output import Format

tokens = typer.Typer(no_args_is_help=True, help="API tokens, by which programs and people sign in at the console.")


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


class Grant(StrEnum):
    BODIES = "bodies"
    EDIT = "edit"


TokenName = Annotated[str, typer.Argument(metavar="NAME", help="A name for it, as the audit says.")]
RoleOption = Annotated[Role, typer.Option("--role", help="What its bearer may do.")]
GrantOption = Annotated[
    list[Grant] | None, typer.Option("--grant", help="More than the role: to read bodies, or to edit.")
]
ApplicationOption = Annotated[
    str | None, typer.Option("--application", metavar="NAME", help="Only for what belongs to this application.")
]


@tokens.command()
@acting
def create(
    place: Place,
    name: TokenName,
    role: RoleOption = Role.VIEWER,
    grant: GrantOption = None,
    application: ApplicationOption = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="As 12h, 90d or 52w; without it never.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a token, and print it. It is shown this once; the MessageBox keeps only its digest."""
    from crossdock.cli.output import print_rows

    with place.asked() as service:
        made = service.tokens.create(name, role.value, [each.value for each in grant or []], application, expires)
    if output is Format.TABLE:
        typer.echo(made.token)
        typer.echo("It is shown this once. Send it as `Authorization: Bearer TOKEN`, or sign in with it.", err=True)
    else:
        print_rows([made], output, empty="")


@tokens.command("list")
@asking
def list_(place: Place, output: Output = Format.TABLE) -> None:
    """List the tokens: what each is for, when it expires and when it was used last."""
    from crossdock.cli.output import print_rows

    with place.asked() as service:
        rows = service.tokens.list()
    print_rows(rows, output, empty="There are no tokens. Make one with: crossdock token create NAME")


@tokens.command()
@acting
def revoke(
    place: Place,
    name: TokenName,
) -> None:
    """Take a token back. Whoever signed in with it is signed out."""
    with place.asked() as service:
        service.tokens.revoke(name)
    typer.echo(f"The token {name!r} is revoked.")


@tokens.command()
def password(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the user.")],
    role: RoleOption = Role.VIEWER,
    grant: GrantOption = None,
    application: ApplicationOption = None,
    given: Annotated[
        str, typer.Option("--password", prompt="Password", hide_input=True, confirmation_prompt=True, hidden=True)
    ] = "",
) -> None:
    """Ask for a password, and print the line of a user for `crossdock console --passwords FILE`."""
    from crossdock.administration.people import rights_of
    from crossdock.api.credentials import hash_password
    from crossdock.errors import UsageError

    if not given or any(letter.isspace() for letter in name) or name.startswith("#"):
        raise UsageError("A user has a name without blanks, and a password.")
    rights = ",".join(sorted(rights_of(role.value, [each.value for each in grant or []], application)))
    typer.echo(f"{name} {rights} {hash_password(given)}")
