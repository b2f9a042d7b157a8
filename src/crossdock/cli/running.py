"""The commands that run something until somebody stops it: everything, or one half of it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from crossdock.cli.completion import names_of
from crossdock.cli.console import DEFAULT, Listen, console_beside
from crossdock.cli.logs import LogFormat, LogFormatOption, LogLevel, LogLevelOption, Logs
from crossdock.cli.options import (
    ApplicationFile,
    Database,
    Home,
    Master,
    Metrics,
    Output,
    Person,
    Reason,
    box_options,
    settings_of,
    stop_on_signals,
)
from crossdock.cli.output import Format

if TYPE_CHECKING:
    from crossdock.administration.running import Applied


def run(
    application: ApplicationFile,
    until_idle: Annotated[bool, typer.Option(help="End when nothing is left to do, and print a summary.")] = False,
    home: Home = None,
    database: Database = None,
    master: Master = None,
    spark_ui: Annotated[bool | None, typer.Option(help="Open Spark's web page.")] = None,
    person: Person = None,
    reason: Reason = None,
    metrics: Metrics = None,
    console: Annotated[bool, typer.Option("--console", help="Serve the web console too, at --listen.")] = False,
    listen: Listen = DEFAULT,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    output: Output = Format.TABLE,
) -> None:
    """Deploy an application and run everything on this machine until Ctrl-C.

    With --until-idle the exit code is 0 if all was delivered, and 3 if anything is suspended, unrouted or waiting.
    """
    from crossdock.administration.running import loaded
    from crossdock.administration.running import run as run_application
    from crossdock.cli.output import print_summary, progress

    settings = settings_of(
        home=home, database=database, master=master, spark_ui=spark_ui, person=person, reason=reason, metrics=metrics
    )
    found = loaded(application, settings)
    with ExitStack() as stack, progress(Logs(log_level, log_format)) as show:

        def deployed(applied: Applied) -> None:
            show.deployed(applied)
            if console:  # not before: there may have been no MessageBox
                stack.enter_context(console_beside(listen, home, database))

        summary = run_application(
            found, settings, until_idle=until_idle, stop=stop_on_signals(), progress=show, deployed=deployed
        )
    print_summary(summary, output, box_options(home, database))
    if until_idle and not summary.all_delivered:
        raise typer.Exit(3)


def pipeline(
    home: Home = None,
    database: Database = None,
    master: Master = None,
    metrics: Metrics = None,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Receive for everything that is deployed until Ctrl-C, in a process of its own; `crossdock host` delivers."""
    from crossdock.administration.running import receive
    from crossdock.cli.output import progress

    settings = settings_of(home=home, database=database, master=master, metrics=metrics)
    with progress(Logs(log_level, log_format)) as show:
        receive(settings, stop=stop_on_signals(), progress=show)


def host(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Hosts, as `get hosts` shows them.", autocompletion=names_of("host")),
    ],
    home: Home = None,
    database: Database = None,
    metrics: Metrics = None,
    log_level: LogLevelOption = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run one more instance of a host until Ctrl-C, in a process of its own; instances share the queue."""
    from crossdock.administration.running import deliver
    from crossdock.cli.output import progress

    settings = settings_of(home=home, database=database, metrics=metrics)
    with progress(Logs(log_level, log_format)) as show:
        deliver(settings, names, stop=stop_on_signals(), progress=show)
