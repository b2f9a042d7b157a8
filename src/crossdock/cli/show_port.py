"""How one send port is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossdock.cli.output import Format, columns_of, console, print_json, table_of

if TYPE_CHECKING:
    from crossdock.administration.described_port import DescribedPort


def print_port(described: DescribedPort, format_: Format) -> None:
    """What it is, then what is suspended by code, and what is tried next."""
    columns = columns_of(described)
    if format_ is Format.JSON:
        print_json(columns)
        return
    out = console()
    head = {**columns, "filter": described.filter or _NO_FILTER if described.filter is not None else None}
    out.print(table_of([{"": name, " ": value} for name, value in head.items() if name not in ("codes", "next")]))
    if described.codes:
        out.print()
        out.print(table_of([{"code": code, "suspended": count} for code, count in described.codes.items()]))
    if described.next:
        keys = ("id", "attempt", "due_at", "blocked_by", "reason")
        out.print()
        out.print(table_of([{key: columns_of(each)[key] for key in keys} for each in described.next]))


_NO_FILTER = "none: only messages that name it go there"
