"""Records what came of deliveries: most of it together, in one thread, as many as there are."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from queue import SimpleQueue
from typing import assert_never

from crossdock.errors import AnswerError, CrossdockError, TransientError, UnroutedError
from crossdock.host.environment import HostEnvironment
from crossdock.host.outcome import Answer, Complete, Outcome, Postpone, Retry, Suspend
from crossdock.host.publisher import Publisher
from crossdock.host.token import token_in, told_of
from crossdock.message.message import Message
from crossdock.message.property import TOKEN
from crossdock.message.publication import Publication, Settles
from crossdock.messagebox import settle
from crossdock.messagebox.rows import Reference
from crossdock.subscription.router import Subscription

_UNPUBLISHED = "What came of it could not be published before this process had to stop."

logger = logging.getLogger(__name__)

Delivered = tuple[Reference, Outcome]
Told = tuple[Reference, Outcome | None]
_Batch = tuple[int, Sequence[Told], float]  # with when it was told, by our monotonic clock


class Settler:
    """`run` is for a thread of its own, until `end`."""

    def __init__(self, host: HostEnvironment, publisher: Publisher) -> None:
        self._host = host
        self._agent = host.agent
        self._host_id = host.host_id
        self._stopping = host.stopping
        self._publisher = publisher
        self._outcomes: SimpleQueue[_Batch | None] = SimpleQueue()

    def put(self, instance: int, delivered: Sequence[Delivered]) -> None:
        """To be recorded soon."""
        self._outcomes.put((instance, delivered, time.monotonic()))

    def give_back(self, instance: int, references: Sequence[Reference]) -> None:
        """To go back to their queue soon: they have not been tried."""
        self._outcomes.put((instance, [(reference, None) for reference in references], time.monotonic()))

    def end(self) -> None:
        """There will be no more."""
        self._outcomes.put(None)

    def run(self) -> None:
        while (outcomes := self._next()) is not None:
            batches: defaultdict[int, list[_Batch]] = defaultdict(list)
            for batch in outcomes:
                batches[batch[0]].append(batch)
            for instance, told in batches.items():
                self._record(instance, told)

    def publish(self, instance: int, reference: Reference, outcome: Outcome) -> Outcome | None:
        """Publish what settles the reference by itself; gives what is left to be recorded, if anything."""
        match outcome:
            case Answer(messages, stops):
                return self._publish(instance, reference, messages, delivered=True, stops=stops)
            case Suspend(report=Message() as report):
                answers = TOKEN in report.context.promoted  # an orchestration waits for it, if it still does
                if not (wanting := self._wanting(report)) and not answers:
                    return replace(outcome, report=None)
                try:
                    left = self._publish(
                        instance, reference, (report,), delivered=False, stops=outcome.stops, wanted=answers
                    )
                except UnroutedError:
                    return replace(outcome, report=None)
                if left is None and not any(each.two_way for each in wanting):  # else one of them may still answer
                    self.gave_up([reference])
                return left
            case _:
                return outcome

    def gave_up(self, references: Sequence[Reference]) -> None:
        """These have failed for good, and that is committed: tell whoever waits for the answer of a two-way port."""
        asked = [(each.subscription_id, token) for each in references if (token := token_in(each.message.context))]
        if not asked:
            return
        try:
            known = self._agent.router().subscriptions
            gone = [told_of(token) for number, token in asked if number in known and known[number].two_way]
            self._agent.queues.tell_given_up(gone)
        except CrossdockError as error:
            logger.debug("Who waits for a response is not told that there is none: %s", error)

    def persist(self, record: Callable[[], object]) -> bool:
        """What was delivered must be recorded: keep trying while PostgreSQL is away, unless we have to stop."""
        while True:
            try:
                record()
                return True
            except TransientError as error:
                if self._stopping.is_set():
                    logger.warning("An outcome is not recorded, so the message will be delivered again: %s", error)
                    return False
                self._agent.outage.waits(error)
                self._stopping.wait(self._host.limits.reconnect_seconds)

    def _next(self) -> list[_Batch] | None:
        """Wait for one, then take what is there; None when there will be no more."""
        first = self._outcomes.get()
        if first is None:
            return None
        found, references = [first], len(first[1])
        while references < self._host.limits.settled_together and not self._outcomes.empty():
            following = self._outcomes.get()
            if following is None:
                self._outcomes.put(None)
                break
            found.append(following)
            references += len(following[1])
        return found

    def settle_leased(self, instance: int, told: Sequence[Told], lease: Reference) -> None:
        """Record it now, and give up the lease that this reference was claimed under."""
        self._record(instance, [(instance, told, time.monotonic())], lease)

    def _record(self, instance: int, batches: Sequence[_Batch], lease: Reference | None = None) -> None:
        told = [(each, outcome, told_at) for _, delivered, told_at in batches for each, outcome in delivered]

        def record() -> None:
            self._agent.settle(instance, [_settlement(*each) for each in told], lease=lease)

        try:
            if self.persist(record):
                self.gave_up([reference for reference, outcome, _ in told if isinstance(outcome, Suspend)])
        except Exception as error:
            self._record_apart(instance, batches, error, lease)
            return
        self._host.in_hand.release(len(told))

    def _record_apart(
        self, instance: int, batches: Sequence[_Batch], error: Exception, lease: Reference | None
    ) -> None:
        """What the MessageBox refuses is found by halving; that one stays claimed, and is delivered again later."""
        self._host.refused(error, "recording what came of a delivery")
        each = [(number, [one], told_at) for number, delivered, told_at in batches for one in delivered]
        if lease is not None or len(each) == 1:  # in an ordered service nothing may come before it
            self._host.in_hand.release(len(each))
            return
        middle = len(each) // 2
        self._record(instance, each[:middle])
        self._record(instance, each[middle:])

    def _wanting(self, message: Message) -> Sequence[Subscription]:
        """Who subscribes to it and may be given it; if we cannot know now, nobody does."""
        try:
            wanting = self._agent.router().route(message.context.promoted)
            return [each for each in wanting if message.context.labels <= each.labels]
        except Exception as error:
            logger.warning("Whether anybody wants an error report is not known: %s", error)
            return []

    def _publish(
        self,
        instance: int,
        reference: Reference,
        messages: tuple[Message, ...],
        *,
        delivered: bool,
        stops: bool,
        wanted: bool = False,
    ) -> Outcome | None:
        """Where it has to be `wanted`, UnroutedError: nobody is given it."""
        settles = Settles(self._host_id, instance, reference.sequence, delivered)
        service = reference.service_id
        publication = Publication(self._host_id, messages, cause=settles, all_or_nothing=wanted, service_id=service)
        try:
            if not self.persist(lambda: self._publisher.publish(publication)):
                return Retry(timedelta(0), _UNPUBLISHED)  # in a subqueue nothing may come before it
        except CrossdockError as error:
            if wanted and isinstance(error, UnroutedError):
                raise
            return Suspend.because(AnswerError(f"What came of it cannot be published: {error}"), stops=stops)
        except Exception as error:
            logger.exception("What came of a delivery cannot be published")
            told = f"{type(error).__name__}: {error}"
            return Suspend.because(AnswerError(f"What came of it cannot be published: {told}"), stops=stops)
        if delivered:
            self._agent.troubles.works("service", reference.service_id)
        return None


def _until(due: float) -> timedelta:
    """How long it is from now, by our monotonic clock."""
    return timedelta(seconds=max(due - time.monotonic(), 0))


def _settlement(reference: Reference, outcome: Outcome | None, told_at: float) -> settle.Settlement:
    """What is to be recorded of a delivery, None for one that was not tried.

    `told_at` is a time by our monotonic clock: PostgreSQL may have been away since, and nothing waits longer for that.
    """
    match outcome:
        case Complete():
            return settle.Complete(reference)
        case None:
            return settle.GiveBack(reference)
        case Retry(after, reason):
            return settle.Retry(reference, _until(told_at + after.total_seconds()), reason)
        case Postpone(after, reason):
            return settle.Retry(reference, _until(told_at + after.total_seconds()), reason, tried=False)
        case Suspend(reason, stops, code=code):
            return settle.Suspend(reference, reason, stops=stops, code=code)
        case Answer():
            raise AssertionError("an answer is published, not recorded")
        case _:
            assert_never(outcome)
