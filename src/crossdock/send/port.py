"""A send port: one message, one adapter, one outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from crossdock.adapter.contract import SendAdapter
from crossdock.adapter.file import FileSendAdapter
from crossdock.errors import TerminalError, TransientError
from crossdock.host.outcome import Complete, Outcome, Retry, Suspend
from crossdock.message.message import Message

RETRY_COUNT = 3
RETRY_INTERVAL = timedelta(minutes=5)


class PortDefinition(BaseModel):
    """Everything a process needs to send here; kept in the MessageBox."""

    model_config = ConfigDict(frozen=True)
    name: str
    adapter: Literal["file"]
    address: str


@dataclass(frozen=True, slots=True)
class SendPort:
    """A port at work."""

    definition: PortDefinition
    adapter: SendAdapter

    @classmethod
    def from_definition(cls, stored: Mapping[str, Any]) -> SendPort:
        definition = PortDefinition.model_validate(stored)
        return cls(definition, FileSendAdapter(definition.address))

    def deliver(self, message: Message, *, attempt: int, now: datetime) -> Outcome:
        """Send one message. What the partner got wrong is an outcome, not an exception."""
        try:
            self.adapter.send(message, attempt=attempt)
        except TransientError as error:
            if attempt >= RETRY_COUNT:
                return Suspend(f"Send port {self.definition.name!r} gave up after {attempt + 1} attempts: {error}")
            return Retry(now + RETRY_INTERVAL, f"Send port {self.definition.name!r}: {error}")
        except TerminalError as error:
            return Suspend(f"Send port {self.definition.name!r}: {error}")
        return Complete()
