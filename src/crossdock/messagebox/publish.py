"""Publishing: one transaction that stores each message once and gives every matching subscription one reference.

What makes it happen exactly once is the order inside: the ledger rows are locked, the keys are inserted, and only the
interchanges whose key was new go on. The transaction has written, and so has its number, before it draws the sequence
numbers of references; `marks.py` relies on that.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from crossdock.message.message import MessageId
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.copy import copy_tuples, in_pipeline
from crossdock.messagebox.decide import (
    Decision,
    correlation_hashes,
    decide,
    find_instances,
    give,
    kept_back,
    refuse_second_answers,
)
from crossdock.messagebox.lifeline import channel
from crossdock.messagebox.rows import Published, storable
from crossdock.messagebox.statement import array_text, host_statement, statement
from crossdock.messagebox.store import few_rows, store
from crossdock.receive.interchange import Awaited, Interchange, Settled
from crossdock.subscription.correlation import correlation_hash, shown_values
from crossdock.subscription.router import Router

logger = logging.getLogger(__name__)

# Shared by publishers at the end of their transaction, exclusive for whoever changes subscriptions.
SUBSCRIPTION_LOCK = 0x0C05_5D0D


_EPOCH_MOVED = "CX001"


class EpochMovedError(Exception):
    """Subscriptions, or receive locations, changed while a batch was being published: nothing was done."""


class UnroutedError(Exception):
    """Nobody wants one of the messages of a standard interchange: nothing was done."""


def publish(
    connection: psycopg.Connection,
    router: Router,
    interchanges: Sequence[Interchange],
    *,
    location_epoch: int | None = None,
) -> Published:
    """Publish in the caller's connection; raises EpochMovedError, with nothing done, if the router is out of date.

    Raises UnroutedError, with nothing done, if a standard interchange cannot be routed whole.

    `location_epoch`: the interchanges were read by these definitions of receive locations, and they must still hold.
    """
    messages = Batch(each.messages for each in interchanges)
    began = time.perf_counter()
    decision = decide(router, messages)
    match_seconds = time.perf_counter() - began
    if _is_plain(interchanges, messages, decision):
        published = _publish_plain(connection, decision, messages, location_epoch)
        return replace(published, interchanges=len(interchanges), match_seconds=match_seconds)
    standard = any(each.standard for each in interchanges)
    together = connection.pipeline() if not standard and _everything(interchanges).is_few else nullcontext()
    with _epoch_held(), together, connection.transaction():
        find_instances(connection, decision, messages)
        refuse_second_answers(decision, messages)
        counts = decision.counts(len(messages))
        if standard and (reason := kept_back(decision, interchanges, counts)) is not None:
            check_epoch(connection, router.epoch, location_epoch)  # only by the subscriptions as they are now
            raise UnroutedError(reason)
        tallies = _tallies(interchanges, counts)
        ours = _claim(connection, interchanges, tallies)
        if not all(ours):
            kept = np.repeat(np.array(ours, np.bool_), [len(each.messages) for each in interchanges])
            interchanges = [each for each, mine in zip(interchanges, ours, strict=True) if mine]
            tallies = [each for each, mine in zip(tallies, ours, strict=True) if mine]
            messages = Batch(each.messages for each in interchanges)
            decision, counts = decision.only(kept), counts[kept]
        hosts = _write(connection, decision, interchanges, counts)
        _count_express(connection, interchanges, tallies)
        unanswered = _await_responses(connection, decision, interchanges, counts)
        check_epoch(connection, router.epoch, location_epoch)
    notify(connection, hosts)
    return Published(
        interchanges=len(interchanges),
        received=sum(map(sum, tallies)),
        published=sum(published for published, _, _ in tallies),
        unrouted=sum(unrouted for _, unrouted, _ in tallies),
        suspended=sum(suspended for _, _, suspended in tallies),
        references=sum(hosts.values()),
        hosts=frozenset(hosts),
        refused={**{messages[position].id: reason for position, reason in decision.refused.items()}, **unanswered},
        given=counts.tolist(),
        match_seconds=match_seconds,
    )


def _is_plain(interchanges: Sequence[Interchange], messages: Batch, decision: Decision) -> bool:
    """Few and small messages of running code, and each goes to queues and nowhere else."""
    router, table = decision.router, decision.router.table
    return (
        messages.is_few
        and all(each == Interchange(None, None, each.host_id, each.messages) for each in interchanges)
        and not decision.refusals
        and not correlation_hashes(router, messages)
        and bool(decision.counts(len(messages)).all())
        and bool(table.started[table.rows(decision.subscriptions)].all())
        and not messages.requests()
    )


def _publish_plain(
    connection: psycopg.Connection,
    decision: Decision,
    messages: Batch,
    location_epoch: int | None,
) -> Published:
    """In one round trip, which is a transaction: waiting for answers takes longer than anything else here."""
    table = decision.router.table
    rows = table.rows(decision.subscriptions)
    hosts = table.host_id[rows].tolist()
    parameters = {
        **few_rows(messages),
        "host": array_text(hosts),
        "line": array_text(table.line[rows].tolist()),
        "priority": array_text(table.priority[rows].tolist()),
        "reference": array_text([messages[position].id for position in decision.positions.tolist()]),
        "subscription": array_text(table.id[rows].tolist()),
        "service": array_text(table.service_id[rows].tolist()),
        "lock": SUBSCRIPTION_LOCK,
        "epoch": decision.router.epoch,
        "location_epoch": location_epoch,
    }
    with _epoch_held():
        connection.execute(statement("publish_few"), parameters)
    notify(connection, set(hosts))
    return Published(
        received=len(messages),
        published=len(messages),
        references=len(hosts),
        hosts=frozenset(hosts),
        given=decision.counts(len(messages)).tolist(),
    )


def notify(connection: psycopg.Connection, hosts: Iterable[int]) -> None:
    """Wake the hosts after the commit; inside the transaction NOTIFY would serialise commits.

    What was committed must not look as if it had failed: a host that is not woken looks by itself.
    """
    channels = [channel(host) for host in hosts]
    if channels:
        try:
            connection.execute(
                "SELECT pg_notify(channel, '') FROM unnest(%s::text[]) AS channel", [array_text(channels)]
            )
        except psycopg.Error as error:
            logger.debug("The hosts were not woken: %s", error)


def check_epoch(connection: psycopg.Connection, epoch: int, location_epoch: int | None = None) -> None:
    """Last step: from here to the commit nobody can change subscriptions, and nobody has since we matched."""
    if in_pipeline(connection):  # it fails by itself, when the commit is answered
        connection.execute("SELECT check_epoch(%s, %s, %s)", [SUBSCRIPTION_LOCK, epoch, location_epoch])
        return
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [SUBSCRIPTION_LOCK])
    row = connection.execute("SELECT epoch, location_epoch FROM box").fetchone()
    if row is None or row[0] != epoch or location_epoch not in (None, row[1]):
        raise EpochMovedError


@contextmanager
def _epoch_held() -> Iterator[None]:
    try:
        yield
    except psycopg.DatabaseError as error:
        if error.sqlstate == _EPOCH_MOVED:
            raise EpochMovedError from error
        raise


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
    taken = _settled(connection, interchanges)
    ours = []
    for each in interchanges:
        key = (each.sequence, each.range_start)
        if each.settles is not None:
            ours.append(each.settles in taken)
            taken.discard(each.settles)
        else:
            ours.append(_replaced(connection, each) if each.sequence is None else key in won)
        won.discard(key)  # given twice in one call, it is published once
    return ours


def _settled(connection: psycopg.Connection, interchanges: Sequence[Interchange]) -> set[Settled]:
    """Take away the claimed references in whose place something is published; gives those that were still ours."""
    wanted: defaultdict[tuple[int, int, bool], list[Settled]] = defaultdict(list)
    for each in interchanges:
        if (settles := each.settles) is not None:
            wanted[settles.host_id, settles.instance, settles.delivered].append(settles)
    taken: set[Settled] = set()
    for (host, instance, delivered), mine in wanted.items():
        sequences = [each.sequence for each in mine]
        parameters = {"host": host, "instance": instance, "sequence": sequences, "delivered": delivered}
        row = connection.execute(host_statement("settle_published", host), parameters).fetchone()
        found = () if row is None else row[0] or ()
        taken.update(each for each in mine if each.sequence in found)
    return taken


def _replaced(connection: psycopg.Connection, interchange: Interchange) -> bool:
    """Take away the suspended reference in whose place the interchange is published; False if somebody did already."""
    if interchange.replaces is None:
        return True
    host, sequence = interchange.replaces
    return (
        connection.execute(statement("replace_suspended"), {"host": host, "sequence": sequence}).fetchone() is not None
    )


def _count_express(
    connection: psycopg.Connection, interchanges: Sequence[Interchange], tallies: Sequence[tuple[int, int, int]]
) -> None:
    """What a location received without a source in the ledger."""
    received = [
        (each.location_id, tally)
        for each, tally in zip(interchanges, tallies, strict=True)
        if each.sequence is None and each.location_id is not None and each.replaces is None
    ]
    if received:
        parameters = {
            "location": [location for location, _ in received],
            "received": [sum(tally) for _, tally in received],
            "published": [tally[0] for _, tally in received],
            "unrouted": [tally[1] for _, tally in received],
            "suspended": [tally[2] for _, tally in received],
        }
        connection.execute(statement("count_express"), parameters)


def _await_responses(
    connection: psycopg.Connection,
    decision: Decision,
    interchanges: Sequence[Interchange],
    counts: npt.NDArray[np.int64],
) -> dict[MessageId, str]:
    """Subscribe whoever waits for responses; gives the requests that nobody was given, and why."""
    unanswered = {}
    waiting = []
    position = 0
    for each in interchanges:
        for message in each.messages if each.awaits is not None else ():
            if counts[position] == 0:
                unanswered[message.id] = decision.why_unrouted(position, message)
            elif each.awaits is not None:
                waiting.append(_awaited(decision.router, each.awaits))
        position += len(each.messages)
    if waiting:
        with connection.cursor() as cursor:
            cursor.executemany(statement("await_response"), waiting)
    return unanswered


def _awaited(router: Router, awaits: Awaited) -> dict[str, Any]:
    properties = tuple(sorted(awaits.values))
    correlation = next((number for number, known in router.correlations.items() if known == properties), None)
    if correlation is None:  # whoever waits has made it known since this router was loaded
        raise EpochMovedError
    return {
        "instance": awaits.id,
        "service": awaits.service_id,
        "host": awaits.host_id,
        "correlation": correlation,
        "hash": correlation_hash(correlation, properties, awaits.values, case_sensitive=router.case_sensitive),
        "value": shown_values(properties, awaits.values),
        "bound_to": awaits.bound_to,
    }


def _write(
    connection: psycopg.Connection,
    decision: Decision,
    interchanges: Sequence[Interchange],
    counts: npt.NDArray[np.int64],
) -> Mapping[int, int]:
    """Messages and parts, then references. What failed or nobody wants has one: it is suspended."""
    everything = _everything(interchanges)
    if not everything:
        return {}
    failed = np.ones(len(everything) - len(counts), np.int64)
    store(connection, everything, np.concatenate([np.maximum(counts, 1), failed]))
    hosts = give(connection, decision, everything.ids)
    _suspend(connection, decision, interchanges, counts)
    return hosts


def _everything(interchanges: Sequence[Interchange]) -> Batch:
    """The messages of all, and behind them those that failed."""
    failed = [[failure.message for failure in each.failures] for each in interchanges]
    return Batch([*(each.messages for each in interchanges), *failed])


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
        messages = Batch(each.messages for each in interchanges)
        owners = np.repeat([each.host_id for each in interchanges], [len(each.messages) for each in interchanges])
        for position in np.flatnonzero(counts == 0).tolist():
            message = messages[position]
            reason = storable(decision.why_unrouted(position, message))
            rows.append((int(owners[position]), "unrouted", message.id, reason))
    copy_tuples(
        connection,
        "COPY suspended (host_id, kind, message_id, reason) FROM STDIN (FORMAT BINARY)",
        ("int2", "text", "uuid", "text"),
        rows,
    )
