"""Delivers what was claimed to its service, and gives what is left to be recorded of it.

A service may raise anything, return anything or take long; none of that reaches the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from threading import Event

from crossdock.errors import TransientError
from crossdock.host.careful import Careful, too_deadly
from crossdock.host.flow import Share
from crossdock.host.flows import Services
from crossdock.host.outcome import (
    Answer,
    BatchService,
    Outcome,
    Postpone,
    RepeatingService,
    Retry,
    Service,
    StoppingService,
    Suspend,
)
from crossdock.host.settler import Delivered, Settler
from crossdock.messagebox.rows import Reference

_RECONNECT_SECONDS = 0.5
_GONE = "The send port is no longer deployed."

logger = logging.getLogger(__name__)


class Delivery:
    """Threads share it. `settled` hears of references that nothing is left to be recorded of."""

    def __init__(
        self,
        services: Services,
        settler: Settler,
        careful: Careful,
        *,
        clock: Callable[[], datetime],
        stopping: Event,
        settled: Callable[[int], None],
    ) -> None:
        self._services = services
        self._settler = settler
        self._careful = careful
        self._clock = clock
        self._stopping = stopping
        self._settled = settled

    def one(self, instance: int, reference: Reference) -> Outcome | None:
        """What is left to be recorded; None if it is settled already."""
        if not reference.deaths:
            return self._now(instance, reference)
        if (reason := too_deadly(reference)) is not None:
            service = self._service_or_none(reference.service_id)
            return Suspend(reason, stops=isinstance(service, StoppingService) and service.stops_on_failure)
        with self._careful.noted(instance, reference) as ours:
            if ours is None:  # in a line nothing may come before it
                return Postpone(self._clock(), "The host instance stops.")
            return self._now(instance, reference) if ours else None

    def batch(self, share: Share) -> list[Delivered] | None:
        """All of it at once, where the service likes that."""
        service = self._service_or_none(share.references[0].service_id)
        if not isinstance(service, BatchService) or not service.batches:
            return None
        references = share.take_all()
        try:
            given = [(each.message, each.attempt) for each in references]
            outcomes = service.deliver_batch(given, now=self._clock())
            if len(outcomes) != len(references):
                raise ValueError(f"{len(outcomes)} outcomes for {len(references)} messages")
        except Exception as error:
            logger.exception("A delivery failed in an unexpected way")
            outcomes = [Suspend(f"Unexpected {type(error).__name__}: {error}")] * len(references)
        settled = []
        for reference, outcome in zip(references, outcomes, strict=True):
            left = self._settler.publish(share.instance, reference, outcome)
            if left is None:
                self._settled(1)
            else:
                settled.append((reference, left))
        return settled

    def _now(self, instance: int, reference: Reference) -> Outcome | None:
        try:
            service = self._service(reference.service_id)
            if service is None:
                return Suspend(_GONE)
            deliver = service.deliver
            if reference.deaths and isinstance(service, RepeatingService):
                deliver = service.deliver_again
            outcome = deliver(reference.message, attempt=reference.attempt, now=self._clock())
            if not isinstance(outcome, Outcome):
                raise TypeError(f"{outcome!r} is no outcome")
        except TransientError as error:
            return Retry(self._clock(), str(error))
        except Exception as error:
            logger.exception("A delivery failed in an unexpected way")
            return Suspend(f"Unexpected {type(error).__name__}: {error}")
        if isinstance(outcome, Answer | Suspend):
            return self._settler.publish(instance, reference, outcome)
        return outcome

    def _service(self, service_id: int) -> Service | None:
        """Looking it up may take the MessageBox, which may be away."""
        while True:
            try:
                return self._services(service_id)
            except TransientError:
                if self._stopping.wait(_RECONNECT_SECONDS):
                    raise

    def _service_or_none(self, service_id: int) -> Service | None:
        try:
            return self._service(service_id)
        except TransientError:
            return None
