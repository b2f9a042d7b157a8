"""A receive location: where sources are found, and how each becomes an interchange of messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from crossdock.adapter.contract import ReceiveAdapter
from crossdock.adapter.file import FileReceiveAdapter
from crossdock.errors import TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, Part, message_id
from crossdock.message.property import PropertyType, Value
from crossdock.pipeline.json import Split, parse_path
from crossdock.pipeline.receive import Document, Promotion, ReceivePipeline
from crossdock.receive.interchange import Failure, IntakeItem, Interchange

logger = logging.getLogger(__name__)

SIZE_LIMIT_BYTES = 256 * 1024 * 1024


class PromotedField(BaseModel):
    """Where a property is taken from."""

    model_config = ConfigDict(frozen=True)
    type: PropertyType
    field: str


class LocationDefinition(BaseModel):
    """Everything a process needs to receive here, wherever it runs; kept in the MessageBox."""

    model_config = ConfigDict(frozen=True)
    name: str
    port: str
    adapter: Literal["file"]
    address: str
    message_type: str
    promote: Mapping[str, PromotedField]
    split: Split | None
    interchange: Literal["recoverable", "standard"]
    text_limit: int


@dataclass(frozen=True, slots=True)
class ReceiveLocation:
    """A location at work."""

    id: int
    host_id: int
    definition: LocationDefinition
    adapter: ReceiveAdapter
    pipeline: ReceivePipeline

    @classmethod
    def from_definition(cls, id_: int, host_id: int, stored: Mapping[str, Any]) -> ReceiveLocation:
        definition = LocationDefinition.model_validate(stored)
        return cls(id_, host_id, definition, FileReceiveAdapter(definition.address), receive_pipeline(definition))

    def receive(self, item: IntakeItem, box: int) -> Interchange | None:
        """Read a source and run the pipeline; None if it vanished or changed since it was listed."""
        if item.size > SIZE_LIMIT_BYTES:
            raise TransientError(
                f"{self.adapter.name(item.identity)} has {item.size:,} bytes, and {SIZE_LIMIT_BYTES:,} is the most"
            )
        content = self.adapter.read(item.identity)
        return None if content is None else self.interchange(item, box, content)

    def interchange(self, item: IntakeItem, box: int, content: bytes) -> Interchange:
        """What the content of a source becomes."""
        return self._interchange(item, box, self._documents(item, content))

    def failed(self, item: IntakeItem, box: int, content: bytes, reason: str) -> Interchange:
        """A source that nothing can be done with: all of it is kept back."""
        return self._interchange(item, box, [Document(content, {}, reason)])

    def _documents(self, item: IntakeItem, content: bytes) -> list[Document]:
        try:
            return self.pipeline.execute(content)
        except Exception as error:
            logger.exception("Receive location %r fails on %s", self.definition.name, self.adapter.name(item.identity))
            return [Document(content, {}, f"the pipeline failed: {type(error).__name__}: {error}")]

    def _interchange(self, item: IntakeItem, box: int, documents: Sequence[Document]) -> Interchange:
        messages, failures = [], []
        for position, document in enumerate(documents):
            message = self._message(item, box, position, document, last=position == len(documents) - 1)
            if document.error is None:
                messages.append(message)
            else:
                failures.append(Failure(message, document.error))
        return Interchange(item.sequence, self.id, self.host_id, tuple(messages), tuple(failures))

    def _message(self, item: IntakeItem, box: int, position: int, document: Document, *, last: bool) -> Message:
        id_ = message_id(box, item.sequence, position)
        received: dict[str, Value] = {
            "BTS.ReceivePortName": self.definition.port,
            "BTS.InboundTransportLocation": self.definition.address,
            "BTS.InboundTransportType": self.definition.adapter.upper(),
            "BTS.InterchangeSequenceNumber": position + 1,
            "BTS.LastInterchangeMessage": last,
        }
        written = {
            "BTS.ReceiveLocationName": self.definition.name,
            "BTS.InterchangeID": str(message_id(box, item.sequence, 0)),
            "BTS.MessageID": str(id_),
            "FILE.ReceivedFileName": self.adapter.name(item.identity),
        }
        context = Context({**received, **document.promoted}, written)
        return Message(id_, context, (Part("body", document.body),))


def receive_pipeline(definition: LocationDefinition) -> ReceivePipeline:
    """The pipeline a definition asks for."""
    promotions = tuple(
        Promotion(name, promoted.type, promoted.field, parse_path(promoted.field))
        for name, promoted in definition.promote.items()
    )
    return ReceivePipeline(
        definition.message_type,
        promotions,
        definition.text_limit,
        definition.split,
        standard=definition.interchange == "standard",
    )
