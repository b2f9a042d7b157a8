"""Runs the demo and shows what went where, what did not, and what to try next."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

from rich.console import Console

from crossdock.administration.dry_run import Routed, route_files
from crossdock.administration.instances import Instance
from crossdock.administration.running import Deployment, Summary, loaded, run
from crossdock.administration.service import SuspendedRow, opened
from crossdock.cli.output import Format, brief, console, progress, table_of
from crossdock.cli.show_message import print_explanation, print_trace
from crossdock.demo.orders import make_demo
from crossdock.errors import UsageError
from crossdock.settings import Settings

_MARK = ".made-by-crossdock-demo"
_SAMPLES = 200
_BAR = 20


def show_demo(folder: Path, orders: int, stop: Event) -> None:
    """Make the demo anew in `folder`, run it until nothing is left, show the result."""
    out = console()
    _fresh(folder)
    file = make_demo(folder, orders)
    settings = Settings(home=folder / ".crossdock", database="", master="")
    deployment = loaded(file, settings)
    out.print(f"Made {orders:,} orders in {folder / 'in'}, and {file}: {len(deployment.ports)} send ports,")
    out.print("one orchestration, and a few files that are wrong on purpose.")
    draw(out, deployment)
    sample = sample_order(deployment, folder / "in")
    if sample:
        _show_sample(out, sample)
    out.print()
    out.print("Routing all of them on embedded PostgreSQL and local Spark, which takes a few seconds to start:")
    started = time.monotonic()
    with progress() as show:
        summary = run(deployment, settings, until_idle=True, stop=stop, progress=show, deployed=show.deployed)
    seconds = time.monotonic() - started
    with opened(settings) as service:
        left = service.suspended()
        instances = service.instances()
    _show_result(out, deployment, summary, left, seconds)
    _show_instances(out, summary, instances)
    if sample:
        _show_journey(out, settings, str(sample.message.context.get("OrderId")))
    _show_next(out, file, left, instances)


def _fresh(folder: Path) -> None:
    """Remove an earlier demo, and nothing else."""
    try:
        if folder.exists() and any(folder.iterdir()):
            if not (folder / _MARK).exists():
                raise UsageError(f"{folder} is not empty and was not made by the demo. Choose another --home.")
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
    except OSError as error:
        raise UsageError(
            f"The folder {folder} of the demo cannot be made: {error.strerror}. Choose another --home, or start the "
            "demo where you may write."
        ) from error


def draw(out: Console, deployment: Deployment) -> None:
    """The application as text: where messages come in, and who wants which of them."""
    out.print()
    for location in deployment.locations:
        folder = Path(str(location.definition["address"])).parent.name
        types = ", ".join(schema["type"] for schema in location.definition["pipeline"]["schemas"])
        out.print(f"  {folder}/*.json -> {location.name} -> {types}", highlight=False)
    wanting = [(each.name, str(each.filter)) for each in deployment.services if each.filter.groups]
    width = max(len(name) for name, _ in wanting)
    for number, (name, filter_) in enumerate(wanting, 1):
        branch = "└─" if number == len(wanting) else "├─"
        shown = textwrap.shorten(filter_, 90 - width, placeholder=" ...")
        out.print(f"    {branch} {name:{width}}  {shown}", highlight=False, markup=False)


def sample_order(deployment: Deployment, inbox: Path) -> Routed | None:
    """An order that starts an instance of the orchestration and gets to the bank, if there is one; else any."""
    files = sorted(inbox.glob("order-*.json"))[:_SAMPLES]
    routes = list(route_files(deployment, files, "OrdersIn.file"))
    lively = (each for each in routes if each.activates and "Everyday" in each.matches)
    return next(lively, routes[0] if routes else None)


def _show_sample(out: Console, sample: Routed) -> None:
    """Who will get it, said before anything runs."""
    names = ("OrderId", "Region", "Customer", "Channel", "Amount", "Urgent")
    values = ((name, sample.message.context.get(name)) for name in names)
    shown = ", ".join(f"{name}={value}" for name, value in values if value is not None)
    out.print()
    out.print(f"[bold]One of them[/bold], {sample.file.name}: {shown}", highlight=False)
    out.print(f"  It goes to {', '.join(sample.matches) or 'nobody'}.", highlight=False)


def _show_journey(out: Console, settings: Settings, order: str) -> None:
    """Why the sample went where it did, and what became of it."""
    with opened(settings) as service:
        found = service.messages(where=f"OrderId = '{order}'", type_="Order", limit=1).messages
        if not found:
            return
        explanation, trace = service.explain(str(found[0].id)), service.trace(str(found[0].id))
    out.print()
    out.print(f"[bold]crossdock explain[/bold] of order {order}, which is delivered and gone:", highlight=False)
    print_explanation(explanation, Format.TABLE, in_full=False)
    out.print()
    out.print("[bold]crossdock trace[/bold] of it, with what the orchestration sent:")
    print_trace(trace, Format.TABLE)


def _show_result(
    out: Console, deployment: Deployment, summary: Summary, left: Sequence[SuspendedRow], seconds: float
) -> None:
    filters = {port.name: str(port.filter) for port in deployment.ports}
    most = max(summary.ports.values(), default=0) or 1
    rows = [
        {"send port": name, "delivered": count, "": "█" * -(-count * _BAR // most), "filter": filters[name]}
        for name, count in summary.ports.items()
        if name in filters
    ]
    out.print()
    out.print(table_of(rows, title="Delivered"))
    out.print()
    out.print(
        f"{summary.received:,} messages received, {summary.published:,} published once each, "
        f"{summary.delivered:,} references delivered, in {seconds:.0f} s including the start of Spark."
    )
    unrouted = [row for row in left if row.kind == "unrouted"]
    others = [row for row in left if row.kind != "unrouted"]
    if others:
        out.print()
        out.print(table_of([_shown(row) for row in others], title="Suspended, with their original bytes"))
    if unrouted:
        out.print()
        out.print(f"[bold]Unrouted[/bold]: {len(unrouted):,} messages that no filter wants, kept until somebody does.")
        regions = Counter(str(row.type) for row in unrouted)
        out.print("  by type: " + ", ".join(f"{name} {count:,}" for name, count in regions.most_common()))


def _show_instances(out: Console, summary: Summary, instances: Sequence[Instance]) -> None:
    """Each urgent order has an instance, from its invoice to its payment."""
    shipped = summary.ports.get("Shipping", 0)
    out.print()
    out.print(
        f"[bold]Orchestration[/bold] fulfil: {shipped + len(instances):,} urgent orders got an invoice. "
        f"{shipped:,} were paid and shipped; {len(instances):,} wait for a payment, as rows in PostgreSQL."
    )


def _shown(row: SuspendedRow) -> dict[str, Any]:
    shown = brief(row)
    return {"file": Path(shown["source_file"]).name, "reason": shown["reason"]}


def _show_next(out: Console, file: Path, left: Sequence[SuspendedRow], instances: Sequence[Instance]) -> None:
    home = file.parent / ".crossdock"
    bad = next((row.id for row in left if row.kind == "receive"), "ID")
    waiting = next((instance.id for instance in instances), "ID")
    out.print()
    out.print("[bold]Try next[/bold]")
    for command in (
        f"get ports --home {home}",
        f"get suspended --home {home} -o json",
        f"save {bad} --home {home} --to saved",
        f"describe {waiting} --home {home}",
        f"plan {file} --home {home}",
        f"run {file} --home {home}",
    ):
        out.print(f"  {_program()} {command}", highlight=False, soft_wrap=True)


def _program() -> str:
    """How this very command is called from here: by its name if the shell finds it, else by its path."""
    called = Path(sys.argv[0])
    if called.name != "crossdock":  # python -m crossdock
        return f"{_shown_path(Path(sys.executable))} -m crossdock"
    found = shutil.which("crossdock")
    return "crossdock" if found and Path(found).resolve() == called.resolve() else _shown_path(called)


def _shown_path(path: Path) -> str:
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)
