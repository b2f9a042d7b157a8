"""A receive location: where sources are found, and how each becomes an interchange of messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from crossdock.adapter.contract import RangedReceiveAdapter, ReceiveAdapter
from crossdock.adapter.registry import printable_address, receive_adapter, transport_name
from crossdock.errors import ApplicationError, DocumentError, PromotionError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, message_id
from crossdock.message.property import Value
from crossdock.message.run import BODY, message_ids
from crossdock.pipeline.build import receive_pipeline
from crossdock.pipeline.definition import PipelineDefinition, SendPipelineDefinition
from crossdock.pipeline.document import Document, LineReader
from crossdock.pipeline.receive import ReceivePipeline
from crossdock.receive.interchange import Failure, IntakeItem, Interchange
from crossdock.receive.run import message_run

logger = logging.getLogger(__name__)

# A source that is larger is read range by range, if it is one of lines.
LARGE_BYTES = 32 * 1024 * 1024
RANGE_BYTES = 16 * 1024 * 1024
_HEAD_BYTES = 1024 * 1024
# For fewer it takes longer to begin a run than to make each message by itself.
_FEWEST_IN_A_RUN = 5
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_STAGE, _DISASSEMBLED = "Crossdock.Stage", "disassembled"
_DESCRIPTION = "ErrorReport.Description"
SIZE_LIMIT_BYTES = 256 * 1024 * 1024


class LocationDefinition(BaseModel):
    """Everything a process needs to receive here, wherever it runs; kept in the MessageBox."""

    model_config = ConfigDict(frozen=True)
    name: str
    port: str
    adapter: str
    address: str
    pipeline: PipelineDefinition
    options: Mapping[str, Any] = {}
    labels: tuple[str, ...] = ()
    route_failures: bool = False
    two_way: bool = False
    response: SendPipelineDefinition = SendPipelineDefinition()


@dataclass(frozen=True, slots=True)
class Range:
    """Whole lines of a large source, and what became of them."""

    content: bytes
    interchange: Interchange


@dataclass(frozen=True, slots=True)
class ReceiveLocation:
    """A location at work. `address` is the one to show: without passwords."""

    id: int
    host_id: int
    definition: LocationDefinition
    adapter: ReceiveAdapter
    pipeline: ReceivePipeline
    address: str
    transport: str
    labels: frozenset[str]

    @classmethod
    def from_definition(cls, id_: int, host_id: int, stored: Mapping[str, Any]) -> ReceiveLocation:
        definition = LocationDefinition.model_validate(stored)
        adapter = receive_adapter(
            definition.adapter, definition.address, definition.options, code=definition.pipeline.code
        )
        # Where an http location listens has neither a user nor a query, and may be written :PORT/PATH.
        pushed = definition.adapter == "http"
        address = definition.address if pushed else printable_address(definition.adapter, definition.address)
        pipeline = receive_pipeline(definition.pipeline)
        transport, labels = transport_name(definition.adapter), frozenset(definition.labels)
        return cls(id_, host_id, definition, adapter, pipeline, address, transport, labels)

    @property
    def is_pushed(self) -> bool:
        """Whether sources are sent here, rather than found and read."""
        return self.definition.adapter == "http"

    def receive(self, item: IntakeItem, box: int) -> Interchange | None:
        """Read a source and run the pipeline; None if it vanished or changed since it was listed."""
        if item.size > SIZE_LIMIT_BYTES:
            raise TransientError(
                f"{self.adapter.name(item.identity)} has {item.size:,} bytes, and {SIZE_LIMIT_BYTES:,} is the most"
            )
        content = self.adapter.read(item.identity)
        return None if content is None else self.interchange(item, box, content)

    def ranges(self, item: IntakeItem, box: int, start: int, received: int) -> Iterator[Range] | None:
        """A large source range by range, from `start` on, before which so many messages were received.

        None if it has to be read whole. Ends early if the source vanishes or changes.
        """
        if item.size <= LARGE_BYTES or not isinstance(self.adapter, RangedReceiveAdapter):
            return None
        head = self.adapter.read_range(item.identity, 0, _HEAD_BYTES)
        if head is None or head.startswith(_WIDE_MARKS):
            return None
        try:
            read = self.pipeline.by_lines(head)
        except (DocumentError, PromotionError):
            return None
        return None if read is None else self._ranges(self.adapter, item, box, read, start, received)

    def _ranges(
        self, adapter: RangedReceiveAdapter, item: IntakeItem, box: int, read: LineReader, start: int, received: int
    ) -> Iterator[Range]:
        while start < item.size:
            content = _whole_lines(adapter, item, start)
            if content is None:
                return
            documents = self._guarded(
                adapter.name(item.identity),
                content,
                lambda: list(read(content, start)),  # noqa: B023
                piece=start > 0,
            )
            yield Range(content, self._range(item, box, (start, start + len(content)), received, documents))
            start, received = start + len(content), received + len(documents)

    def _range(
        self, item: IntakeItem, box: int, place: tuple[int, int], received: int, documents: Sequence[Document]
    ) -> Interchange:
        """Ids go by the place of the range, which is the same whatever became of the ranges before it."""
        start, end = place
        last = end == item.size
        made = self._interchange(item, box, documents, first=start, received=received, last=last)
        return replace(made, range_start=start, range_end=end, last=last)

    def failed_range(self, item: IntakeItem, box: int, range_: Range, reason: str) -> Interchange:
        """A range that nothing can be done with: all of it is kept back, as one."""
        start, end = range_.interchange.range_start, range_.interchange.range_end
        assert end is not None
        return self._range(item, box, (start, end), 0, [Document(range_.content, error=reason, piece=start > 0)])

    def interchange(self, item: IntakeItem, box: int, content: bytes) -> Interchange:
        """What the content of a source becomes."""
        return self._interchange(item, box, self._execute(self.adapter.name(item.identity), content))

    def failed(self, item: IntakeItem, box: int, content: bytes, reason: str) -> Interchange:
        """A source that nothing can be done with: all of it is kept back."""
        return self._interchange(item, box, [Document(content, error=reason, piece=False)])

    def again(
        self, host_id: int, suspended: Message, replaces: tuple[int, int], ids: Callable[[], MessageId]
    ) -> Interchange:
        """What a suspended document becomes when it goes through the pipeline once more.

        From the start if it is a whole source; a piece of one is already decoded and taken apart.
        """
        source = str(suspended.context.get("FILE.ReceivedFileName") or suspended.id)
        piece = suspended.context.get(_STAGE) == _DISASSEMBLED
        documents = self._execute(source, suspended.body, piece=piece)
        return self._numbered(host_id, source, documents, ids, replaces)

    def pushed(self, content: bytes, properties: Mapping[str, Value], ids: Callable[[], MessageId]) -> Interchange:
        """What becomes of bytes that somebody pushes to us, with these properties written to every message."""
        documents = self._execute(self.address, content)
        written = [document.changed(written={**document.written, **properties}) for document in documents]
        return self._numbered(self.host_id, None, written, ids)

    def _numbered(
        self,
        host_id: int,
        source: str | None,
        documents: Sequence[Document],
        ids: Callable[[], MessageId],
        replaces: tuple[int, int] | None = None,
    ) -> Interchange:
        """An interchange whose source is not in the ledger."""
        numbers = [ids() for _ in documents]
        shared = self._shared(str(numbers[0]), source)
        made = [
            self._message(id_, shared, n, document, last=n == len(numbers) - 1)
            for n, (id_, document) in enumerate(zip(numbers, documents, strict=True))
        ]
        return self._sorted(None, host_id, made, documents, replaces)

    def _execute(self, source: str, content: bytes, *, piece: bool = False) -> list[Document]:
        return self._guarded(source, content, lambda: self.pipeline.execute(content, piece=piece), piece=piece)

    def _guarded(
        self, source: str, content: bytes, run: Callable[[], list[Document]], *, piece: bool = True
    ) -> list[Document]:
        """Whatever a pipeline raises, the bytes are kept."""
        try:
            return run()
        except Exception as error:
            logger.exception("Receive location %r fails on %s", self.definition.name, source)
            return [Document(content, error=f"the pipeline failed: {type(error).__name__}: {error}", piece=piece)]

    def _interchange(
        self,
        item: IntakeItem,
        box: int,
        documents: Sequence[Document],
        *,
        first: int = 0,
        received: int = 0,
        last: bool = True,
    ) -> Interchange:
        """Documents of a source in the ledger: their ids go from `first` on, their numbers from what was `received`."""
        shared = self._shared(str(message_id(box, item.sequence, 0)), self.adapter.name(item.identity))
        end = len(documents) - 1 if last else -1
        good = [n for n, document in enumerate(documents) if document.error is None]
        run = None
        together = len(good) == len(documents) or not self.definition.route_failures
        if len(good) >= _FEWEST_IN_A_RUN and together:
            ids = message_ids(box, item.sequence, [first + n for n in good])
            run = message_run(shared, ids, good, [documents[n] for n in good], before=received, end=end)
        apart = [n for n, document in enumerate(documents) if run is None or document.error is not None]
        messages = [
            self._message(message_id(box, item.sequence, first + n), shared, received + n, documents[n], last=n == end)
            for n in apart
        ]
        made = self._sorted(item.sequence, self.host_id, messages, [documents[n] for n in apart])
        return made if run is None else replace(made, messages=run)

    def _shared(self, interchange: str, source: str | None) -> Context:
        """What the contexts of all messages of a source have in common."""
        promoted: dict[str, Value] = {
            "BTS.ReceivePortName": self.definition.port,
            "BTS.InboundTransportLocation": self.address,
            "BTS.InboundTransportType": self.transport,
        }
        written: dict[str, Value] = {
            "BTS.ReceiveLocationName": self.definition.name,
            "BTS.InterchangeID": interchange,
        }
        if source is not None:
            written["FILE.ReceivedFileName"] = source
        return Context(promoted, written, self.labels)

    def _message(self, id_: MessageId, shared: Context, position: int, document: Document, *, last: bool) -> Message:
        promoted: dict[str, Value] = {
            **shared.promoted,
            "BTS.InterchangeSequenceNumber": position + 1,
            "BTS.LastInterchangeMessage": last,
            **document.promoted,
        }
        written: dict[str, Value] = {**document.written, **shared.written, "BTS.MessageID": str(id_)}
        if document.error is not None:
            if document.type is not None:
                written["BTS.MessageType"] = document.type
            if document.piece:
                written[_STAGE] = _DISASSEMBLED
            if self.definition.route_failures:
                written = {**promoted, **written, _DESCRIPTION: document.error}
                promoted = self._error_report(document)
        return Message(id_, Context(promoted, written, self.labels), (Part(BODY, document.body),))

    def _error_report(self, document: Document) -> dict[str, Value]:
        """What is promoted from a failed message that is routed: only that it failed, and where."""
        report: dict[str, Value] = {
            "ErrorReport.ErrorType": "FailedMessage",
            "ErrorReport.FailureCode": "receive",
            "ErrorReport.FailureCategory": 0,
            "ErrorReport.ReceivePortName": self.definition.port,
            "ErrorReport.InboundTransportLocation": self.address,
        }
        return report if document.type is None else {**report, "ErrorReport.MessageType": document.type}

    def _sorted(
        self,
        sequence: int | None,
        host: int,
        messages: Sequence[Message],
        documents: Sequence[Document],
        replaces: tuple[int, int] | None = None,
    ) -> Interchange:
        """The good ones apart from those that failed; a failure that is routed is a message like any other."""
        good: list[Message] = []
        failed: list[Failure] = []
        for message, document in zip(messages, documents, strict=True):
            if document.error is None or self.definition.route_failures:
                good.append(message)
            else:
                failed.append(Failure(message, document.error))
        return Interchange(sequence, self.id, host, tuple(good), tuple(failed), replaces=replaces)


def _whole_lines(adapter: RangedReceiveAdapter, item: IntakeItem, start: int) -> bytes | None:
    """The next range of a source: about as much as one should have, up to the end of a line."""
    content = b""
    # A little that would be left is taken along, so that the last range is not one of blank lines.
    length = item.size - start if item.size - start < RANGE_BYTES + RANGE_BYTES // 8 else RANGE_BYTES
    while start + len(content) < item.size:
        more = adapter.read_range(item.identity, start + len(content), length)
        if not more:
            return None
        end = more.rfind(b"\n") + 1 if start + len(content) + len(more) < item.size else len(more)
        content += more[:end] if end else more
        if end:
            return content
        if len(content) > SIZE_LIMIT_BYTES:
            raise TransientError(
                f"{adapter.name(item.identity)} has a line of more than {SIZE_LIMIT_BYTES:,} bytes at byte {start + 1}"
            )
    return content


def locations_at_work(definitions: Iterable[tuple[int, int, Mapping[str, Any]]]) -> dict[int, ReceiveLocation]:
    """Locations by their id; one that cannot work here, for want of a driver or a module, does not stop the others."""
    working = {}
    for id_, host, stored in definitions:
        try:
            working[id_] = ReceiveLocation.from_definition(id_, host, stored)
        except ApplicationError as error:
            logger.error("Receive location %r cannot work here: %s", stored.get("name"), error)
        except ValidationError as error:  # what it shows of its input may hold a password
            problem = error.errors(include_input=False, include_url=False)[0]
            logger.error(
                "Receive location %r cannot work here: %s: %s", stored.get("name"), problem["loc"], problem["msg"]
            )
    return working
