"""Options and arguments that commands share, and what they make of them."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossdock.cli.completion import names_of
from crossdock.cli.output import Format

if TYPE_CHECKING:
    from crossdock.settings import Settings

Home = Annotated[Path | None, typer.Option(help="Where the embedded PostgreSQL and Spark keep files.  [.crossdock]")]
Database = Annotated[str | None, typer.Option(help="URL of a PostgreSQL server, instead of the embedded one.")]
Master = Annotated[str | None, typer.Option(help="URL of a Spark master, instead of Spark on this machine.")]
Metrics = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Serve /metrics and /health there, as at 127.0.0.1:9464.")
]


def _table_or_json(text: str) -> Format:
    """Only lists are printed in every way."""
    if text in (Format.JSONL, Format.CSV, Format.WIDE, Format.NAME):
        raise typer.BadParameter(f"{str(text)!r} is for lists: crossdock get. Choose one of: table, json")
    if text not in (Format.TABLE, Format.JSON):
        raise typer.BadParameter(f"{text!r} is not one of 'table', 'json'.")
    return Format(text)


Output = Annotated[
    Format, typer.Option("-o", "--output", metavar="table|json", parser=_table_or_json, help="How to print.")
]
ListOutput = Annotated[Format, typer.Option("-o", "--output", metavar="|".join(Format), help="How to print.")]
Person = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="For whom you act, as the audit says.  [the system's user]")
]
Reason = Annotated[str | None, typer.Option(help="Why, as the audit keeps it.")]
AnyIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID...]",
        help="Ids of messages or instances, as `get suspended|instances` show them; - reads them from standard input.",
    ),
]
PortOf = Annotated[str | None, typer.Option("--port", metavar="NAME", help="Only deliveries to this port.")]
Code = Annotated[str | None, typer.Option(help="Only what is suspended with this code, as attempts-used-up.")]
MessageType = Annotated[str | None, typer.Option("--type", help="Only messages of this type.")]
Where = Annotated[str | None, typer.Option(help='Only messages that a filter matches, as "Amount > 1000".')]
Personal = Annotated[
    bool, typer.Option("--personal", help="Let the filter ask for personal properties too, which is recorded.")
]
SuspendedSince = Annotated[
    str | None, typer.Option("--since", help="Only since then: 30m, 12h or 7d ago, or a time, as 2026-01-31T12:00.")
]
InstanceIds = Annotated[list[str], typer.Argument(metavar="ID...", help="Instances, as `get instances` shows them.")]
PortName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A send port, group or orchestration, as `get ports|groups|orchestrations` show it; or an application.",
        autocompletion=names_of("port", "group", "orchestration", "application"),
    ),
]
LocationName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A receive location, as `get locations` shows it; or an application.",
        autocompletion=names_of("location", "application"),
    ),
]
ApplicationFile = Annotated[Path, typer.Argument(metavar="APP", help="The application: a .yaml or .py file.")]


def settings_of(**given: Any) -> Settings:
    """Options that were given win over the environment and the defaults."""
    from pydantic import ValidationError

    from crossdock.errors import UsageError
    from crossdock.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        problem = error.errors()[0]
        name = "_".join(str(step) for step in problem["loc"]).upper()
        raise UsageError(f"CROSSDOCK_{name}: {problem['msg']}") from error


def box_options(home: Path | None, database: str | None) -> str:
    """The options by which another command finds the same MessageBox, with a blank before them; without a password."""
    given = f" --home {shlex.quote(str(home))}" if home is not None else ""
    return f"{given} --database URL" if database is not None else given


def stop_on_signals() -> Event:
    """Set by Ctrl-C, a termination or a closed terminal. A second Ctrl-C or termination ends the process at once."""
    stop = Event()

    def told(number: int, _: object) -> None:
        if stop.is_set() and number != signal.SIGHUP:  # a terminal that is closed may say so twice
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, told)
    return stop
