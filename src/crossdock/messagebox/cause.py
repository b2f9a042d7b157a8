"""Why something is published, and whether that still holds: its source is new, its reference is there to settle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import assert_never

import psycopg

from crossdock.message.publication import Express, FromSource, InPlaceOf, Publication, Settles
from crossdock.messagebox.settle import Row, settle_rows
from crossdock.messagebox.statement import statement

_Tally = tuple[int, int, int]


def claim(connection: psycopg.Connection, publications: Sequence[Publication], tallies: Sequence[_Tally]) -> list[bool]:
    """Which publications this transaction may publish. `tallies`: (published, unrouted, suspended) of each."""
    won = _listed(connection, publications, tallies)
    taken = _settled(connection, publications)
    ours = []
    for each in publications:
        match each.cause:
            case FromSource(sequence=sequence, start=start):
                ours.append((sequence, start) in won)
                won.discard((sequence, start))  # given twice in one call, it is published once
            case Settles() as settles:
                ours.append(settles in taken)
                taken.discard(settles)
            case InPlaceOf() as replaces:
                ours.append(_replaced(connection, replaces))
            case Express():
                ours.append(True)
            case _:
                assert_never(each.cause)
    return ours


def _listed(
    connection: psycopg.Connection, publications: Sequence[Publication], tallies: Sequence[_Tally]
) -> set[tuple[int, int]]:
    """The keys, of ranges whose source is in the ledger, that are new."""
    listed = [
        (each.cause, tally)
        for each, tally in zip(publications, tallies, strict=True)
        if isinstance(each.cause, FromSource)
    ]
    if not listed:
        return set()
    sequences = [each.sequence for each, _ in listed]
    living = set(connection.execute(statement("lock_intake"), {"sequence": sequences}))
    candidates = [(each, tally) for each, tally in listed if (each.sequence, each.random_bits) in living]
    parameters = {
        "sequence": [each.sequence for each, _ in candidates],
        "range_start": [each.start for each, _ in candidates],
        "location": [each.location_id for each, _ in candidates],
        "received": [sum(tally) for _, tally in candidates],
        "published": [tally[0] for _, tally in candidates],
        "unrouted": [tally[1] for _, tally in candidates],
        "suspended": [tally[2] for _, tally in candidates],
        "range_end": [each.end for each, _ in candidates],
        "last": [each.last for each, _ in candidates],
    }
    return {(row[0], row[1]) for row in connection.execute(statement("claim_publication"), parameters)}


def _settled(connection: psycopg.Connection, publications: Sequence[Publication]) -> set[Settles]:
    """Take away the claimed references in whose place something is published; gives those that were still ours."""
    wanted: defaultdict[tuple[int, int], dict[int, Settles]] = defaultdict(dict)
    for each in publications:
        if isinstance(settles := each.cause, Settles):
            wanted[settles.host_id, settles.host_instance][settles.sequence] = settles
    taken: set[Settles] = set()
    for (host, host_instance), mine in wanted.items():
        becomes = {number: "answered" if each.delivered else "replaced" for number, each in mine.items()}
        rows = [Row(number, None, became) for number, became in becomes.items()]
        taken.update(mine[number] for number in settle_rows(connection, host, host_instance, rows))
    return taken


def _replaced(connection: psycopg.Connection, replaces: InPlaceOf) -> bool:
    """Take away the suspended reference in whose place something is published; False if somebody did already."""
    parameters = {"host": replaces.host_id, "sequence": replaces.sequence}
    return connection.execute(statement("replace_suspended"), parameters).fetchone() is not None
