"""The commands. Each imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from crossdock.cli import deployment, messages, running
from crossdock.cli.acts import acts
from crossdock.cli.asked import Asked, Place, acting, asking
from crossdock.cli.bench import bench
from crossdock.cli.completion import names_of, one_of
from crossdock.cli.console import console
from crossdock.cli.options import (
    ApplicationFile,
    Database,
    Home,
    ListOutput,
    Master,
    Output,
    settings_of,
    stop_on_signals,
)
from crossdock.cli.output import Format
from crossdock.cli.suspended import suspended
from crossdock.cli.tokens import tokens
from crossdock.cli.watching import Watch, WatchedCommand, shown, top

app = typer.Typer(
    name="crossdock",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(suspended)
app.add_typer(acts)
app.add_typer(bench, name="bench")
app.command()(top)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"crossdock {version('crossdock')}")
        raise typer.Exit


@app.callback()
def crossdock(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Durable, content-based publish/subscribe: messages in, routed by what is in them, out to whoever wants them."""


app.command()(running.run)
app.command()(deployment.plan)
app.command()(deployment.apply)
app.command()(deployment.undeploy)
app.command()(deployment.schema)
app.command()(running.pipeline)
app.command()(running.host)
app.command()(console)
app.add_typer(tokens, name="token")


