"""Publishing: one transaction that stores each message once and gives every matching subscription one reference.

What makes it happen exactly once is the order inside: the ledger rows are locked, the keys are inserted, and only the
publications whose key was new go on. The transaction has written, and so has its number, before it draws the sequence
numbers of references; `scan_start.py` relies on that.

There are two ways to write: COPY for many messages, and one call of the function `publish_few` for a few. Where nothing
in the MessageBox decides what is published, that call is the whole transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

import numpy as np
import numpy.typing as npt
import psycopg

from crossdock.errors import EpochMovedError, TerminalError, UnroutedError
from crossdock.message.message import MessageId
from crossdock.message.publication import Awaited, Express, Publication
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.cause import claim
from crossdock.messagebox.decide import (
    Decision,
    close_unused,
    decide,
    find_instances,
    kept_back,
    refuse_second_answers,
)
from crossdock.messagebox.lifeline import channel
from crossdock.messagebox.rows import Published, storable
from crossdock.messagebox.sought import correlation_hashes
from crossdock.messagebox.statement import array_text, statement
from crossdock.messagebox.track_write import origins
from crossdock.messagebox.write import Row, Writing, suspension, write_few, write_many
from crossdock.subscription.correlation import correlation_hash, shown_values
from crossdock.subscription.router import Epoch, Router

logger = logging.getLogger(__name__)

# Shared by publishers at the end of their transaction, exclusive for whoever changes subscriptions.
SUBSCRIPTION_LOCK = 0x0C05_5D0D
_EPOCH_MOVED = "CX001"


def publish(
    connection: psycopg.Connection,
    router: Router,
    publications: Sequence[Publication],
    *,
    by_copy: bool = True,
    location_epoch: UUID | None = None,
) -> Published:
    """Publish in the caller's connection; raises EpochMovedError, with nothing done, if the router is out of date.

    Raises UnroutedError, with nothing done, if an all-or-nothing publication cannot be routed whole.

    `by_copy`: we may write many messages by COPY, and else all go by the function for a few.
    `location_epoch`: the publications were read by these definitions of receive locations, and they must still hold.
    """
    work = _Work(router, publications, by_copy=by_copy)
    with epoch_held(), _transaction(connection, work):
        published = work.publish(connection, location_epoch)
    notify(connection, published.hosts)
    return published


def publish_within(
    connection: psycopg.Connection,
    router: Router,
    publications: Sequence[Publication],
    waiting: Sequence[Awaited],
    *,
    by_copy: bool = True,
) -> Published:
    """The same in the caller's transaction, and these wait from its commit on. The hosts are not woken."""
    with epoch_held():
        return _Work(router, publications, waiting, by_copy=by_copy).publish(connection, None)


def sought_by(router: Router, publications: Sequence[Publication]) -> Iterable[UUID]:
    """By what running instances may wait for these."""
    return correlation_hashes(router, Batch(each.messages for each in publications))


