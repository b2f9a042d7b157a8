"""How the command line prints: tables for people, one JSON document for programs, progress on standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never
from uuid import UUID

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from crossdock.cli.logs import LogFormat, Logs, logging_to
from crossdock.printable import printable, printable_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from crossdock.administration.deploying import Applied
    from crossdock.administration.dry_run import Routed
    from crossdock.administration.publish import PublishedMessage
    from crossdock.administration.running import Statistics, Summary
    from crossdock.administration.service import (
        AuditRow,
        Edited,
        HostOverview,
        Outcome,
        SuspendedRow,
        WaitingOverview,
    )


# What is printed as a row: columns by name, or a value whose fields are the columns.
Row: TypeAlias = "Mapping[str, Any] | DataclassInstance"

logger = logging.getLogger(__name__)

_USUAL = Logs()
_TABLE_ROWS = 100
_SHORT_VERSION = 12
_IDS = ("id", "sample", "blocked_by")  # columns of lists
_MESSAGE = 8  # ids of messages are UUIDs of this version
_WORST_FIRST = ("silent", "stuck", "throttled", "stopping", "running")


class Format(StrEnum):
    """How to print. Lists can be printed in every way, other things as a table or as JSON."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    WIDE = "wide"
    NAME = "name"


def print_json(document: object) -> None:
    sys.stdout.write(printable_json(json.dumps(document, default=in_json, ensure_ascii=False, indent=2)) + "\n")


def in_json(value: object) -> str:
    """What JSON has no word for: a time as ISO 8601 says, an id as its text."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_rows(rows: Sequence[Row], format_: Format, *, empty: str) -> None:
    """Rows as a table whose columns are the keys; `empty` is said where there are none."""
    from crossdock.cli import formats

    shown = [columns_of(row) for row in rows]
    match format_:
        case Format.JSON:
            print_json(shown)
        case Format.JSONL:
            formats.print_json_lines(shown)
        case Format.CSV:
            formats.print_csv(shown)
        case Format.NAME:
            formats.print_names(shown)
        case Format.WIDE | Format.TABLE if not shown:
            console().print(empty)
        case Format.WIDE:
            formats.print_wide(shown)
        case Format.TABLE:
            console().print(table_of(shown))
        case _:
            assert_never(format_)


def columns_of(row: Row) -> Mapping[str, Any]:
    """The fields of a value by name, as they are shown: `class_` is `class`."""
    if isinstance(row, Mapping):
        return row
    return asdict(row, dict_factory=lambda fields: {name.rstrip("_"): value for name, value in fields})


def picked(row: object, *names: str) -> dict[str, Any]:
    """These fields of a value."""
    return {name: getattr(row, name) for name in names}


def print_suspended(
    rows: Sequence[SuspendedRow], format_: Format, *, limit: int, empty: str = "There are no suspended messages."
) -> None:
    """A page, as a table in the width of a terminal; else with all of each. Where the next page begins is said too."""
    shown: Sequence[Row] = [brief(row) for row in rows[:limit]] if format_ is Format.TABLE else rows[:limit]
    print_rows(shown, format_, empty=empty)
    if len(rows) > limit:
        sys.stderr.write(f"There are more: crossdock get suspended --after {rows[limit - 1].sequence}\n")


def print_waiting(rows: Sequence[WaitingOverview], format_: Format) -> None:
    """What waits, and until when, in the width of a terminal."""
    print_rows(rows, format_, empty="Nothing waits for its next attempt.")


def print_outcomes(outcomes: Sequence[Outcome], format_: Format, *, total: int) -> None:
    """What became of each; as a table the first, those that were not done before the others, and then the counts."""
    if format_ is Format.JSON:
        print_rows(outcomes, format_, empty="")
        return
    placed = sorted(outcomes, key=lambda each: each.done)
    shown = [{name: value for name, value in columns_of(row).items() if name != "done"} for row in placed]
    print_rows(shown[:_TABLE_ROWS], format_, empty="There was nothing to do.")
    done = sum(each.done for each in outcomes)
    if len(outcomes) > _TABLE_ROWS or len(outcomes) < total or done < len(outcomes):
        left = f", {total - len(outcomes):,} not begun" if len(outcomes) < total else ""
        sys.stdout.write(f"{done:,} of {total:,} done, {len(outcomes) - done:,} not{left}\n")


def print_edited(edited: Edited, format_: Format) -> None:
    """The old id and the new one, and which properties stay as they were."""
    if format_ is Format.JSON:
        print_json(columns_of(edited))
        return
    shown = {name: value for name, value in columns_of(edited).items() if name != "kept"}
    print_rows([{**shown, "edited_id": short(edited.edited_id)}], format_, empty="")
    if edited.kept:
        kept = ", ".join(f"{name} = {value}" for name, value in edited.kept.items() if not name.startswith("BTS."))
        sys.stdout.write(
            printable(f"Not read from the new body, and as they were: {kept or 'system properties'}") + "\n"
        )


def print_hosts(rows: Sequence[HostOverview], format_: Format) -> None:
    """As a table with the number of living instances and how they are; the others have each of them."""
    shown: Sequence[Row] = [_brief_host(row) for row in rows] if format_ is Format.TABLE else rows
    print_rows(shown, format_, empty="There are no hosts.")


def print_audit(rows: Sequence[AuditRow], format_: Format, *, empty: str = "Nobody has done anything.") -> None:
    """As a table without what was before and after, unless it is why something was refused."""
    names = ("at", "person", "action", "target", "outcome")
    shown = [{**picked(row, *names), "reason": _why_refused(row) or row.reason} for row in rows]
    print_rows(shown if format_ is Format.TABLE else rows, format_, empty=empty)


def _why_refused(row: AuditRow) -> str | None:
    return row.after.get("reason") if row.outcome == "refused" and isinstance(row.after, dict) else None


def time(at: datetime | None) -> str:
    """In UTC, to the second, as it is sorted."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def console(*, stderr: bool = False) -> Console:
    """As wide as the terminal; wide enough for whole rows where there is none."""
    made = Console(stderr=stderr)
    return made if made.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=160)


