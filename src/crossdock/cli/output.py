"""How the command line prints: tables for people, one JSON document for programs, progress on standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.live import Live
from rich.logging import RichHandler
from rich.table import Table
from rich.text import Text

from crossdock.printable import OneLine, printable, printable_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from crossdock.administration.dry_run import Routed
    from crossdock.administration.publish import PublishedMessage
    from crossdock.administration.running import Statistics, Summary
    from crossdock.administration.service import HostOverview, SuspendedRow


# What is printed as a row: columns by name, or a value whose fields are the columns.
Row: TypeAlias = "Mapping[str, Any] | DataclassInstance"

_TABLE_ROWS = 100
_WORST_FIRST = ("silent", "stuck", "throttled", "stopping", "running")


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


def print_json(document: object) -> None:
    sys.stdout.write(printable_json(json.dumps(document, default=str, ensure_ascii=False, indent=2)) + "\n")


def print_rows(rows: Sequence[Row], format_: Format, *, empty: str) -> None:
    """Rows as a table whose columns are the keys; `empty` is said where there are none."""
    shown = [columns_of(row) for row in rows]
    if format_ is Format.JSON:
        print_json(shown)
    elif not shown:
        console().print(empty)
    else:
        console().print(table_of(shown))


def columns_of(row: Row) -> Mapping[str, Any]:
    """The fields of a value by name, as they are shown: `class_` is `class`."""
    if isinstance(row, Mapping):
        return row
    return asdict(row, dict_factory=lambda fields: {name.rstrip("_"): value for name, value in fields})


def print_suspended(rows: Sequence[SuspendedRow], format_: Format) -> None:
    """As a table the oldest, in the width of a terminal; JSON has all of each."""
    if format_ is Format.JSON:
        print_rows(rows, format_, empty="")
        return
    print_rows([brief(row) for row in rows[:_TABLE_ROWS]], format_, empty="There are no suspended messages.")
    if len(rows) > _TABLE_ROWS:
        sys.stdout.write(f"... and {len(rows) - _TABLE_ROWS:,} more; see them all with -o json\n")


def print_hosts(rows: Sequence[HostOverview], format_: Format) -> None:
    """As a table with the number of living instances and how they are; JSON has each of them."""
    shown: Sequence[Row] = rows if format_ is Format.JSON else [_brief_host(row) for row in rows]
    print_rows(shown, format_, empty="There are no hosts.")


def console(*, stderr: bool = False) -> Console:
    """As wide as the terminal; wide enough for whole rows where there is none."""
    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=160)


def brief(row: SuspendedRow) -> dict[str, Any]:
    """A suspended message in the width of a terminal."""
    source = Path(row.source_file or "-")
    shown = source.relative_to(Path.cwd()) if source.is_relative_to(Path.cwd()) else source
    return {"id": row.id, "kind": row.kind, "code": row.code, "source_file": str(shown), "reason": row.reason}


def _brief_host(row: HostOverview) -> dict[str, Any]:
    said = {each.state for each in row.instances}
    state = next((worse for worse in _WORST_FIRST if worse in said), "none")
    shown = {"name": row.name, "labels": row.labels, "instances": len(row.instances), "state": state}
    return {**shown, **{name: value for name, value in columns_of(row).items() if name not in shown}}


def table_of(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in rows[0]:
        number = all(isinstance(row[name], int) and not isinstance(row[name], bool) for row in rows)
        table.add_column(
            name.replace("_", " "), justify="right" if number else "left", overflow="fold", no_wrap=name == "id"
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    return table


def print_summary(summary: Summary, format_: Format) -> None:
    shown = {name: value for name, value in columns_of(summary).items() if name != "all_delivered"}
    if format_ is Format.JSON:
        print_json(shown)
        return
    out = console()
    out.print(table_of([{name: value for name, value in shown.items() if name != "ports"}]))
    if summary.ports:
        out.print()
        out.print(table_of([{"send port": name, "delivered": count} for name, count in summary.ports.items()]))


def print_routes(routes: Sequence[Routed], explanations: Sequence[Mapping[str, list[str]]]) -> None:
    """Who would get each message; with explanations, below it why and why not."""
    out = console()
    if not explanations:
        rows = [
            {
                "file": str(route.file),
                "index": route.index,
                "type": route.type,
                "goes to": route.error or ", ".join(route.matches) or "nobody: it would be unrouted",
            }
            for route in routes
        ]
        out.print(table_of(rows) if rows else "There are no messages.")
    for route, explanation in zip(routes, explanations, strict=False):
        head = printable(f"{route.file} [{route.index}] {route.type or ''} {route.error or ''}")
        out.print(head, markup=False, highlight=False)
        for port, (verdict, *lines) in explanation.items():
            out.print(printable(f"  {port}: {verdict}"), markup=False, highlight=False)
            for line in lines:
                out.print(printable(f"  {line}"), markup=False, highlight=False)


def print_published(messages: Sequence[PublishedMessage], format_: Format) -> None:
    """What became of each message that was published by hand."""
    if format_ is Format.JSON:
        print_rows(messages, format_, empty="")
    else:
        rows = [{"file": each.file, "id": each.id, "type": each.type, "result": _became(each)} for each in messages]
        print_rows(rows, format_, empty="There were no messages.")


def _became(message: PublishedMessage) -> str:
    if message.result != "published":
        return f"{message.result}: {message.reason or 'no subscription matches'}"
    held = f", held back by {message.stopped:,} that are stopped" if message.stopped else ""
    return f"goes to {message.references:,}{held}"


def print_figures(figures: Mapping[str, Any], format_: Format) -> None:
    """What a benchmark measured."""
    if format_ is Format.JSON:
        print_json(figures)
    else:
        print_rows([{"figure": name, "value": str(value)} for name, value in figures.items()], format_, empty="")


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Say what is being done, on standard error: one line that changes on a terminal."""
    err = console(stderr=True)
    if err.is_terminal:
        with err.status("starting") as status:
            yield status.update
    else:
        yield lambda text: err.print(text, highlight=False)


class Progress:
    """One line that changes on a terminal; elsewhere a line for each phase."""

    def __init__(self, err: Console, live: Live | None) -> None:
        self._err = err
        self._live = live
        self._phase = ""

    def __call__(self, phase: str, statistics: Statistics) -> None:
        line = (
            f"{phase}: received {statistics.received:,}  published {statistics.published:,}  "
            f"delivered {statistics.delivered:,}  ready {statistics.ready + statistics.claimed:,}  "
            f"suspended {statistics.suspended:,}  unrouted {statistics.unrouted:,}  waiting {statistics.waiting:,}"
        )
        if self._live is not None:
            self._live.update(Text(line))
        elif phase != self._phase:
            self._err.print(line, highlight=False)
        self._phase = phase


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress and log lines together on standard error."""
    err = console(stderr=True)
    handler: logging.Handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(levelname)s: %(message)s"))
    if err.is_terminal:
        handler = RichHandler(console=err, show_path=False, show_time=False, markup=False)
        handler.setFormatter(OneLine("%(message)s"))
    root = logging.getLogger("crossdock")
    root.addHandler(handler)
    try:
        if err.is_terminal:
            with Live(console=err, refresh_per_second=8, transient=True) as live:
                yield Progress(err, live)
        else:
            yield Progress(err, None)
    finally:
        root.removeHandler(handler)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return printable(", ".join(map(str, value))) or "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))
