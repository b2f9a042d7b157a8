"""How the command line prints orchestrations and their running instances."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from crossdock.cli.output import Format, columns_of, console, print_json, print_rows, table_of
from crossdock.printable import printable_lines

if TYPE_CHECKING:
    from crossdock.administration.instances import DescribedInstance, Instance
    from crossdock.administration.service import OrchestrationOverview

_TABLE_ROWS = 100
_SHORT_VERSION = 12


def print_orchestrations(rows: Sequence[OrchestrationOverview], format_: Format) -> None:
    """As a table with short versions."""
    shown = [{**columns_of(row), "version": row.version[:_SHORT_VERSION]} for row in rows]
    print_rows(shown if format_ is Format.TABLE else rows, format_, empty="There are no orchestrations.")


def print_instances(rows: Sequence[Instance], format_: Format) -> None:
    """As a table the oldest; the others have all of them, and why they are suspended."""
    if format_ is not Format.TABLE:
        print_rows(rows, format_, empty="There are no instances.")
        return
    shown = [
        {name: value for name, value in columns_of(row).items() if name not in ("host", "reason", "correlated")}
        for row in rows[:_TABLE_ROWS]
    ]
    for row, columns in zip(rows, shown, strict=False):
        columns |= {"waits_for": row.reason or row.waits_for, "since": row.since}
        columns |= {"correlated_by": correlated_by(row.correlated.values())}
    print_rows(shown, format_, empty="There are no instances.")
    if len(rows) > _TABLE_ROWS:
        sys.stdout.write(f"... and {len(rows) - _TABLE_ROWS:,} more; see them all with -o json\n")


def correlated_by(values: Iterable[Mapping[str, str]]) -> str:
    """`OrderId=A1`, each once however many correlations have it."""
    return ", ".join(dict.fromkeys(f"{name}={value}" for each in values for name, value in each.items()))


def print_instance(described: DescribedInstance, format_: Format) -> None:
    """One instance: what it is, its steps with the lines of its source, its messages."""
    columns = columns_of(described)
    if format_ is Format.JSON:
        print_json(columns)
        return
    out = console()
    parts = ("steps", "messages", "traceback")
    by = "; ".join(f"{name}: {correlated_by([values])}" for name, values in described.correlated.items())
    shown_columns = {**columns, "correlated": by or None}
    head = [{"": name.replace("_", " "), " ": value} for name, value in shown_columns.items() if name not in parts]
    out.print(table_of(head))
    rows = []
    for step in described.steps:
        at = step.at
        rows += [{"step": step.number, "at": at, "what": each, "line": None} for each in step.events]
        rows += [{"step": step.number, "at": at, "what": each.what, "line": each.line or None} for each in step.did]
    for title, shown in (("Steps", rows), ("Messages", [columns_of(each) for each in described.messages])):
        if shown:
            out.print()
            out.print(table_of(shown, title))
    if described.traceback:
        out.print()
        out.print(printable_lines(described.traceback), markup=False, highlight=False)
