"""Records what came of deliveries: most of it together, in one thread, as many as there are."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from queue import SimpleQueue
from threading import Event
from typing import assert_never

from crossdock.errors import CrossdockError, TransientError
from crossdock.host.outcome import Answer, Complete, Outcome, Postpone, Retry, Suspend
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Reference
from crossdock.receive.interchange import Interchange, Settled

_BATCHES = 200
_RECONNECT_SECONDS = 0.5
_UNPUBLISHED = "What came of it could not be published before this process had to stop."

logger = logging.getLogger(__name__)

Delivered = tuple[Reference, Outcome]
_Told = tuple[Reference, Outcome | None]


@dataclass(slots=True)
class _Settlement:
    """What is to be recorded for one instance. `claims`: an answer may be lost, and then it is recorded again."""

    completed: list[int] = field(default_factory=list)
    retried: list[tuple[int, datetime, str]] = field(default_factory=list)
    postponed: list[tuple[int, datetime, str]] = field(default_factory=list)
    suspended: list[tuple[int, str]] = field(default_factory=list)
    untried: list[int] = field(default_factory=list)
    claims: dict[int, int] = field(default_factory=dict)


class Settler:
    """`run` is for a thread of its own, until `end`. `settled` hears how many references are done with.

    `publish` is done when what it was given is committed.
    """

    def __init__(
        self,
        agent: Agent,
        host_id: int,
        clock: Callable[[], datetime],
        stopping: Event,
        settled: Callable[[int], None],
        publish: Callable[[Interchange], object],
    ) -> None:
        self._agent = agent
        self._host_id = host_id
        self._clock = clock
        self._stopping = stopping
        self._settled = settled
        self._publish_now = publish
        self._outcomes: SimpleQueue[tuple[int, Sequence[_Told]] | None] = SimpleQueue()

    def put(self, instance: int, delivered: Sequence[Delivered]) -> None:
        """To be recorded soon."""
        self._outcomes.put((instance, delivered))

    def give_back(self, instance: int, references: Sequence[Reference]) -> None:
        """To go back to their queue soon: they have not been tried."""
        self._outcomes.put((instance, [(reference, None) for reference in references]))

    def end(self) -> None:
        """There will be no more."""
        self._outcomes.put(None)

    def run(self) -> None:
        while (outcomes := self._next()) is not None:
            settlements: defaultdict[int, _Settlement] = defaultdict(_Settlement)
            for instance, delivered in outcomes:
                for reference, outcome in delivered:
                    _add(settlements[instance], reference, outcome)
            for instance, settlement in settlements.items():
                self.persist(partial(self._record, instance, settlement))
            self._settled(sum(len(delivered) for _, delivered in outcomes))

    def publish(self, instance: int, reference: Reference, outcome: Outcome) -> Outcome | None:
        """Publish what settles the reference by itself; gives what is left to be recorded, if anything."""
        match outcome:
            case Answer(messages, stops):
                return self._publish(instance, reference, messages, delivered=True, stops=stops)
            case Suspend(reason, stops, Message() as report):
                if self._wanted(report):
                    return self._publish(instance, reference, (report,), delivered=False, stops=stops)
                return Suspend(reason, stops)
            case _:
                return outcome

    def persist(self, record: Callable[[], None]) -> bool:
        """What was delivered must be recorded: keep trying while PostgreSQL is away, unless we have to stop."""
        while True:
            try:
                record()
                return True
            except TransientError as error:
                if self._stopping.is_set():
                    logger.warning("An outcome is not recorded, so the message will be delivered again: %s", error)
                    return False
                self._stopping.wait(_RECONNECT_SECONDS)

    def _next(self) -> list[tuple[int, Sequence[_Told]]] | None:
        """Wait for one, then take what is there; None when there will be no more."""
        first = self._outcomes.get()
        if first is None:
            return None
        found = [first]
        while len(found) < _BATCHES and not self._outcomes.empty():
            following = self._outcomes.get()
            if following is None:
                self._outcomes.put(None)
                break
            found.append(following)
        return found

    def _record(self, instance: int, settlement: _Settlement) -> None:
        now, claims = self._clock(), settlement.claims
        self._agent.complete(self._host_id, instance, settlement.completed, now=now)
        self._agent.retry(self._host_id, instance, settlement.retried, now=now, claims=claims)
        self._agent.postpone(self._host_id, instance, settlement.postponed, now=now, claims=claims)
        self._agent.suspend(self._host_id, instance, settlement.suspended, now=now, claims=claims)
        self._agent.give_back(self._host_id, instance, settlement.untried, claims=claims)

    def _wanted(self, message: Message) -> bool:
        """Whether anybody subscribes to it; if we cannot know now, nobody does."""
        try:
            return bool(self._agent.router().route(message.context.promoted))
        except Exception as error:
            logger.warning("Whether anybody wants an error report is not known: %s", error)
            return False

    def _publish(
        self, instance: int, reference: Reference, messages: tuple[Message, ...], *, delivered: bool, stops: bool
    ) -> Outcome | None:
        settles = Settled(self._host_id, instance, reference.sequence, delivered)
        interchange = Interchange(None, None, self._host_id, messages, settles=settles)
        try:
            if not self.persist(lambda: self._published(interchange)):
                return Retry(self._clock(), _UNPUBLISHED)  # in a line nothing may come before it
        except CrossdockError as error:
            return Suspend(f"What came of it cannot be published: {error}", stops)
        except Exception as error:
            logger.exception("What came of a delivery cannot be published")
            return Suspend(f"What came of it cannot be published: {type(error).__name__}: {error}", stops)
        return None

    def _published(self, interchange: Interchange) -> None:
        self._publish_now(interchange)


def _add(settlement: _Settlement, reference: Reference, outcome: Outcome | None) -> None:
    settlement.claims[reference.sequence] = reference.claim
    match outcome:
        case None:
            settlement.untried.append(reference.sequence)
        case Complete():
            settlement.completed.append(reference.sequence)
        case Retry(at, reason):
            settlement.retried.append((reference.sequence, at, reason))
        case Postpone(at, reason):
            settlement.postponed.append((reference.sequence, at, reason))
        case Suspend(reason):
            settlement.suspended.append((reference.sequence, reason))
        case Answer():
            raise AssertionError("an answer is published, not recorded")
        case _:
            assert_never(outcome)
