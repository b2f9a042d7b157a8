"""The benchmarks as commands. Each imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from crossdock.cli.options import Output
from crossdock.cli.output import Format

bench = typer.Typer(help="Measure how fast it is, with baselines taken in the same run.", no_args_is_help=True)

EmptyDatabase = Annotated[str, typer.Option(help="An empty database to use, instead of an embedded one.")]


class FileFormat(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    XML = "xml"


class Peer(StrEnum):
    RABBITMQ = "rabbitmq"


class TrackLevel(StrEnum):
    OFF = "off"
    EVENTS = "events"
    BODIES = "bodies"


class Correlations(StrEnum):
    NONE = "none"
    FOREIGN = "foreign"
    FOLLOWING = "following"


Correlation = Annotated[
    Correlations, typer.Option(help="Deploy an orchestration whose correlation no message may follow, or every one.")
]
Tracking = Annotated[TrackLevel, typer.Option(help="What is tracked meanwhile.")]
Subscriptions = Annotated[int, typer.Option(min=3, help="How many subscriptions; three match.")]
Body = Annotated[int, typer.Option(min=0, help="Bytes in the body of a message.")]


def _measured(name: str, output: Format, *given: Any, **asked: Any) -> None:
    """Run `bench_NAME` of `crossdock.bench.NAME`, say what is being done, and print what it measured."""
    from crossdock.cli.output import print_figures, stages

    measure = getattr(import_module(f"crossdock.bench.{name}"), f"bench_{name}")
    with stages() as progress:
        figures = measure(*given, **asked, progress=progress)
    print_figures(figures, output)


@bench.callback(invoke_without_command=True)
def bench_plot(
    context: typer.Context,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg", help="Draw this picture from the table in FILE.md beside it; measure nothing."
        ),
    ] = None,
) -> None:
    if plot is None:
        return
    from crossdock.bench.plot import plot as draw_picture
    from crossdock.errors import UsageError

    if context.invoked_subcommand is not None:
        raise UsageError(f"--plot measures nothing, so leave out {context.invoked_subcommand!r}")
    draw_picture(plot)


@bench.command("matching")
def bench_matching(
    subscriptions: Annotated[int, typer.Option(min=1, help="How many subscriptions.")] = 10_000,
    case: Annotated[str, typer.Option(help="core, full, zipf, hot, range, widerange or neq.")] = "core",
    output: Output = Format.TABLE,
) -> None:
    """Match generated messages against generated subscriptions; rates are per CPU second of one core."""
    from crossdock.bench.matching import bench_matching as measure
    from crossdock.cli.output import print_figures

    print_figures(measure(subscriptions, case), output)


@bench.command("queue")
def bench_queue(
    messages: Annotated[int, typer.Option(min=1, help="How many messages in each round.")] = 50_000,
    subscriptions: Subscriptions = 1_000,
    body: Body = 1_024,
    rounds: Annotated[int, typer.Option(min=1, help="Publishing and its baseline take turns so often.")] = 3,
    reader_seconds: Annotated[float, typer.Option(min=0, help="How long a reader stays in its transaction.")] = 60.0,
    tracking: Tracking = TrackLevel.EVENTS,
    correlation: Correlation = Correlations.NONE,
    host_role: Annotated[
        bool, typer.Option("--host-role", help="Compare the owner with the role of a host, and nothing else.")
    ] = False,
    database: EmptyDatabase = "",
    output: Output = Format.TABLE,
) -> None:
    """Publish and deliver messages as fast as the MessageBox can, against plain COPY of the same rows."""
    _measured(
        "queue",
        output,
        messages=messages,
        subscriptions=subscriptions,
        body=body,
        rounds=rounds,
        reader_seconds=reader_seconds,
        database=database,
        tracking=tracking.value,
        correlation=correlation.value,
        host_role=host_role,
    )


@bench.command("throughput")
def bench_throughput(
    messages: Annotated[int, typer.Option(min=1, help="How many messages.")] = 200_000,
    subscriptions: Annotated[int, typer.Option(min=1, help="How many subscriptions.")] = 1_000,
    copies: Annotated[int, typer.Option(min=1, help="How many of them want each message.")] = 3,
    body: Body = 1_024,
    format_: Annotated[FileFormat, typer.Option("--format", help="What the files hold.")] = FileFormat.JSONL,
    peer: Annotated[Peer | None, typer.Option(help="Send the same through another broker.")] = None,
    peer_url: Annotated[str, typer.Option(help="Where that is.")] = "amqp://guest:guest@127.0.0.1:5672",
    tracking: Tracking = TrackLevel.EVENTS,
    correlation: Correlation = Correlations.NONE,
    database: EmptyDatabase = "",
    output: Output = Format.TABLE,
) -> None:
    """Take files in through Spark and deliver them to nowhere, against plain COPY and another broker."""
    from crossdock.bench.traffic import Traffic

    _measured(
        "throughput",
        output,
        Traffic(messages, subscriptions, copies, body),
        format_=format_,
        database=database,
        peer_url=peer_url if peer else "",
        tracking=tracking.value,
        correlation=correlation.value,
    )


@bench.command("latency")
def bench_latency(
    seconds: Annotated[float, typer.Option(min=1, help="How long to measure at each rate.")] = 20.0,
    tracking: Tracking = TrackLevel.EVENTS,
    correlation: Correlation = Correlations.NONE,
    database: EmptyDatabase = "",
    output: Output = Format.TABLE,
) -> None:
    """Publish one message at a time to a subscriber in this process, against a bare commit and NOTIFY."""
    how = {"tracking": tracking.value, "correlation": correlation.value}
    _measured("latency", output, seconds=seconds, database=database, **how)


@bench.command("orchestration")
def bench_orchestration(
    instances: Annotated[int, typer.Option(min=1, help="How many instances of each kind.")] = 5_000,
    waiting: Annotated[int, typer.Option(min=1, help="How many instances wait while some are woken.")] = 100_000,
    woken_of: Annotated[
        int, typer.Option(min=0, help="Among how many others are woken; those beyond --waiting are copied.")
    ] = 1_000_000,
    history: Annotated[int, typer.Option(min=1, help="How many steps a long-lived instance does.")] = 1_000,
    database: EmptyDatabase = "",
    output: Output = Format.TABLE,
) -> None:
    """Run instances of orchestrations, against workflows of DBOS; then let many wait, and some do many steps."""
    size = {"instances": instances, "waiting": waiting, "woken_of": woken_of, "history": history}
    _measured("orchestration", output, **size, database=database, warn=lambda text: typer.echo(text, err=True))


@bench.command("questions")
def bench_questions(
    messages: Annotated[int, typer.Option(min=2_500, help="How many messages are tracked.")] = 1_000_000,
    subscriptions: Annotated[int, typer.Option(min=3, help="How many subscriptions.")] = 1_000,
    database: EmptyDatabase = "",
    output: Output = Format.TABLE,
) -> None:
    """Ask about single messages among very many that are tracked: explain, trace, describe, and a search by value."""
    _measured("questions", output, messages=messages, subscriptions=subscriptions, database=database)


@bench.command("console")
def bench_console(
    messages: Annotated[int, typer.Option(min=2_500, help="How many messages are tracked.")] = 1_000_000,
    suspended: Annotated[int, typer.Option(min=1, help="How many are suspended.")] = 100_000,
    ports: Annotated[int, typer.Option(min=3, help="How many send ports.")] = 10_000,
    instances: Annotated[int, typer.Option(min=1, help="How many instances of orchestrations.")] = 100_000,
    tabs: Annotated[int, typer.Option(min=0, help="How many open tabs' cost is measured, as 50.")] = 0,
    database: EmptyDatabase = "",
    output: Output = Format.TABLE,
) -> None:
    """Ask for every page of the console over a MessageBox that is full."""
    size = {"messages": messages, "suspended": suspended, "ports": ports, "instances": instances, "tabs": tabs}
    _measured("console", output, **size, database=database)


@bench.command("start")
def bench_start(
    rounds: Annotated[int, typer.Option(min=1, help="How often it starts in a new home, and again.")] = 3,
    output: Output = Format.TABLE,
) -> None:
    """Start `crossdock run` until web requests are answered, hosts deliver and Spark routes, and `crossdock --help`."""
    _measured("start", output, rounds=rounds)
