"""The commands. Each imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crossdock.cli.bench import bench
from crossdock.cli.output import Format

if TYPE_CHECKING:
    from crossdock.settings import Settings

app = typer.Typer(
    name="crossdock",
    help="Durable, content-based publish/subscribe: messages in, routed by what is in them, out to whoever wants them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(bench, name="bench")

Home = Annotated[Path | None, typer.Option(help="Where the embedded PostgreSQL and Spark keep files.  [.crossdock]")]
Database = Annotated[str | None, typer.Option(help="URL of a PostgreSQL server, instead of the embedded one.")]
Master = Annotated[str | None, typer.Option(help="URL of a Spark master, instead of Spark on this machine.")]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to print.")]
MessageIds = Annotated[list[str], typer.Argument(metavar="ID...", help="Message ids, as `get suspended` shows them.")]
PortName = Annotated[str, typer.Argument(metavar="NAME", help="A send port or a group, as `get ports|groups` show it.")]
LocationName = Annotated[str, typer.Argument(metavar="NAME", help="A receive location, as `get locations` shows it.")]
ApplicationFile = Annotated[Path, typer.Argument(metavar="APP", help="The application: a .yaml or .py file.")]


@app.command()
def run(
    application: ApplicationFile,
    until_idle: Annotated[bool, typer.Option(help="End when nothing is left to do, and print a summary.")] = False,
    home: Home = None,
    database: Database = None,
    master: Master = None,
    spark_ui: Annotated[bool | None, typer.Option(help="Open Spark's web page.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Deploy an application and run everything on this machine until Ctrl-C.

    With --until-idle the exit code is 0 if all was delivered, and 3 if anything is suspended, unrouted or waiting.
    """
    from crossdock.administration import running
    from crossdock.cli.output import print_summary, progress

    settings = _settings(home=home, database=database, master=master, spark_ui=spark_ui)
    deployment = running.loaded(application, settings)
    with progress() as show:
        summary = running.run(deployment, settings, until_idle=until_idle, stop=_stop_on_signals(), progress=show)
    print_summary(summary, output)
    if until_idle and not summary.all_delivered:
        raise typer.Exit(3)


@app.command()
def pipeline(home: Home = None, database: Database = None, master: Master = None) -> None:
    """Receive for everything that is deployed until Ctrl-C, in a process of its own; `crossdock host` delivers."""
    from crossdock.administration.running import receive
    from crossdock.cli.output import progress

    settings = _settings(home=home, database=database, master=master)
    with progress() as show:
        receive(settings, stop=_stop_on_signals(), progress=show)


@app.command()
def host(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Hosts, as `get hosts` shows them.")],
    home: Home = None,
    database: Database = None,
) -> None:
    """Run one more instance of a host until Ctrl-C, in a process of its own; instances share the queue."""
    from crossdock.administration.running import deliver
    from crossdock.cli.output import progress

    settings = _settings(home=home, database=database)
    with progress() as show:
        deliver(settings, names, stop=_stop_on_signals(), progress=show)


@app.command()
def get(
    what: Annotated[
        str, typer.Argument(metavar="ports|groups|locations|subscriptions|suspended|hosts", help="What to list.")
    ],
    home: Home = None,
    database: Database = None,
    output: Output = Format.TABLE,
) -> None:
    """List send ports, groups of them, receive locations, subscriptions, suspended messages or hosts."""
    from crossdock.administration.service import Administration, opened
    from crossdock.cli.output import print_hosts, print_rows, print_suspended
    from crossdock.errors import UsageError

    lists: dict[str, Callable[[Administration], Sequence[Any]]] = {
        "ports": Administration.ports,
        "groups": Administration.groups,
        "locations": Administration.locations,
        "subscriptions": Administration.subscriptions,
        "suspended": Administration.suspended,
        "hosts": Administration.hosts,
    }
    if what not in lists:
        raise UsageError(f"There is nothing called {what!r} to list. Choose one of: {', '.join(lists)}.")
    with opened(_settings(home=home, database=database)) as service:
        rows = lists[what](service)
    if what == "suspended":
        print_suspended(rows, output)
    elif what == "hosts":
        print_hosts(rows, output)
    else:
        print_rows(rows, output, empty=f"There are no {what}.")


