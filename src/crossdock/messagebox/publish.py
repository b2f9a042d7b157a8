"""Publishing: one transaction that stores each message once and gives every matching subscription one reference.

What makes it happen exactly once is the order inside: the ledger rows are locked, the keys are inserted, and only the
interchanges whose key was new go on. The transaction has written, and so has its number, before it draws the sequence
numbers of references; `marks.py` relies on that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from crossdock.message.message import Message
from crossdock.messagebox.copy import copy_tuples, uuid_array
from crossdock.messagebox.decide import Decision, decide, find_instances, give, refuse_second_answers
from crossdock.messagebox.rows import Published, storable
from crossdock.messagebox.statement import statement
from crossdock.messagebox.store import active_logs, log_references, ones, part_ids, store
from crossdock.receive.interchange import Interchange
from crossdock.subscription.router import Router

# Shared by publishers at the end of their transaction, exclusive for whoever changes subscriptions.
SUBSCRIPTION_LOCK = 0x0C05_5D0D


class EpochMovedError(Exception):
    """Subscriptions, or receive locations, changed while a batch was being published: nothing was done."""


def publish(
    connection: psycopg.Connection,
    router: Router,
    interchanges: Sequence[Interchange],
    *,
    location_epoch: int | None = None,
) -> Published:
    """Publish in the caller's connection; raises EpochMovedError, with nothing done, if the router is out of date.

    `location_epoch`: the interchanges were read by these definitions of receive locations, and they must still hold.
    """
    messages = [message for interchange in interchanges for message in interchange.messages]
    began = time.perf_counter()
    decision = decide(router, messages)
    match_seconds = time.perf_counter() - began
    with connection.transaction():
        find_instances(connection, decision, messages)
        refuse_second_answers(decision, messages)
        counts = decision.counts(len(messages))
        tallies = _tallies(interchanges, counts)
        ours = _claim(connection, interchanges, tallies)
        if not all(ours):
            kept = np.repeat(np.array(ours, np.bool_), [len(each.messages) for each in interchanges])
            interchanges = [each for each, mine in zip(interchanges, ours, strict=True) if mine]
            tallies = [each for each, mine in zip(tallies, ours, strict=True) if mine]
            messages = [message for interchange in interchanges for message in interchange.messages]
            decision, counts = decision.only(kept), counts[kept]
        hosts = _write(connection, decision, interchanges, messages, counts)
        check_epoch(connection, router.epoch, location_epoch)
    return Published(
        interchanges=len(interchanges),
        received=sum(map(sum, tallies)),
        published=sum(published for published, _, _ in tallies),
        unrouted=sum(unrouted for _, unrouted, _ in tallies),
        suspended=sum(suspended for _, _, suspended in tallies),
        references=sum(hosts.values()),
        hosts=frozenset(hosts),
        refused={messages[position].id: reason for position, reason in decision.refused.items()},
        match_seconds=match_seconds,
    )


def check_epoch(connection: psycopg.Connection, epoch: int, location_epoch: int | None = None) -> None:
    """Last step: from here to the commit nobody can change subscriptions, and nobody has since we matched."""
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [SUBSCRIPTION_LOCK])
    row = connection.execute("SELECT epoch, location_epoch FROM box").fetchone()
    if row is None or row[0] != epoch or location_epoch not in (None, row[1]):
        raise EpochMovedError


def _tallies(interchanges: Sequence[Interchange], counts: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """(published, unrouted, suspended) for each interchange."""
    routed = np.concatenate([[0], np.cumsum(counts > 0)])
    ends = np.cumsum([0, *(len(each.messages) for each in interchanges)])
    published = (routed[ends[1:]] - routed[ends[:-1]]).tolist()
    return [
        (wanted, len(each.messages) - wanted, len(each.failures))
        for each, wanted in zip(interchanges, published, strict=True)
    ]


def _claim(
    connection: psycopg.Connection, interchanges: Sequence[Interchange], tallies: Sequence[tuple[int, int, int]]
) -> list[bool]:
    """Which interchanges this transaction may publish: their source is in the ledger and their key is new."""
    listed = [(each, tally) for each, tally in zip(interchanges, tallies, strict=True) if each.sequence is not None]
    won: set[tuple[int | None, int]] = set()
    if listed:
        sequences = [each.sequence for each, _ in listed]
        living = {row[0] for row in connection.execute(statement("lock_intake"), {"sequence": sequences})}
        candidates = [(each, tally) for each, tally in listed if each.sequence in living]
        parameters = {
            "sequence": [each.sequence for each, _ in candidates],
            "range_start": [each.range_start for each, _ in candidates],
            "location": [each.location_id for each, _ in candidates],
            "received": [sum(tally) for _, tally in candidates],
            "published": [tally[0] for _, tally in candidates],
            "unrouted": [tally[1] for _, tally in candidates],
            "suspended": [tally[2] for _, tally in candidates],
            "range_end": [each.range_end for each, _ in candidates],
            "last": [each.last for each, _ in candidates],
        }
        won = {(row[0], row[1]) for row in connection.execute(statement("claim_publication"), parameters)}
    ours = []
    for each in interchanges:
        key = (each.sequence, each.range_start)
        ours.append(_replaced(connection, each) if each.sequence is None else key in won)
        won.discard(key)  # given twice in one call, it is published once
    return ours


def _replaced(connection: psycopg.Connection, interchange: Interchange) -> bool:
    """Take away the suspended reference in whose place the interchange is published; False if somebody did already."""
    if interchange.replaces is None:
        return True
    host, sequence = interchange.replaces
    return (
        connection.execute(statement("replace_suspended"), {"host": host, "sequence": sequence}).fetchone() is not None
    )


def _write(
    connection: psycopg.Connection,
    decision: Decision,
    interchanges: Sequence[Interchange],
    messages: Sequence[Message],
    counts: npt.NDArray[np.int64],
) -> Mapping[int, int]:
    """Messages and parts, then references, then the deltas, each into the log that is active now."""
    failed = [failure.message for each in interchanges for failure in each.failures]
    everything = [*messages, *failed]
    if not everything:
        return {}
    message_log, part_log = active_logs(connection)
    store(connection, everything)
    ids = uuid_array(message.id.bytes for message in everything)
    hosts = give(connection, decision, ids)
    _suspend(connection, decision, interchanges, counts)
    deltas = np.concatenate([np.maximum(counts, 1), ones(len(failed))])
    log_references(connection, "message", message_log, ids, deltas)
    parts = ids if all(len(message.parts) == 1 for message in everything) else part_ids(everything)
    log_references(connection, "part", part_log, parts, ones(len(parts)))
    return hosts


def _suspend(
    connection: psycopg.Connection,
    decision: Decision,
    interchanges: Sequence[Interchange],
    counts: npt.NDArray[np.int64],
) -> None:
    """What failed on the way in, and what nobody wants, waits at the host that received it."""
    rows: list[tuple[Any, ...]] = [
        (each.host_id, "receive", failure.message.id, storable(failure.reason))
        for each in interchanges
        for failure in each.failures
    ]
    if not counts.all():
        owners = list(
            chain.from_iterable([(each.host_id, message) for message in each.messages] for each in interchanges)
        )
        for position in np.flatnonzero(counts == 0).tolist():
            host, message = owners[position]
            rows.append((host, "unrouted", message.id, storable(decision.why_unrouted(position, message))))
    copy_tuples(
        connection,
        "COPY suspended (host_id, kind, message_id, reason) FROM STDIN (FORMAT BINARY)",
        ("int2", "text", "uuid", "text"),
        rows,
    )
