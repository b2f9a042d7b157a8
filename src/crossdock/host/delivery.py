"""Delivers a slice to its service, and hands what came of it to the settler.

A service may raise anything, return anything or take long; none of that reaches the worker.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from typing import Any

from crossdock.errors import PortGoneError, TerminalError, TransientError, UnexpectedError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.host.backlog import Slice
from crossdock.host.environment import HostEnvironment
from crossdock.host.outcome import (
    Answer,
    BatchService,
    Complete,
    Outcome,
    Postpone,
    RepeatingService,
    Retry,
    Service,
    StoppingService,
    Suspend,
)
from crossdock.host.quarantine import Quarantine
from crossdock.host.settler import Delivered, Settler
from crossdock.message.message import Message
from crossdock.message.trace import trace_of, with_trace
from crossdock.messagebox.rows import Reference
from crossdock.tracing import Span

_AT_ONCE = timedelta(0)
_Deliver = Callable[..., Outcome]

_NO_SPAN: AbstractContextManager[Span | None] = nullcontext()
_GONE = "The send port is no longer deployed."

logger = logging.getLogger(__name__)


class Delivery:
    """Threads share it."""

    def __init__(self, host: HostEnvironment, settler: Settler, quarantine: Quarantine) -> None:
        self._host = host
        self._stopping = host.stopping
        self._settler = settler
        self._quarantine = quarantine

    def slice(self, slice_: Slice) -> int:
        """Deliver what the time allows, or all of it at once where the service takes batches; gives how many."""
        if slice_.backlog.batched and not slice_.suspect:
            service = self._service_or_none(slice_.references[0].service_id)
            if isinstance(service, BatchService) and service.batches:
                return self._batch(service, slice_)
        latest = slice_.began + self._host.limits.longest_slice_seconds
        late_seconds = self._host.limits.waiting_pace if slice_.backlog.shared else math.inf
        delivered: list[Delivered] = []
        count, now = 0, slice_.began
        for reference in slice_.remaining:
            outcome = self.one(slice_.host_instance, reference)
            count += 1
            if outcome is not None:
                delivered.append((reference, outcome))
            before, now = now, time.monotonic()
            if now > latest or now - before > late_seconds or self._stopping.is_set():
                slice_.late = now - before > late_seconds
                break
        self._settle(slice_, delivered, count)
        return count

    def one(self, host_instance: int, reference: Reference) -> Outcome | None:
        """Deliver one; gives what is left to be recorded, None if it is settled already."""
        if reference.undeliverable is not None:
            return self._without_message(reference, reference.undeliverable)
        if not reference.deaths:
            return self._now(host_instance, reference)
        if (deadly := self._quarantine.too_deadly(reference)) is not None:
            return Suspend.because(deadly, stops=self._stops(reference))
        with self._quarantine.noted(host_instance, reference) as ours:
            if ours is None:  # in an ordered subqueue nothing may come before it
                return Postpone(_AT_ONCE, "The host instance stops.")
            # Where it is no longer ours, the instance that has it records what becomes of it.
            return self._now(host_instance, reference) if ours else None

    def _batch(self, service: BatchService, slice_: Slice) -> int:
        taken = slice_.take_rest()
        delivered: list[Delivered] = [
            (each, self._without_message(each, each.undeliverable)) for each in taken if each.undeliverable is not None
        ]
        whole = [each for each in taken if each.undeliverable is None]
        for reference, outcome in zip(whole, self._outcomes(service, whole), strict=True):
            left = self._settler.publish(slice_.host_instance, reference, outcome)
            if left is not None:
                delivered.append((reference, left))
        self._settle(slice_, delivered, len(taken))
        return len(taken)

    def _outcomes(self, service: BatchService, references: Sequence[Reference]) -> Sequence[Outcome]:
        if not references:
            return []
        try:
            with FOREIGN_CODE, ExitStack() as spans:
                sending = self._enter_spans(spans, service, references)
                given = [(_traced(each.message, sending.get(n)), each.attempt) for n, each in enumerate(references)]
                outcomes = service.deliver_batch(given, now=references[-1].claimed_at.now)
                for position, span in sending.items():
                    _tell(span, outcomes[position])
            if len(outcomes) != len(references):
                raise ValueError(f"{len(outcomes)} outcomes for {len(references)} messages")
        except Exception as error:
            logger.exception("A delivery failed in an unexpected way")
            return [_unexpected(error)] * len(references)
        return outcomes

    def _settle(self, slice_: Slice, delivered: Sequence[Delivered], count: int) -> None:
        """Some of them may be settled already, by what was published in their place."""
        if delivered:
            self._settler.put(slice_.host_instance, delivered)
        if count > len(delivered):
            self._host.in_hand.release(count - len(delivered))

    def _now(self, host_instance: int, reference: Reference) -> Outcome | None:
        try:
            service = self._service(reference.service_id)
            if service is None:
                return Suspend.because(PortGoneError(_GONE))
            deliver = service.deliver
            if reference.deaths and isinstance(service, RepeatingService):
                deliver = service.deliver_again
            if self._host.agent.tracer.enabled:
                deliver = self._recorded(service, reference, deliver)
            with FOREIGN_CODE:
                outcome = deliver(reference.message, attempt=reference.attempt, now=reference.claimed_at.now)
            if type(outcome) is Complete:  # nearly always
                return outcome
            if not isinstance(outcome, Outcome):
                raise TypeError(f"{outcome!r} is no outcome")
        except TransientError as error:
            return Retry(_AT_ONCE, str(error))
        except Exception as error:
            logger.exception("A delivery failed in an unexpected way")
            return _unexpected(error)
        if isinstance(outcome, Answer | Suspend):
            return self._settler.publish(host_instance, reference, outcome)
        return outcome

    def _recorded(self, service: Service, reference: Reference, deliver: _Deliver) -> _Deliver:
        """The same, within a span."""

        def recorded(message: Message, **how: Any) -> Outcome:
            with self._sending(service, reference) as span:
                outcome = deliver(_traced(message, span), **how)
                _tell(span, outcome)
                return outcome

        return recorded

    def _sending(self, service: Service, reference: Reference) -> AbstractContextManager[Span | None]:
        """A span, for a message that carries a trace and where spans are recorded."""
        tracer, message = self._host.agent.tracer, reference.message
        if (trace := trace_of(message.context)) is None:
            return _NO_SPAN
        attributes: dict[str, str | int] = {
            "messaging.message.id": str(message.id),
            "crossdock.attempt": reference.attempt,
        }
        return tracer.span("send", service.name, trace, attributes)

    def _enter_spans(self, spans: ExitStack, service: Service, references: Sequence[Reference]) -> dict[int, Span]:
        """By the position of the reference."""
        if not self._host.agent.tracer.enabled:
            return {}
        entered = (spans.enter_context(self._sending(service, each)) for each in references)
        return {position: span for position, span in enumerate(entered) if span is not None}

    def _without_message(self, reference: Reference, error: TerminalError) -> Suspend:
        # If other instances took us for dead and are done with the message, nothing is recorded.
        logger.error("Reference %d to message %s is suspended: %s", reference.sequence, reference.message.id, error)
        return Suspend.because(error, stops=self._stops(reference))

    def _stops(self, reference: Reference) -> bool:
        service = self._service_or_none(reference.service_id)
        return isinstance(service, StoppingService) and service.stops_on_failure

    def _service(self, service_id: int) -> Service | None:
        """Looking it up may take the MessageBox, which may be away."""
        while True:
            try:
                return self._host.services(service_id)
            except TransientError:
                if self._stopping.wait(self._host.limits.reconnect_seconds):
                    raise

    def _service_or_none(self, service_id: int) -> Service | None:
        try:
            return self._service(service_id)
        except TransientError:
            return None


def _traced(message: Message, span: Span | None) -> Message:
    """As the partner is to see it: after the span."""
    if span is None or span.trace is None:
        return message
    return Message(message.id, with_trace(message.context, span.trace), message.parts, message.origin)


def _tell(span: Span | None, outcome: Outcome) -> None:
    if span is not None:
        match outcome:
            case Suspend(code=code):
                span.failed(code)
            case Retry():
                span.failed(TransientError.code)


def _unexpected(error: Exception) -> Suspend:
    return Suspend.because(UnexpectedError(f"Unexpected {described(error)}"))