def brief(row: SuspendedRow) -> dict[str, Any]:
    """A suspended message in the width of a terminal."""
    source = Path(row.source_file or "-")
    shown = source.relative_to(Path.cwd()) if source.is_relative_to(Path.cwd()) else source
    return {**picked(row, "id", "kind", "code", "port"), "source_file": str(shown), "reason": row.reason}


def _brief_host(row: HostOverview) -> dict[str, Any]:
    said = {each.state for each in row.instances}
    state = next((worse for worse in _WORST_FIRST if worse in said), "none")
    shown = {"name": row.name, "labels": row.labels, "instances": len(row.instances), "state": state}
    return {**shown, **{name: value for name, value in columns_of(row).items() if name not in shown}}


def table_of(rows: Sequence[Mapping[str, Any]], title: str | None = None, *, whole_ids: bool = False) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in rows[0]:
        number = all(isinstance(row[name], int) and not isinstance(row[name], bool) for row in rows)
        table.add_column(
            name.replace("_", " "), justify="right" if number else "left", overflow="fold", no_wrap=name == "id"
        )
    for row in rows:
        cells = (short(value) if name in _IDS and not whole_ids else _cell(value) for name, value in row.items())
        table.add_row(*map(Text, cells))
    return table


def short(id_: Any) -> str:
    """A message id as people write it; what is none as it is."""
    from crossdock.administration.message_ids import short_id

    try:
        value = UUID(str(id_))
    except ValueError:
        return _cell(id_)
    return short_id(value) if value.version == _MESSAGE else str(id_)


def print_summary(summary: Summary, format_: Format, box: str = "") -> None:
    """What a run did; below it what is left, each with the command for it. `box` are the options that name the
    MessageBox.
    """
    shown = {name: value for name, value in columns_of(summary).items() if name != "all_delivered"}
    if format_ is Format.JSON:
        print_json(shown)
        return
    out = console()
    out.print(table_of([{name: value for name, value in shown.items() if name != "ports"}]))
    if summary.ports:
        out.print()
        out.print(table_of([{"name": name, "delivered": count} for name, count in summary.ports.items()]))
    if summary.advice():
        out.print()
    for left, command in summary.advice():
        out.print(printable(f"{left}. See: {command}{box}"), markup=False, highlight=False, soft_wrap=True)


def print_routes(routes: Sequence[Routed], explanations: Sequence[Mapping[str, list[str]]]) -> None:
    """Who would get each message; with explanations, below it why and why not."""
    out = console()
    if not explanations:
        rows = [
            {**picked(route, "file", "index", "type"), "goes to": route.error or _goes_to(route)} for route in routes
        ]
        out.print(table_of(rows) if rows else "There are no messages.")
    for route, explanation in zip(routes, explanations, strict=False):
        head = printable(f"{route.file} [{route.index}] {route.type or ''} {route.error or ''}")
        out.print(head, markup=False, highlight=False)
        for port, (verdict, *lines) in explanation.items():
            out.print(printable(f"  {port}: {verdict}"), markup=False, highlight=False)
            for line in lines:
                out.print(printable(f"  {line}"), markup=False, highlight=False)


def _goes_to(route: Routed) -> str:
    shown = [name for name in route.matches if name not in route.activates]
    for name in route.activates:
        convoy = name in route.joins
        waiting = f"the instance of {name} that waits for {route.joins[name]}, or a new one" if convoy else ""
        shown.append(waiting or f"a new instance of {name}")
    shown += [
        f"an instance of {name} that waits for {values}, if there is one"
        for name, values in route.joins.items()
        if name not in route.activates
    ]
    return ", ".join(shown) or "nobody: it would be unrouted"


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

    def __init__(self, err: Console, live: Live | None, *, by_log: bool = False) -> None:
        self._err = err
        self._live = live
        self._by_log = by_log
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
            self._say(line)
        self._phase = phase

    def deployed(self, applied: Applied) -> None:
        """One line about the deployment, which stays."""
        self._say(printable(f"deployed {applied.application}: {applied.summary}"))
        for warning in applied.warnings:
            logger.warning("%s", warning)

    def _say(self, line: str) -> None:
        if self._by_log:
            logger.info("%s", line)
        else:
            self._err.print(line, markup=False, highlight=False)


@contextmanager
def progress(logs: Logs = _USUAL) -> Iterator[Progress]:
    """Progress and log lines together on standard error. Among JSON lines, progress is one of them at level info."""
    err = console(stderr=True)
    by_log = logs.format is LogFormat.JSON
    with logging_to(err, logs):
        if err.is_terminal and not by_log:
            with Live(console=err, refresh_per_second=8, transient=True) as live:
                yield Progress(err, live)
        else:
            yield Progress(err, None, by_log=by_log)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return time(value)
    if isinstance(value, list):
        return ", ".join(map(_cell, value)) or "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))
