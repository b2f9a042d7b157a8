"""Runs the demo and shows what went where, what did not, and what to try next."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

from rich.console import Console

from crossdock.administration.running import Deployment, Summary, loaded, run
from crossdock.administration.service import SuspendedRow, opened
from crossdock.cli.output import brief, console, progress, table_of
from crossdock.demo.orders import make_demo
from crossdock.errors import UsageError
from crossdock.settings import Settings

_MARK = ".made-by-crossdock-demo"


def show_demo(folder: Path, orders: int, stop: Event) -> None:
    """Make the demo anew in `folder`, run it until nothing is left, show the result."""
    out = console()
    _fresh(folder)
    file = make_demo(folder, orders)
    settings = Settings(home=folder / ".crossdock", database="", master="")
    deployment = loaded(file, settings)
    out.print(f"Made {orders:,} orders in {folder / 'in'}, and {file}: {len(deployment.ports)} send ports, and")
    out.print("a few files that are wrong on purpose. Routing them on embedded PostgreSQL and local Spark:")
    started = time.monotonic()
    with progress() as show:
        summary = run(deployment, settings, until_idle=True, stop=stop, progress=show)
    seconds = time.monotonic() - started
    with opened(settings) as service:
        left = service.suspended()
    _show_result(out, deployment, summary, left, seconds)
    _show_next(out, folder, left)


def _fresh(folder: Path) -> None:
    """Remove an earlier demo, and nothing else."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise UsageError(f"{folder} is not empty and was not made by the demo. Choose another --home.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()


def _show_result(
    out: Console, deployment: Deployment, summary: Summary, left: Sequence[SuspendedRow], seconds: float
) -> None:
    filters = {port.name: str(port.filter) for port in deployment.ports}
    rows = [
        {"send port": name, "delivered": count, "filter": filters.get(name)} for name, count in summary.ports.items()
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


def _shown(row: SuspendedRow) -> dict[str, Any]:
    shown = brief(row)
    return {"file": Path(shown["source_file"]).name, "reason": shown["reason"]}


def _show_next(out: Console, folder: Path, left: Sequence[SuspendedRow]) -> None:
    home = folder / ".crossdock"
    bad = next((row.id for row in left if row.kind == "receive"), "ID")
    out.print()
    out.print("[bold]Try next[/bold]")
    for command in (
        f"crossdock get ports --home {home}",
        f"crossdock get suspended --home {home} -o json",
        f"crossdock save {bad} --home {home} --to saved",
    ):
        out.print(f"  .venv/bin/{command}", highlight=False, soft_wrap=True)
