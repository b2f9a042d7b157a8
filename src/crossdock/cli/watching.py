"""The command that watches a MessageBox."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crossdock.cli.options import Database, Home, Output, settings_of
from crossdock.cli.output import Format


def top(
    once: Annotated[bool, typer.Option("--once", help="Print what there is now, and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between two looks.")] = 2.0,
    home: Home = None,
    database: Database = None,
    output: Output = Format.TABLE,
) -> None:
    """Show rates, queues, hosts, what is suspended and the busiest ports, live: q quits, p pauses, s sorts.

    It reads the samples that `run`, `pipeline` and `host` take every five seconds, and costs the MessageBox no more.
    """
    from crossdock.administration.service import opened
    from crossdock.cli import top as screen
    from crossdock.cli.output import columns_of, console, print_json
    from crossdock.errors import UsageError

    if output is Format.JSON and not once:
        raise UsageError("A live screen is no JSON document. Use: crossdock top --once -o json")
    with opened(settings_of(home=home, database=database)) as service:
        if output is Format.JSON:
            print_json(columns_of(service.sample()))
        elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            screen.once(service.sample(), console())
        else:
            screen.live(service.sample, interval, console())
