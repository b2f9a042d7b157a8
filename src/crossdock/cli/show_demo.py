"""Runs the demo and shows what went where, what did not, and what to try next."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from rich.console import Console

from crossdock.administration.dry_run import Routed, explained, route_files
from crossdock.administration.instances import Instance
from crossdock.administration.running import Deployment, loaded
from crossdock.administration.service import SuspendedRow, opened
from crossdock.cli.demo_acts import operate
from crossdock.cli.demo_at_work import AtWork
from crossdock.cli.logs import Logs, logging_to
from crossdock.cli.output import Format, console
from crossdock.cli.show_message import print_explanation, print_trace
from crossdock.demo.orders import make_demo, message_count
from crossdock.errors import InterruptedDemoError, UsageError
from crossdock.settings import Settings

_MARK = ".made-by-crossdock-demo"
_SAMPLES = 200
_WIDTH = 100


def show_demo(folder: Path, orders: int, stop: Event) -> None:
    """Make the demo anew in `folder`, run it, look after it as an operator does, and show the result."""
    out, err = console(), console(stderr=True)
    began = time.monotonic()
    _fresh(folder)
    file = make_demo(folder, orders)
    settings = Settings(home=folder / ".crossdock", database="", master="")
    deployment = loaded(file, settings)
    with logging_to(err, Logs()):
        work = AtWork(deployment, settings, stop, err)  # PostgreSQL and Spark start while we draw
        out.print(f"Made {orders:,} orders in {folder / 'in'}, and {file}: {len(deployment.ports)} send ports,")
        out.print("one orchestration, and a few files that are wrong on purpose.")
        draw(out, deployment)
        sample = sample_order(deployment, folder / "in")
        if sample:
            show_sample(out, deployment, sample)
        try:
            operate(out, work, settings, file, message_count(orders))
            if sample:
                _show_journey(out, settings, str(sample.message.context.get("OrderId")))
        except InterruptedDemoError:
            out.print("The demo was interrupted.")
        summary = work.end()
    out.print()
    out.print(
        f"{summary.received:,} messages received, {summary.published:,} published once each, {summary.delivered:,} "
        f"references delivered: all of it in {time.monotonic() - began:.0f} s.",
        highlight=False,
    )
    with opened(settings) as service:
        _show_next(out, file, service.suspended(), service.instances())


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
        shown = textwrap.shorten(filter_, min(out.width, _WIDTH) - width - 9, placeholder=" ...")
        out.print(f"    {branch} {name:{width}}  {shown}", highlight=False, markup=False)


def sample_order(deployment: Deployment, inbox: Path) -> Routed | None:
    """An order that starts an instance of the orchestration and gets to the bank, if there is one; else any."""
    files = sorted(inbox.glob("order-*.json"))[:_SAMPLES]
    routes = list(route_files(deployment, files, "OrdersIn.file"))
    lively = (each for each in routes if each.activates and "Everyday" in each.matches)
    return next(lively, routes[0] if routes else None)


def show_sample(out: Console, deployment: Deployment, sample: Routed) -> None:
    """Who will get it and who will not, with the predicate that decides: said before anything has arrived."""
    out.print()
    out.print(
        f"[bold]Who will get {sample.file.name}[/bold], and why, while PostgreSQL and Spark start:", highlight=False
    )
    wanting = {each.name for each in deployment.services if each.filter.groups}
    told = {name: lines for name, lines in explained(deployment, sample).items() if name in wanting}
    width = max(map(len, told))
    for name, lines in told.items():
        mark, verdict = ("✓", "yes") if name in sample.matches else ("·", "no")
        deciding = [line.strip() for line in lines if line.strip().startswith(f"{verdict} ")]
        why = " ".join((deciding[-1] if verdict == "yes" else deciding[0]).split()[1:])
        line = textwrap.shorten(why, min(out.width, _WIDTH) - width - 6, placeholder=" ...")
        out.print(f"  {mark} {name:{width}}  {line}", highlight=False, markup=False)


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


def _show_next(out: Console, file: Path, left: Sequence[SuspendedRow], instances: Sequence[Instance]) -> None:
    home = file.parent / ".crossdock"
    bad = [f"save {row.id} --home {home} --to saved" for row in left if row.kind == "receive"]
    waiting = [f"describe {instance.id} --home {home}" for instance in instances]
    out.print()
    out.print("[bold]Try next[/bold]")
    for command in (
        f"get ports --home {home}",
        f"get suspended --home {home} -o json",
        *bad[:1],
        *waiting[:1],
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
