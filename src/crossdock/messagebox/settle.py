"""Settling: what becomes of claimed references, recorded in one transaction.

Each outcome names the reference it settles. A reference that this host instance no longer has is left alone, and the
others are settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, assert_never
from uuid import UUID

import psycopg
from msgspec import Struct

from crossdock.errors import TerminalError
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.rows import Reference, storable
from crossdock.messagebox.statement import array_text, quick, statement


class Complete(Struct, frozen=True):  # made for every delivery: a dataclass takes five times as long
    """Delivered."""

    reference: Reference


class Retry(Struct, frozen=True):
    """To be tried again in so long. Not `tried`, it only has to wait, and keeps the count of its attempts.

    One of an ordered service goes back to its place, and the lease is blocked for so long.
    """

    reference: Reference
    after: timedelta
    reason: str
    tried: bool = True


class Suspend(Struct, frozen=True):
    """It will not work by itself. `kind` is `response` for one that nobody waits for any more, `code` the error's.

    `stops`: the ordered service waits until somebody has dealt with it.
    """

    reference: Reference
    reason: str
    kind: str = "send"
    stops: bool = False
    code: str = TerminalError.code


class GiveBack(Struct, frozen=True):
    """Back to its queue as it was: it has not been tried."""

    reference: Reference


class Hold(Struct, frozen=True):
    """A running instance keeps it until it ends: it was given to its code in this step, or is to be given later."""

    reference: Reference
    instance: UUID
    step: int | None


Settlement = Complete | Retry | Suspend | GiveBack | Hold


class Row(NamedTuple):
    """What becomes of one reference, as the statement `settle` takes it."""

    sequence: int
    claim: int | None
    becomes: str
    after: timedelta | None = None
    tried: bool = True
    kind: str | None = None
    code: str | None = None
    reason: str | None = None


def completed(host_instance: int, references: Sequence[Reference]) -> dict[str, Any]:
    """The parameters of the statement `complete`. Whichever claim delivered it: it is delivered."""
    return {
        "host": references[0].host_id,
        "host_instance": host_instance,
        "sequence": array_text(reference.sequence for reference in references),
        "claim": "{}",
    }


def settle(connection: psycopg.Connection, host_instance: int, outcomes: Iterable[Settlement]) -> None:
    """In the caller's transaction, in which no service may move to another host."""
    # The last of each: a claim that a killed server forgot may have been made again, and both delivered.
    last = {outcome.reference.sequence: outcome for outcome in outcomes}
    kept = [outcome for outcome in last.values() if isinstance(outcome, Hold)]
    rows = [_row(outcome) for outcome in last.values() if not isinstance(outcome, Hold)]
    host_id = next((outcome.reference.host_id for outcome in last.values()), 0)
    if rows:
        settle_rows(connection, host_id, host_instance, rows)
    if kept:
        parameters = {
            "host": host_id,
            "host_instance": host_instance,
            "sequence": array_text(each.reference.sequence for each in kept),
            "claim": array_text(each.reference.claim for each in kept),
            "instance": [each.instance for each in kept],
            "step": [each.step for each in kept],
        }
        connection.execute(host_statement("hold", host_id), quick(parameters))


def settle_rows(connection: psycopg.Connection, host_id: int, host_instance: int, rows: Sequence[Row]) -> set[int]:
    """Gives the sequences of those that were still ours."""
    parameters: dict[str, Any] = dict(zip(Row._fields, map(list, zip(*rows, strict=True)), strict=True))
    parameters |= {"host": host_id, "host_instance": host_instance}
    row = connection.execute(host_statement("settle", host_id), quick(parameters)).fetchone()
    return set() if row is None else set(row[0] or ())


def leave_lease(
    connection: psycopg.Connection, host_instance: int, lease: Reference, outcomes: Sequence[Settlement]
) -> None:
    """Give up the lease under which a reference was claimed; blocked, if one has to be tried again or stops it."""
    blocked_for: timedelta | None = None
    blocked_by: int | None = None
    reason: str | None = None
    for outcome in outcomes:
        match outcome:
            case Retry():
                blocked_for, reason = outcome.after, outcome.reason
            case Suspend(stops=True):
                blocked_by, reason = outcome.reference.sequence, outcome.reason
            case _:
                pass
    parameters = {
        "service": lease.subqueue,
        "host_instance": host_instance,
        "claim": lease.claim,
        "blocked_for": blocked_for,
        "blocked_by": blocked_by,
        "reason": None if reason is None else storable(reason),
    }
    connection.execute(statement("leave_lease"), parameters)


def _row(outcome: Complete | Retry | Suspend | GiveBack) -> Row:
    sequence, claim = outcome.reference.sequence, outcome.reference.claim
    match outcome:
        case Complete():
            return Row(sequence, None, "delivered")
        case Retry():
            reason = storable(outcome.reason)
            return Row(sequence, claim, "scheduled", outcome.after, outcome.tried, reason=reason)
        case Suspend():
            kind, code, reason = outcome.kind, outcome.code, storable(outcome.reason)
            return Row(sequence, claim, "suspended", kind=kind, code=code, reason=reason)
        case GiveBack():
            return Row(sequence, claim, "queued", tried=False)
        case _:
            assert_never(outcome)
