"""How a plan is printed, and what a deployment changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crossdock.cli.output import Format, columns_of, console, picked, print_json, table_of
from crossdock.printable import printable

if TYPE_CHECKING:
    from crossdock.administration.deploying import Applied
    from crossdock.administration.difference import Difference
    from crossdock.administration.plan import ArtefactChange, Plan, VersionChange

_SHORT_VERSION = 12


def print_plan(plan: Plan, format_: Format) -> None:
    """One line that sums up, then a table for each kind of change; versions are short."""
    if format_ is Format.JSON:
        print_json(columns_of(plan))
        return
    out = console()
    out.print(printable(plan.summary), markup=False, highlight=False)
    subscriptions = [columns_of(each) for each in plan.subscriptions]
    filtered = {each.name for each in plan.subscriptions}
    artefacts = [_artefact_row(each, filter_below=each.name in filtered) for each in plan.artefacts]
    shapes = [row for each in plan.orchestrations for row in _shape_rows(each)]
    for title, rows in (("Artefacts", artefacts), ("Subscriptions", subscriptions), ("Replays", shapes)):
        if rows:
            out.print()
            out.print(table_of(rows, title))


def _artefact_row(change: ArtefactChange, *, filter_below: bool) -> dict[str, Any]:
    """`filter_below`: the table of subscriptions shows what the filter was and will be."""
    differ = ["filter" if filter_below and each.key == "filter" else _difference(each) for each in change.differences]
    head = picked(change, "kind", "name", "change")
    return {**head, "differences": "\n".join(differ) or "-", **picked(change, "waiting", "suspended")}


def _difference(each: Difference) -> str:
    if each.before is None and each.after is None:
        return f"{each.key}: changed"
    return f"{each.key}: {each.before or 'none'} -> {each.after or 'none'}"


def print_applied(applied: Applied, format_: Format) -> None:
    """What a deployment changed."""
    if format_ is Format.JSON:
        print_json(columns_of(applied))
        return
    out = console()
    out.print(printable(f"{applied.application}: {applied.summary}"), markup=False, highlight=False)
    for warning in applied.warnings:
        console(stderr=True).print(printable(f"WARNING: {warning}"), markup=False, highlight=False)


def _shape_rows(change: VersionChange) -> Iterator[dict[str, Any]]:
    for each in change.shapes:
        yield {
            "orchestration": change.name,
            "stay_on": each.version[:_SHORT_VERSION],
            **picked(each, "instances", "replayed"),
            "has_done": ", ".join(each.shape),
            "with_the_new_version": each.result,
        }
