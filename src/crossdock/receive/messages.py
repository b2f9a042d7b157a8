"""What the documents of a receive location become: messages with their contexts, and failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from crossdock.errors import brief
from crossdock.message.columns import BODY, message_ids
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, message_id
from crossdock.message.property import Value
from crossdock.message.publication import Cause, Failure, FromSource, Publication
from crossdock.pipeline.document import Document, DocumentColumns
from crossdock.pipeline.limits import context_problem
from crossdock.receive.columns import message_columns
from crossdock.receive.item import IntakeItem

# For fewer it takes longer to make columns than to make each message by itself.
_FEWEST_IN_COLUMNS = 5
_STAGE, _DISASSEMBLED = "Crossdock.Stage", "disassembled"
_DESCRIPTION = "ErrorReport.Description"
_LONGEST_TYPE = 1_000  # of a failed message: the root of any document may be its type


def is_disassembled(message: Message) -> bool:
    """Whether a failed message is a piece of its source, already decoded and taken apart."""
    return message.context.get(_STAGE) == _DISASSEMBLED


@dataclass(frozen=True, slots=True)
class LocationMessages:
    """Makes the messages of one location. `route_failures`: what failed is a message too, and says so."""

    host_id: int
    port: str
    location: str
    address: str
    transport: str
    labels: frozenset[str]
    route_failures: bool

    def of_source(
        self,
        item: IntakeItem,
        source: str,
        documents: Sequence[Document],
        cause: FromSource,
        *,
        first: int = 0,
        received: int = 0,
    ) -> Publication:
        """Documents of a source in the ledger: their ids go from `first` on, their numbers from what was `received`."""
        bits = item.random_bits
        shared = self._shared(str(message_id(bits, item.sequence, 0)), source)
        end = len(documents) - 1 if cause.last else -1
        good = _without_error(documents)
        columns = None
        together = len(good) == len(documents) or not self.route_failures
        if len(good) >= _FEWEST_IN_COLUMNS and together:
            ids = message_ids(bits, item.sequence, [first + n for n in good])
            chosen = documents if len(good) == len(documents) else [documents[n] for n in good]
            columns = message_columns(shared, ids, good, chosen, before=received, end=end)
        if columns is not None and len(good) == len(documents):
            return Publication(self.host_id, columns, cause=cause)
        apart = [n for n, document in enumerate(documents) if columns is None or document.error is not None]
        numbered, alone = partial(message_id, bits, item.sequence), len(documents) == 1
        messages = [
            self._fitting(numbered(first + n), shared, received + n, documents[n], last=n == end, alone=alone)
            for n in apart
        ]
        made = self._sorted(self.host_id, messages, cause)
        return made if columns is None else replace(made, messages=columns)

    def numbered(
        self,
        host_id: int,
        source: str | None,
        documents: Sequence[Document],
        ids: Callable[[], MessageId],
        cause: Cause,
    ) -> Publication:
        """What is published without a source in the ledger."""
        numbers = [ids() for _ in documents]
        shared = self._shared(str(numbers[0]), source)
        made = [
            self._fitting(id_, shared, n, document, last=n == len(numbers) - 1)
            for n, (id_, document) in enumerate(zip(numbers, documents, strict=True))
        ]
        return self._sorted(host_id, made, cause)

    def _shared(self, interchange: str, source: str | None) -> Context:
        """What the contexts of all messages of a source have in common."""
        promoted: dict[str, Value] = {
            "BTS.ReceivePortName": self.port,
            "BTS.InboundTransportLocation": self.address,
            "BTS.InboundTransportType": self.transport,
        }
        written: dict[str, Value] = {
            "BTS.ReceiveLocationName": self.location,
            "BTS.InterchangeID": interchange,
        }
        if source is not None:
            written["FILE.ReceivedFileName"] = source
        return Context(promoted, written, self.labels)

    def _fitting(
        self, id_: MessageId, shared: Context, position: int, document: Document, *, last: bool, alone: bool = False
    ) -> tuple[Message, Document]:
        """The message of a document that has failed if its context is too large; `alone`, it is found when stored."""
        message = self._message(id_, shared, position, document, last=last)
        problem = None if alone else context_problem(message.context)
        if problem is None:
            return message, document
        failed = document.failed(problem)
        return self._message(id_, shared, position, failed, last=last), failed

    def _message(self, id_: MessageId, shared: Context, position: int, document: Document, *, last: bool) -> Message:
        promoted: dict[str, Value] = {
            **shared.promoted,
            "BTS.InterchangeSequenceNumber": position + 1,
            "BTS.LastInterchangeMessage": last,
            **document.promoted,
        }
        written: dict[str, Value] = {**document.written, **shared.written, "BTS.MessageID": str(id_)}
        if document.error is not None:
            if document.type is not None and len(document.type) <= _LONGEST_TYPE:
                written["BTS.MessageType"] = document.type
            if document.piece:
                written[_STAGE] = _DISASSEMBLED
            if self.route_failures:
                written = {**promoted, **written, _DESCRIPTION: brief(document.error)}
                promoted = self._error_report(document)
        return Message(id_, Context(promoted, written, self.labels), (Part(BODY, document.body),))

    def _error_report(self, document: Document) -> dict[str, Value]:
        """What is promoted from a failed message that is routed: only that it failed, and where."""
        report: dict[str, Value] = {
            "ErrorReport.ErrorType": "FailedMessage",
            "ErrorReport.FailureCode": "receive",
            "ErrorReport.FailureCategory": 0,
            "ErrorReport.ReceivePortName": self.port,
            "ErrorReport.InboundTransportLocation": self.address,
        }
        if document.type is None or len(document.type) > _LONGEST_TYPE:
            return report
        return {**report, "ErrorReport.MessageType": document.type}

    def _sorted(self, host_id: int, made: Sequence[tuple[Message, Document]], cause: Cause) -> Publication:
        """The good ones apart from those that failed; a failure that is routed is a message like any other."""
        good: list[Message] = []
        failed: list[Failure] = []
        for message, document in made:
            if document.error is None or self.route_failures:
                good.append(message)
            else:
                failed.append(Failure(message, document.error, document.code))
        return Publication(host_id, tuple(good), tuple(failed), cause)


def _without_error(documents: Sequence[Document]) -> Sequence[int]:
    if isinstance(documents, DocumentColumns):
        return range(len(documents))
    return [n for n, document in enumerate(documents) if document.error is None]
