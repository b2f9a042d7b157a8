"""The commands about deploying: what would change, do it, take an application away, and how its file is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossdock.cli.asked import Place, acting, asking
from crossdock.cli.completion import names_of
from crossdock.cli.options import ApplicationFile, Output
from crossdock.cli.output import Format

if TYPE_CHECKING:
    from crossdock.administration.deploying import Leaving


@asking
def plan(
    place: Place,
    application: ApplicationFile,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the plan, for `apply --plan`.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Say what a deployment of the application would change, and whether running instances replay with new code.

    Changes nothing and starts nothing. The exit code is 0, whatever would change.
    """
    from crossdock.administration.deploying import write_plan, yaml_of
    from crossdock.administration.plan import plan as make_plan
    from crossdock.administration.running import loaded
    from crossdock.cli.show_plan import print_plan

    if place.url is not None:
        with place.console(place.url) as client:
            made = client.plan(yaml_of(application))
    else:
        settings = place.settings()
        made = make_plan(loaded(application, settings), settings)
    if out is not None:
        write_plan(made, out)
    print_plan(made, output)


@acting
def apply(
    place: Place,
    application: ApplicationFile,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Only if nothing has changed since this plan.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Deploy the application. Starts no Spark; running processes pick the change up by themselves."""
    from crossdock.administration.deploying import apply as apply_application
    from crossdock.administration.deploying import read_plan, yaml_of
    from crossdock.administration.running import loaded
    from crossdock.cli.show_plan import print_applied

    if place.url is not None:
        with place.console(place.url) as client:
            applied = client.apply(yaml_of(application), planned=None if plan is None else read_plan(plan))
    else:
        settings = place.settings()
        deployment = loaded(application, settings)
        applied = apply_application(deployment, settings, plan=None if plan is None else read_plan(plan))
    print_applied(applied, output)


@acting
def undeploy(
    place: Place,
    application: Annotated[
        str,
        typer.Argument(
            metavar="APP",
            help="The application: its name, or its file.",
            autocompletion=names_of("application"),
        ),
    ],
    terminate: Annotated[bool, typer.Option("--terminate", help="End what waits for it, and its instances.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep them suspended, to be resumed once it is deployed again.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Take an application away: its locations, ports, groups and orchestrations, in one transaction.

    Refused while messages wait for it or instances live, unless --terminate or --keep says what becomes of them.
    """
    from crossdock.administration.deploying import name_of
    from crossdock.administration.deploying import undeploy as undeploy_application
    from crossdock.cli.output import print_rows
    from crossdock.errors import UsageError

    if terminate and keep:
        raise UsageError("Give --terminate or --keep, not both")
    leaving: Leaving = "terminate" if terminate else "keep" if keep else "refuse"
    if place.url is not None:
        with place.console(place.url) as client:
            undeployed = client.undeploy(name_of(application), leaving=leaving)
    else:
        settings = place.settings()
        undeployed = undeploy_application(application, settings, leaving)
    print_rows([undeployed], output, empty="")


def schema(
    reference: Annotated[
        bool, typer.Option("--reference", help="The same as a page of documentation, in Markdown.")
    ] = False,
) -> None:
    """Print the JSON Schema of application files, for editors that check and complete YAML."""
    from crossdock.administration.schema import application_schema, reference_page
    from crossdock.cli.output import print_json

    if reference:
        sys.stdout.write(reference_page())
    else:
        print_json(application_schema())