class _Work:
    """What is to be published, matched."""

    def __init__(
        self,
        router: Router,
        publications: Sequence[Publication],
        waiting: Sequence[Awaited] = (),
        *,
        by_copy: bool = True,
    ) -> None:
        self.publications = publications
        self.by_copy = by_copy
        self.waiting = waiting
        self.messages = Batch(each.messages for each in publications)
        began = time.perf_counter()
        self.decision = decide(router, self.messages)
        self.match_seconds = time.perf_counter() - began
        self.sought = correlation_hashes(router, self.messages)
        self.is_few = _everything(publications).is_few
        self.all_or_nothing = any(each.all_or_nothing for each in publications)

    @property
    def asks_first(self) -> bool:
        """Whether something in the MessageBox decides what is published."""
        return (
            bool(self.sought)
            or self.all_or_nothing
            or not all(isinstance(each.cause, Express) for each in self.publications)
        )

    def publish(self, connection: psycopg.Connection, location_epoch: UUID | None) -> Published:
        decision, messages, publications = self.decision, self.messages, self.publications
        epoch = decision.router.epoch
        find_instances(connection, decision, messages, self.sought)
        refuse_second_answers(decision, messages)
        counts = decision.counts(len(messages))
        if self.all_or_nothing and (reason := kept_back(decision, publications, counts)) is not None:
            check_epoch(connection, epoch, location_epoch)  # only by the subscriptions as they are now
            raise UnroutedError(reason)
        tallies = _tallies(publications, counts)
        ours = claim(connection, publications, tallies)
        if not all(ours):
            kept = np.repeat(np.array(ours, np.bool_), [len(each.messages) for each in publications])
            publications = [each for each, mine in zip(publications, ours, strict=True) if mine]
            tallies = [each for each, mine in zip(tallies, ours, strict=True) if mine]
            messages = Batch(each.messages for each in publications)
            before, decision, counts = decision, decision.only(kept), counts[kept]
            close_unused(connection, before, decision)
        reasons = decision.reasons(messages, counts)
        awaited, unanswered = _awaited(decision.router, publications, reasons)
        writing = _writing(decision, publications, counts, reasons)
        awaited += [_waits(decision.router, each) for each in self.waiting]
        writing.exceptions |= {"received": _received(publications, tallies), "awaited": awaited}
        if self.is_few or not self.by_copy:
            write_few(connection, writing, check=(SUBSCRIPTION_LOCK, epoch.token, location_epoch))
        else:
            write_many(connection, writing)
            check_epoch(connection, epoch, location_epoch)
        published = _published(writing, messages, tallies, counts, reasons)
        return replace(published, refused={**published.refused, **unanswered}, match_seconds=self.match_seconds)


@contextmanager
def _transaction(connection: psycopg.Connection, work: _Work) -> Iterator[None]:
    """A few messages with nothing to ask first are one statement, which is a transaction by itself.

    With something to ask first, statements go out without waiting for each answer.
    """
    if work.is_few and not work.asks_first:
        yield
    elif work.is_few and not work.all_or_nothing:
        with connection.pipeline(), connection.transaction():
            yield
    else:
        with connection.transaction():
            yield


def notify(connection: psycopg.Connection, hosts: Iterable[int]) -> None:
    """Wake the hosts after the commit; inside the transaction NOTIFY would serialise commits.

    What was committed must not look as if it had failed: a host that is not woken looks by itself.
    """
    channels = [channel(host) for host in hosts]
    if channels:
        try:
            connection.execute(statement("wake"), {"channel": array_text(channels)})
        except psycopg.Error as error:
            logger.debug("The hosts were not woken: %s", error)


def check_epoch(connection: psycopg.Connection, epoch: Epoch, location_epoch: UUID | None = None) -> None:
    """Last step: from here to the commit nobody can change subscriptions, and nobody has since we matched.

    The tokens are compared: after a restore the number may be the same while the subscriptions differ.
    """
    with epoch_held():
        checked = {"lock": SUBSCRIPTION_LOCK, "epoch": epoch.token, "location_epoch": location_epoch}
        connection.execute(statement("check_epoch"), checked)


@contextmanager
def epoch_held() -> Iterator[None]:
    """What fails because the epoch has moved is an EpochMovedError."""
    try:
        yield
    except psycopg.DatabaseError as error:
        if error.sqlstate == _EPOCH_MOVED:
            raise EpochMovedError from error
        raise


