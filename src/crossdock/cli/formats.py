"""How lists are printed for programs and for wide screens: JSON lines, CSV, names, and every column."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from crossdock.cli.output import in_json, table_of
from crossdock.printable import printable, printable_json, printable_lines

# Of each list the first of these that its rows have is what commands take.
_NAMES = ("name", "id", "database_user", "group", "number")
# What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@")
_WIDEST = 1_000_000


def print_json_lines(rows: Sequence[Mapping[str, Any]]) -> None:
    """An object in each line."""
    for row in rows:
        print_json_line(row)


def print_json_line(document: object) -> None:
    """One document in one line."""
    sys.stdout.write(_json(document) + "\n")


def print_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """By RFC 4180, with a header, which is `columns` where there are no rows."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    header = list(rows[0]) if rows else list(columns)
    if header:
        writer.writerow(header)
    writer.writerows([_csv_cell(row.get(name)) for name in header] for row in rows)
    sys.stdout.write(written.getvalue())


def print_names(rows: Sequence[Mapping[str, Any]]) -> None:
    """Ids or names, each once in a line of its own, as `resume -` and xargs take them."""
    names = (row[next(name for name in _NAMES if name in row)] for row in rows)
    for name in dict.fromkeys(printable(str(each)) for each in names):
        sys.stdout.write(f"{name}\n")


def print_wide(rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with every column and whole ids, each row in one line however wide the terminal is."""
    shown = [{name: _json(value) if _is_nested(value) else value for name, value in row.items()} for row in rows]
    table = table_of(shown, whole_ids=True)
    options = Console().options.update(max_width=_WIDEST)
    Console(width=Console().measure(table, options=options).maximum).print(table)


def _csv_cell(value: Any) -> str:
    """A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, bool | list | tuple) or _is_nested(value):
        return _json(value)
    if not isinstance(value, str):
        return in_json(value)
    harmful = value.startswith(("\t", "\r")) or value.lstrip().startswith(_FORMULA)
    return f"'{printable_lines(value)}" if harmful else printable_lines(value)


def _is_nested(value: Any) -> bool:
    items = value if isinstance(value, list | tuple) else ()
    return isinstance(value, Mapping) or any(isinstance(each, Mapping | list | tuple) for each in items)


def _json(document: object) -> str:
    return printable_json(json.dumps(document, default=in_json, ensure_ascii=False))
