"""A send port: one message, one adapter, one outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from threading import Lock
from traceback import format_exception
from typing import Any

from pydantic import BaseModel, ConfigDict

from crossdock.adapter.allowed import Allowed
from crossdock.adapter.contract import BatchSendAdapter, SendAdapter
from crossdock.adapter.registry import largest_answer, printable_address
from crossdock.adapter.secret import without_secrets
from crossdock.errors import AttemptsError, CrossdockError, TransientError, UnexpectedError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.host.outcome import Answer, Clock, Complete, Outcome, Postpone, Retry, Suspend
from crossdock.message.message import Message, MessageId
from crossdock.pipeline.build import receive_pipeline
from crossdock.pipeline.build_send import send_pipeline
from crossdock.pipeline.decode import LIMIT_BYTES
from crossdock.pipeline.definition import PipelineDefinition, SendPipelineDefinition
from crossdock.pipeline.limits import body_bytes
from crossdock.pipeline.receive import ReceivePipeline
from crossdock.pipeline.send import SendPipeline
from crossdock.send.dynamic import Transports, chosen, destination, made_adapter
from crossdock.send.report import awaiting_orchestration, error_report, is_report
from crossdock.send.response import responses
from crossdock.send.window import ServiceWindow

RETRY_COUNT = 3
RETRY_INTERVAL = timedelta(minutes=5)
_SAY_AGAIN_SECONDS = 60.0
_AFTER_OTHERS = timedelta(seconds=5)
_TOGETHER_BYTES = 16 * 1024 * 1024  # what a pipeline has made of the messages of a batch, before it goes out

logger = logging.getLogger(__name__)


class PortDefinition(BaseModel):
    """Everything a process needs to send here; kept in the MessageBox. Without an adapter the port is dynamic.

    With `response` it publishes what the partner answers.
    """

    model_config = ConfigDict(frozen=True)
    name: str
    adapter: str | None = None
    address: str | None = None
    options: Mapping[str, Any] = {}
    allow: tuple[Allowed, ...] = ()
    pipeline: SendPipelineDefinition = SendPipelineDefinition()
    response: PipelineDefinition | None = None
    retry_count: int = RETRY_COUNT
    retry_interval: timedelta = RETRY_INTERVAL
    window: ServiceWindow | None = None
    in_flight: int | None = None
    stop_on_failure: bool = False
    route_failures: bool = False


@dataclass(slots=True)
class SendPort:
    """A port at work. What it takes to send is made when it is first needed."""

    definition: PortDefinition
    pipeline: SendPipeline
    response: ReceivePipeline | None
    new_id: Callable[[], MessageId]
    adapter: SendAdapter | None = None
    _transports: Transports = field(default_factory=Transports)
    _making: Lock = field(default_factory=Lock)
    _said: dict[str, float] = field(default_factory=dict)  # when a traceback was logged, by the kind of the error

    @classmethod
    def from_definition(cls, stored: Mapping[str, Any], new_id: Callable[[], MessageId]) -> SendPort:
        """Raises ApplicationError if it cannot work here."""
        definition = PortDefinition.model_validate(stored)
        unpacked = _largest_answer(definition)
        response = (
            None if definition.response is None else receive_pipeline(definition.response, unpacked_limit=unpacked)
        )
        return cls(definition, send_pipeline(definition.pipeline), response, new_id)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def in_flight(self) -> int | None:
        return self.definition.in_flight

    @property
    def stops_on_failure(self) -> bool:
        return self.definition.stop_on_failure

    @property
    def batches(self) -> bool:
        """Whether many messages at once are quicker."""
        if self.definition.adapter is None or self.response is not None:
            return False
        try:
            return isinstance(self._static(), BatchSendAdapter)
        except CrossdockError:
            return False

    def close(self) -> None:
        """Let go of connections. What an adapter raises then is of no message."""
        try:
            with FOREIGN_CODE:
                self._transports.close()
                if self.adapter is not None:
                    self.adapter.close()
        except Exception as error:
            told = self._without_secrets(described(error))
            logger.warning("Send port %r: its adapter failed to close: %s", self.name, told)

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:
        """Send one message. What the partner got wrong is an outcome, not an exception."""
        return self._deliver(message, attempt, now, before=attempt)

    def deliver_again(self, message: Message, *, attempt: int, now: Clock) -> Outcome:
        """The same where a process has ended that had it in hand. That is an attempt for the adapter alone."""
        return self._deliver(message, attempt, now, before=attempt + 1)

    def _deliver(self, message: Message, attempt: int, now: Clock, *, before: int) -> Outcome:
        if (closed := self._closed(now)) is not None:
            return closed
        try:
            with FOREIGN_CODE:
                return self._sent(message, before)
        except CrossdockError as error:
            return self._failed(message, error, attempt)
        except Exception as error:
            return self._failed(message, self._unexpected(error), attempt)

    def _sent(self, message: Message, before: int) -> Outcome:
        outgoing = self.pipeline.execute(message)
        if self.response is None:
            self._adapter(message, outgoing).send(outgoing, attempt=before)
            return Complete()
        # One id before we ask: it may take the MessageBox, and without it there would be an answer to throw away.
        ids = chain([self.new_id()], iter(self.new_id, None))
        reply = self._adapter(message, outgoing).send(outgoing, attempt=before)
        answer = responses(self.definition.name, self.response, message, reply, ids)
        return Answer(answer, stops=self.definition.stop_on_failure)

    def deliver_batch(self, messages: Sequence[tuple[Message, int]], *, now: Clock) -> Sequence[Outcome]:
        """The same for several at once; one that the pipeline refuses does not hold back the others."""
        if (closed := self._closed(now)) is not None:
            return [closed] * len(messages)
        problems: dict[int, CrossdockError | None] = {}
        outgoing: dict[int, Message] = {}
        size = 0
        for position, (message, _) in enumerate(messages):
            try:
                with FOREIGN_CODE:
                    outgoing[position] = self.pipeline.execute(message)
                size += body_bytes([outgoing[position]])
            except CrossdockError as error:
                problems[position] = error
            except Exception as error:
                problems[position] = self._unexpected(error)
            if size >= _TOGETHER_BYTES:
                told = self._send_batch(list(outgoing.values()))
                problems |= zip(outgoing, told, strict=True)
                outgoing, size = {}, 0
                if isinstance(told[-1], TransientError):  # perhaps nothing can be sent: the others are not tried
                    break
        problems |= zip(outgoing, self._send_batch(list(outgoing.values())), strict=True)
        outcomes: list[Outcome] = [Postpone(_AFTER_OTHERS, f"Send port {self.name!r}: those before it failed.")]
        outcomes *= len(messages)
        for position, problem in problems.items():
            message, attempt = messages[position]
            outcomes[position] = Complete() if problem is None else self._failed(message, problem, attempt)
        return outcomes

    def _send_batch(self, messages: Sequence[Message]) -> Sequence[CrossdockError | None]:
        if not messages:
            return []
        try:
            adapter = self._static()
            assert isinstance(adapter, BatchSendAdapter)
            with FOREIGN_CODE:
                return adapter.send_batch(messages)
        except TransientError as error:
            return [error] * len(messages)
        except Exception as error:
            if len(messages) == 1:
                return [error if isinstance(error, CrossdockError) else self._unexpected(error)]
            # One of them is wrong or shows a bug, and the others need not suffer for it.
            return [outcome for message in messages for outcome in self._send_batch([message])]

    def _unexpected(self, error: Exception) -> UnexpectedError:
        """A bug is a failure like another: it stops a line that is to stop, and is routed where failures are.

        Its traceback is logged once a minute for each kind of error, however many messages meet it.
        """
        now, kind = time.monotonic(), type(error).__qualname__
        if now - self._said.get(kind, -_SAY_AGAIN_SECONDS) >= _SAY_AGAIN_SECONDS:
            self._said[kind] = now
            trace = self._without_secrets("".join(format_exception(error)))
            logger.error("Send port %r failed in an unexpected way\n%s", self.definition.name, trace)
        return UnexpectedError(f"unexpected {described(error)}")

    def _closed(self, now: Clock) -> Postpone | None:
        """None within the service window."""
        if self.definition.window is None:
            return None
        time = now()
        if (opens := self.definition.window.opens(time)) is None:
            return None
        return Postpone(opens - time, f"Send port {self.definition.name!r} waits for its service window.")

    def _adapter(self, message: Message, outgoing: Message) -> SendAdapter:
        """Macros in an address that the message brings are filled from what goes out: that has to be allowed."""
        if self.definition.adapter is not None:
            return self._static()
        kind, address = destination(message)
        allowed = chosen(self.definition.allow, kind, address, outgoing)
        return self._transports.adapter(allowed, address, self.definition.name)

    def _static(self) -> SendAdapter:
        if self.adapter is None:
            with self._making:
                if self.adapter is None:
                    assert self.definition.adapter is not None
                    address, options = self.definition.address or "", self.definition.options
                    name, code = self.definition.name, self.definition.pipeline.code
                    self.adapter = made_adapter(self.definition.adapter, address, options, name, code)
        return self.adapter

    def _failed(self, message: Message, error: CrossdockError, attempt: int) -> Outcome:
        name, reason, code = self.definition.name, self._without_secrets(str(error)), error.code
        if isinstance(error, TransientError):
            if attempt < self.definition.retry_count:
                return Retry(self.definition.retry_interval, f"Send port {name!r}: {reason}")
            attempts = "1 attempt" if attempt == 0 else f"{attempt + 1} attempts"
            reason = f"gave up after {attempts}: {reason}"
            text, code = f"Send port {name!r} {reason}", AttemptsError.code
        else:
            text = f"Send port {name!r}: {reason}"
        return Suspend(text, stops=self.definition.stop_on_failure, report=self._report(message, text), code=code)

    def _without_secrets(self, text: str) -> str:
        """What an adapter says may quote its address, and an adapter need not be ours."""
        text = without_secrets(text, self.definition.address or "", self.definition.options)
        for allowed in self.definition.allow:
            text = without_secrets(text, allowed.address, allowed.options)
        return text

    def _report(self, message: Message, reason: str) -> Message | None:
        """None if failures are not routed, or cannot be for want of the MessageBox: then the message is suspended."""
        # A report that fails is not reported: it might come back for ever.
        wanted = self.definition.route_failures or awaiting_orchestration(message) is not None
        if not wanted or is_report(message):
            return None
        try:
            id_ = self.new_id()
        except TransientError as error:
            logger.warning("Send port %r: a failed message is suspended, and not reported: %s", self.name, error)
            return None
        return error_report(id_, message, self.name, self._shown_address(message), reason)

    def _shown_address(self, message: Message) -> str | None:
        if self.definition.adapter is not None and self.definition.address is not None:
            return printable_address(self.definition.adapter, self.definition.address)
        try:
            return printable_address(*destination(message))
        except CrossdockError:
            return None


def _largest_answer(definition: PortDefinition) -> int:
    """In bytes, also where it is unpacked: several may be in memory at once."""
    places = [(each.kind, each.options) for each in definition.allow]
    if definition.adapter is not None:
        places = [(definition.adapter, definition.options)]
    said = [largest_answer(kind, options) for kind, options in places]
    return min(LIMIT_BYTES, max((LIMIT_BYTES if each is None else each for each in said), default=LIMIT_BYTES))