@app.command()
def publish(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files with messages.")],
    location: Annotated[str | None, typer.Option(help="The receive location through whose pipeline they go.")] = None,
    to: Annotated[str | None, typer.Option(help="The send port or group that surely gets them.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("-p", "--property", metavar="NAME=VALUE", help="A property to promote.")
    ] = None,
    home: Home = None,
    database: Database = None,
    output: Output = Format.TABLE,
) -> None:
    """Publish files at once: each as one message, or what the pipeline of a receive location makes of it.

    The files stay where they are. The exit code is 3 if any message is unrouted or suspended.
    """
    from crossdock.administration.publish import PublishedMessage
    from crossdock.administration.service import opened
    from crossdock.cli.output import print_published
    from crossdock.errors import CrossdockError

    published: list[PublishedMessage] = []
    with opened(_settings(home=home, database=database)) as service:
        try:
            published.extend(service.publish(files, location=location, to=to, properties=properties or []))
        except CrossdockError:
            if published:  # what was committed before the error stays so
                print_published(published, output)
            raise
    print_published(published, output)
    if any(message.result != "published" for message in published):
        raise typer.Exit(3)


@app.command()
def save(
    ids: MessageIds,
    to: Annotated[Path, typer.Option(help="The folder to write to.")] = Path(),
    home: Home = None,
    database: Database = None,
    output: Output = Format.TABLE,
) -> None:
    """Write the original bytes of messages to files."""
    from crossdock.administration.service import opened
    from crossdock.cli.output import print_rows

    with opened(_settings(home=home, database=database)) as service:
        rows = service.save(ids, to)
    print_rows(rows, output, empty="Nothing was saved.")


@app.command()
def resume(ids: MessageIds, home: Home = None, database: Database = None, output: Output = Format.TABLE) -> None:
    """Take suspended messages up again: deliver, route or receive them once more."""
    from crossdock.administration.service import opened
    from crossdock.cli.output import print_rows

    with opened(_settings(home=home, database=database)) as service:
        rows = service.resume(ids)
    print_rows(rows, output, empty="There was nothing to do.")


@app.command()
def terminate(ids: MessageIds, home: Home = None, database: Database = None, output: Output = Format.TABLE) -> None:
    """End suspended messages for good. Save them first if their bytes are still needed."""
    from crossdock.administration.service import opened
    from crossdock.cli.output import print_rows

    with opened(_settings(home=home, database=database)) as service:
        rows = service.terminate(ids)
    print_rows(rows, output, empty="There was nothing to do.")


@app.command()
def start(name: PortName, home: Home = None, database: Database = None, output: Output = Format.TABLE) -> None:
    """Start a send port or a group, and resume what was suspended because it was stopped."""
    _change("start", name, home, database, output)


@app.command()
def stop(name: PortName, home: Home = None, database: Database = None, output: Output = Format.TABLE) -> None:
    """Stop a send port or a group: what matches it from now on is suspended until it is started again."""
    _change("stop", name, home, database, output)


@app.command()
def enlist(name: PortName, home: Home = None, database: Database = None, output: Output = Format.TABLE) -> None:
    """Give an unenlisted send port or group its subscriptions, stopped."""
    _change("enlist", name, home, database, output)


@app.command()
def unenlist(name: PortName, home: Home = None, database: Database = None, output: Output = Format.TABLE) -> None:
    """Take the subscriptions of a send port or a group away: nothing matches it any more."""
    _change("unenlist", name, home, database, output)


@app.command()
def enable(name: LocationName, home: Home = None, database: Database = None) -> None:
    """Let a receive location receive."""
    _enable(name, home, database, enabled=True)


@app.command()
def disable(name: LocationName, home: Home = None, database: Database = None) -> None:
    """Let a receive location rest; what has arrived there waits."""
    _enable(name, home, database, enabled=False)


@app.command()
def match(
    application: ApplicationFile,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files with messages.")],
    location: Annotated[str | None, typer.Option(help="The receive location they would arrive at.")] = None,
    explain: Annotated[bool, typer.Option(help="Show for each port why, or why not.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Say which ports would get the messages in files. Touches no database and starts nothing."""
    from crossdock.administration.dry_run import explained, route_files
    from crossdock.administration.running import loaded
    from crossdock.cli.output import print_json, print_routes

    deployment = loaded(application, _settings())
    routes = list(route_files(deployment, files, location))
    explanations = [explained(deployment, route) for route in routes] if explain else []
    if output is Format.JSON:
        print_json([route.entry(*explanations[n : n + 1]) for n, route in enumerate(routes)])
    else:
        print_routes(routes, explanations)


@app.command()
def lint(application: ApplicationFile, output: Output = Format.TABLE) -> None:
    """Look for filters that are probably not what was meant. Exit code 1 if there are any."""
    from crossdock.administration.dry_run import lint_application
    from crossdock.cli.output import print_rows

    findings = lint_application(application, _settings())
    print_rows(findings, output, empty="Nothing looks wrong.")
    if findings:
        raise typer.Exit(1)


@app.command()
def doctor(home: Home = None, database: Database = None, master: Master = None, output: Output = Format.TABLE) -> None:
    """Say which Python, Java, Spark and PostgreSQL are used, and whether each works."""
    from crossdock.administration.doctor import examine
    from crossdock.cli.output import print_rows

    findings = list(examine(_settings(home=home, database=database, master=master)))
    print_rows(findings, output, empty="")
    if not all(finding.works for finding in findings):
        raise typer.Exit(1)


@app.command()
def demo(
    home: Annotated[Path, typer.Option(help="The folder the demo makes and works in.")] = Path(".demo"),
    orders: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many orders to make.")] = 3_000,
) -> None:
    """Make a few thousand orders, route them, and show what went where."""
    from crossdock.cli.show_demo import show_demo

    show_demo(home, orders, _stop_on_signals())


def _change(
    verb: Literal["start", "stop", "enlist", "unenlist"],
    name: str,
    home: Path | None,
    database: str | None,
    output: Format,
) -> None:
    """Change the state of a send port or a group, and print the change."""
    from crossdock.administration.service import opened
    from crossdock.cli.output import print_rows

    with opened(_settings(home=home, database=database)) as service:
        verbs = {
            "start": service.start,
            "stop": service.stop,
            "enlist": service.enlist,
            "unenlist": service.unenlist,
        }
        transition = verbs[verb](name)
    print_rows([transition], output, empty="")


def _enable(name: str, home: Path | None, database: str | None, *, enabled: bool) -> None:
    from crossdock.administration.service import opened

    with opened(_settings(home=home, database=database)) as service:
        changed = service.enable(name) if enabled else service.disable(name)
    state = "enabled" if enabled else "disabled"
    typer.echo(f"Receive location {name!r} is {'now' if changed else 'already'} {state}.")


def _settings(**given: Any) -> Settings:
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


def _stop_on_signals() -> Event:
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