@app.command(cls=WatchedCommand)
@asking
def get(
    place: Place,
    what: Annotated[
        str,
        typer.Argument(
            metavar="applications|ports|groups|locations|orchestrations|instances|subscriptions|messages|suspended|waiting|hosts|access|audit",
            help="What to list.",
            autocompletion=one_of(
                *("applications", "ports", "groups", "locations", "orchestrations", "instances", "subscriptions"),
                *("messages", "suspended", "waiting", "hosts", "access", "audit"),
            ),
        ),
    ],
    state: Annotated[
        str | None, typer.Option(help="Of instances: running, suspended or cancelling. Of messages: as they show it.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help='Of messages, suspended or not, and of instances: a filter, as "Amount > 1000".'),
    ] = None,
    port: Annotated[
        str | None, typer.Option(help="Of messages and what waits: the port, orchestration or location.")
    ] = None,
    code: Annotated[str | None, typer.Option(help="Of what is suspended: with which code.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Of messages, suspended or not: their type.")] = None,
    by: Annotated[str | None, typer.Option(help="Of what is suspended: counted by code, port or type.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Of messages and the audit: 30m, 12h or 7d ago, or a time, as 2026-01-31T12:00."),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Of messages: the same, for the newest.")] = None,
    person: Annotated[str | None, typer.Option(help="Of the audit: who acted.")] = None,
    action: Annotated[str | None, typer.Option(help="Of the audit: what was done, as resume or stop.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Of messages, suspended or not, what waits, and the audit: how many. [100]"
        ),
    ] = None,
    after: Annotated[int | None, typer.Option(min=0, help="Of what is suspended: go on after this sequence.")] = None,
    before: Annotated[str | None, typer.Option(help="Of messages: go on where a list has ended.")] = None,
    personal: Annotated[
        bool,
        typer.Option(
            "--personal",
            help="Of messages, suspended or not, and instances: search by personal properties too, which is recorded.",
        ),
    ] = False,
    watch: Watch = None,
    output: ListOutput = Format.TABLE,
) -> None:
    """List applications, send ports, groups, receive locations, orchestrations, their instances, subscriptions,
    suspended messages, messages (the newest first), what waits for its next attempt, hosts, access (who may do what),
    or the audit (who did what).
    """
    from crossdock.administration.service import Selection
    from crossdock.cli import output as show
    from crossdock.cli import show_instances
    from crossdock.cli.lists import columns_of_list, known_port, print_list
    from crossdock.errors import UsageError

    given: dict[str, object] = {"state": state, "where": where, "port": port, "code": code, "type": type_, "by": by}
    given |= {"person": person, "action": action, "until": until, "before": before, "limit": limit, "after": after}
    given |= {"since": since, "personal": personal or None}
    limit = limit or 100
    chosen = Selection((), port, code, type_, where, since, everything=True, personal=personal)
    lists: dict[str, Callable[[Asked], Sequence[Any]]] = {
        "applications": lambda service: service.applications(),
        "ports": lambda service: service.ports(),
        "groups": lambda service: service.groups(),
        "locations": lambda service: service.locations(),
        "orchestrations": lambda service: service.orchestrations(),
        "instances": lambda service: service.instances(state=state, where=where, personal=personal),
        "subscriptions": lambda service: service.subscriptions(),
        "suspended": lambda service: service.suspended(selection=chosen, limit=limit + 1, after=after or 0),
        "waiting": lambda service: service.waiting(port=port, limit=limit),
        "hosts": lambda service: service.hosts(),
        "access": lambda service: service.access(),
        "audit": lambda service: service.audit(since=since, person=person, action=action, limit=limit),
    }
    if what == "messages":
        window: dict[str, Any] = {"until": until, "type_": type_, "port": port, "before": before, "personal": personal}
        _refuse_options(what, given)
        window |= {"since": since, "state": state, "where": where, "limit": limit}
        with place.asked() as service:
            messages.get_messages(service, output, watch, **window)
        return
    if what not in lists:
        raise UsageError(f"There is nothing called {what!r} to list. Choose one of: {', '.join(lists)}, messages.")
    _refuse_options(what, given)
    printed: dict[str, Callable[..., None]] = {
        "suspended": partial(show.print_suspended, limit=limit, empty=_empty(what, given)),
        "waiting": show.print_waiting,
        "hosts": show.print_hosts,
        "instances": show_instances.print_instances,
        "orchestrations": show_instances.print_orchestrations,
        "audit": partial(show.print_audit, empty=_empty(what, given)),
    }
    usual: Callable[..., None] = partial(show.print_rows, empty=_empty(what, given))
    print_these = printed.get(what, usual) if by is None else usual
    columns = columns_of_list(what if by is None else "suspended by")

    def print_all(rows: Sequence[Any]) -> None:
        page = rows[:limit] if what == "suspended" else rows  # one more is read, to know whether there are more
        print_list(page, output, partial(print_these, rows, output), columns, watched=watch is not None)

    with place.asked() as service:
        look = partial(lists[what], service) if by is None else partial(service.suspended_groups, by)
        if port is not None and not look():
            known_port(service, port)
        shown(look, print_all, output, watch)


_OPTIONS = {
    "instances": ("state", "where", "personal"),
    "suspended": ("where", "port", "code", "type", "by", "since", "limit", "after", "personal"),
    "messages": ("state", "where", "port", "type", "since", "until", "before", "limit", "personal"),
    "waiting": ("port", "limit"),
    "audit": ("since", "person", "action", "limit"),
}


def _empty(what: str, given: Mapping[str, object]) -> str:
    """What is said where a list has no rows: that there is nothing, or that nothing is as it was asked for."""
    if any(given.get(name) is not None for name in ("where", "port", "code", "type", "since", "person", "action")):
        rows = {"suspended": "suspended message", "audit": "act"}.get(what, "row")
        return f"No {rows} fits. For all of them: crossdock get {what}"
    nothing = {"access": "There are no rights given.", "audit": "Nobody has done anything."}
    return nothing.get(what, f"There are no {'suspended messages' if what == 'suspended' else what}.")


def _refuse_options(what: str, given: Mapping[str, object]) -> None:
    """An option that says nothing about a list is a mistake."""
    from crossdock.errors import UsageError

    for option, value in given.items():
        if value is not None and option not in _OPTIONS.get(what, ()):
            lists = "|".join(each for each, options in _OPTIONS.items() if option in options)
            raise UsageError(f"--{option} is for: crossdock get {lists}")
        if given["by"] is not None and value is not None and option != "by":
            raise UsageError(f"--by counts all that is suspended: leave --{option} out.")


app.command()(messages.describe)
app.command()(messages.explain)
app.command()(messages.trace)
app.command()(messages.erase)


@app.command()
@acting
def publish(
    place: Place,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files with messages.")],
    location: Annotated[
        str | None,
        typer.Option(help="The receive location through whose pipeline they go.", autocompletion=names_of("location")),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="The send port or group that surely gets them.", autocompletion=names_of("port", "group")),
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("-p", "--property", metavar="NAME=VALUE", help="A property to promote.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Publish files at once: each as one message, or what the pipeline of a receive location makes of it.

    The files stay where they are. The exit code is 3 if any message is unrouted or suspended.
    """
    from crossdock.administration.publish import PublishedMessage
    from crossdock.cli.output import print_published
    from crossdock.errors import CrossdockError

    published: list[PublishedMessage] = []
    with place.asked() as service:
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
def match(
    application: ApplicationFile,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files with messages.")],
    location: Annotated[str | None, typer.Option(help="The receive location they would arrive at.")] = None,
    explain: Annotated[bool, typer.Option(help="Show for each port why, or why not.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Say which ports and orchestrations would get the messages in files. Touches no database and starts nothing."""
    from crossdock.administration.dry_run import explained, route_files
    from crossdock.administration.running import loaded
    from crossdock.cli.output import print_json, print_routes

    found = loaded(application, settings_of())
    routes = list(route_files(found, files, location))
    explanations = [explained(found, route) for route in routes] if explain else []
    if output is Format.JSON:
        print_json([route.entry(*explanations[n : n + 1]) for n, route in enumerate(routes)])
    else:
        print_routes(routes, explanations)


@app.command()
def lint(application: ApplicationFile, output: Output = Format.TABLE) -> None:
    """Look for filters that are probably not what was meant. Exit code 1 if there are any."""
    from crossdock.administration.dry_run import lint_application
    from crossdock.cli.output import print_rows

    findings = lint_application(application, settings_of())
    print_rows(findings, output, empty="Nothing looks wrong.")
    if findings:
        raise typer.Exit(1)


@app.command()
def doctor(home: Home = None, database: Database = None, master: Master = None, output: Output = Format.TABLE) -> None:
    """Say which Python, Java, Spark and PostgreSQL are used, and whether each works."""
    from crossdock.administration.doctor import examine
    from crossdock.cli.output import print_rows

    findings = list(examine(settings_of(home=home, database=database, master=master)))
    print_rows(findings, output, empty="")
    if not all(finding.works for finding in findings):
        raise typer.Exit(1)


@app.command()
def demo(
    home: Annotated[Path, typer.Option(help="The folder the demo makes and works in.")] = Path(".demo"),
    orders: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many orders to make.")] = 3_000,
) -> None:
    """Make a few thousand orders, route them, look after them, and show what went where."""
    from crossdock.cli.show_demo import show_demo

    show_demo(home, orders, stop_on_signals())