def _tallies(publications: Sequence[Publication], counts: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """(published, unrouted, suspended) for each publication."""
    tallies = []
    begin = 0
    for each in publications:
        end = begin + len(each.messages)
        wanted = int(np.count_nonzero(counts[begin:end]))
        tallies.append((wanted, end - begin - wanted, len(each.failures)))
        begin = end
    return tallies


def _published(
    writing: Writing,
    messages: Batch,
    tallies: Sequence[tuple[int, int, int]],
    counts: npt.NDArray[np.int64],
    reasons: Mapping[int, TerminalError],
) -> Published:
    decision, hosts = writing.decision, writing.queued.hosts(writing.decision)
    return Published(
        publications=len(tallies),
        received=sum(map(sum, tallies)),
        published=sum(published for published, _, _ in tallies),
        unrouted=sum(unrouted for _, unrouted, _ in tallies),
        suspended=sum(suspended for _, _, suspended in tallies),
        references=sum(hosts.values()),
        hosts=frozenset(hosts),
        refused={messages[position].id: str(why) for position, why in decision.refused.items()},
        reference_counts=counts.tolist(),
        held=() if writing.queued.started.all() else decision.held(len(messages)).tolist(),
        reasons={messages[position].id: str(reason) for position, reason in reasons.items()},
    )


def _everything(publications: Sequence[Publication]) -> Batch:
    """The messages of all, and behind them those that failed."""
    failed = [[failure.message for failure in each.failures] for each in publications]
    return Batch([*(each.messages for each in publications), *failed])


def _writing(
    decision: Decision,
    publications: Sequence[Publication],
    counts: npt.NDArray[np.int64],
    reasons: Mapping[int, TerminalError],
) -> Writing:
    """Messages and references. What failed or nobody wants has one reference: it is suspended."""
    everything = _everything(publications)
    failed = np.ones(len(everything) - len(counts), np.int64)
    writing = Writing(everything, np.concatenate([np.maximum(counts, 1), failed]), decision, origins(publications))
    writing.exceptions["suspended"] += _suspended(publications, reasons)
    return writing


def _suspended(publications: Sequence[Publication], reasons: Mapping[int, TerminalError]) -> Iterator[Row]:
    """What failed on the way in, and what nobody wants, waits at the host that received it."""
    position = 0
    for each in publications:
        for failure in each.failures:
            yield suspension(each.host_id, "receive", failure.code, failure.message.id, storable(failure.reason))
        if reasons:
            for place, message in enumerate(each.messages, position):
                if (why := reasons.get(place)) is not None:
                    yield suspension(each.host_id, "unrouted", why.code, message.id, storable(str(why)))
        position += len(each.messages)


def _received(publications: Sequence[Publication], tallies: Sequence[tuple[int, int, int]]) -> list[Row]:
    """What a location received without a source in the ledger."""
    return [
        {"location": each.cause.location_id, "published": tally[0], "unrouted": tally[1], "suspended": tally[2]}
        for each, tally in zip(publications, tallies, strict=True)
        if isinstance(each.cause, Express) and each.cause.location_id is not None
    ]


def _awaited(
    router: Router, publications: Sequence[Publication], reasons: Mapping[int, TerminalError]
) -> tuple[list[Row], dict[MessageId, str]]:
    """Who waits for responses; and the requests that nobody was given, and why."""
    waiting: list[Row] = []
    unanswered: dict[MessageId, str] = {}
    position = 0
    for each in publications:
        if each.awaits is not None:
            for place, message in enumerate(each.messages, position):
                if place in reasons:
                    unanswered[message.id] = str(reasons[place])
                else:
                    waiting.append(_waits(router, each.awaits))
        position += len(each.messages)
    return waiting, unanswered


def _waits(router: Router, awaits: Awaited) -> Row:
    properties = tuple(sorted(awaits.values))
    correlation = (
        router.correlation(properties)
        if awaits.name is None
        else router.correlation_of(awaits.service_id, awaits.name, properties)
    )
    if correlation is None:  # whoever waits has made it known since this router was loaded
        raise EpochMovedError
    return {
        "instance_id": str(awaits.id),
        "service_id": awaits.service_id,
        "host_id": awaits.host_id,
        "correlation_id": correlation,
        "hash": str(correlation_hash(correlation, properties, awaits.values, case_sensitive=router.case_sensitive)),
        "value": shown_values(properties, awaits.values),
        "bound_to": awaits.bound_to,
    }
