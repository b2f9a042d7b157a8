"""A receive location: where sources are found, and how each becomes an interchange of messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from crossdock.pipeline.document import Document, DocumentRun
from crossdock.pipeline.lines import lines_of
from crossdock.pipeline.receive import Lines, ReceivePipeline, unexpected
from crossdock.receive.interchange import Failure, IntakeItem, Interchange
from crossdock.receive.ranges import RANGE_MESSAGES, SIZE_LIMIT_BYTES, Cutter
from crossdock.receive.run import message_run
from crossdock.receive.time_limit import TIME_LIMIT_SECONDS, OutOfTimeError, time_limit

logger = logging.getLogger(__name__)

_HEAD_BYTES = 1024 * 1024
# For fewer it takes longer to begin a run than to make each message by itself.
_FEWEST_IN_A_RUN = 5
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_STAGE, _DISASSEMBLED = "Crossdock.Stage", "disassembled"
_DESCRIPTION = "ErrorReport.Description"


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
    """Whole lines of a large source, how many messages were received before, and what became of these."""

    content: bytes
    received: int
    interchange: Interchange


@dataclass(frozen=True, slots=True)
class ReceiveLocation:
    """A location at work. `address` is the one to show: without passwords. `time_limit`: for a source, in seconds."""

    id: int
    host_id: int
    definition: LocationDefinition
    adapter: ReceiveAdapter
    pipeline: ReceivePipeline
    address: str
    transport: str
    labels: frozenset[str]
    time_limit: float = TIME_LIMIT_SECONDS

    @classmethod
    def from_definition(
        cls, id_: int, host_id: int, stored: Mapping[str, Any], time_limit: float = TIME_LIMIT_SECONDS
    ) -> ReceiveLocation:
        definition = LocationDefinition.model_validate(stored)
        adapter = receive_adapter(
            definition.adapter, definition.address, definition.options, code=definition.pipeline.code
        )
        # Where an http location listens has neither a user nor a query, and may be written :PORT/PATH.
        pushed = definition.adapter == "http"
        address = definition.address if pushed else printable_address(definition.adapter, definition.address)
        pipeline = receive_pipeline(definition.pipeline)
        transport, labels = transport_name(definition.adapter), frozenset(definition.labels)
        return cls(id_, host_id, definition, adapter, pipeline, address, transport, labels, time_limit)

    @property
    def is_pushed(self) -> bool:
        """Whether sources are sent here, rather than found and read."""
        return self.definition.adapter == "http"

    def read(self, item: IntakeItem) -> bytes | None:
        """The content of a source; None if it vanished or changed since it was listed."""
        if item.size > SIZE_LIMIT_BYTES:
            raise TransientError(
                f"{self.adapter.name(item.identity)} has {item.size:,} bytes, and {SIZE_LIMIT_BYTES:,} is the most"
            )
        return self.adapter.read(item.identity)

    def ranges(
        self,
        item: IntakeItem,
        box: int,
        start: int,
        received: int,
        messages: int = RANGE_MESSAGES,
        *,
        unread: str | None = None,
    ) -> Iterator[Range] | None:
        """A large source range by range, from `start` on, before which so many messages were received.

        No range has more than so many `messages`. None if it has to be read whole. Ends early if the source vanishes or
        changes. For the reason `unread` no line goes through the pipeline: each is kept back.
        """
        if not isinstance(self.adapter, RangedReceiveAdapter):
            return None
        head = self.adapter.read_range(item.identity, 0, _HEAD_BYTES)
        if head is None or head.startswith(_WIDE_MARKS):
            return None
        try:
            read = self.pipeline.by_lines(head)
        except (DocumentError, PromotionError):
            return None
        cutter = Cutter(self.adapter, item, start)
        if read is None or not cutter.skip_blank() or (received == 0 and cutter.place == item.size):
            return None
        if unread is not None:
            read = Lines(partial(_kept_back, reason=unread), lambda document: document)
        return self._ranges(cutter, box, read, start, received, messages)

    def _ranges(
        self, cutter: Cutter, box: int, read: Lines, start: int, received: int, messages: int
    ) -> Iterator[Range]:
        """Blank lines are part of the range before them, so that the last range has the last message."""
        item = cutter.item
        while start < item.size:
            first = cutter.place
            content = cutter.cut(messages)
            if content is None:
                return
            documents, used = self._read_lines(item, read, content, first)
            cutter.give_back(content[used:])
            if not cutter.skip_blank():
                return
            if not documents and received == 0 and cutter.place == item.size:
                documents = [Document(content, error="the file holds no message", piece=False)]
            made = self._range(item, box, (start, cutter.place), received, documents)
            yield Range(content[:used], received, made)
            start, received = cutter.place, received + len(documents)

    def _read_lines(self, item: IntakeItem, read: Lines, content: bytes, start: int) -> tuple[Sequence[Document], int]:
        """The documents in so many bytes at the beginning: up to one on which the pipeline fails, or just that one."""
        documents: list[Document] = []
        try:
            with time_limit(self.time_limit):
                found = read(content, start)
                if isinstance(found, DocumentRun):
                    return found, len(content)
                documents.extend(found)
            return documents, len(content)
        except (Exception, SystemExit, OutOfTimeError) as error:
            reason = self._reason(self.adapter.name(item.identity), error)
        place = read.place_of(content, start, len(documents))
        if documents:
            return documents, place
        end = content.find(b"\n", place) + 1 or len(content)
        return [Document(content[place:end].strip(b"\r\n"), error=reason)], end

    def _range(
        self, item: IntakeItem, box: int, place: tuple[int, int], received: int, documents: Sequence[Document]
    ) -> Interchange:
        """Ids go by the place of the range, which is the same whatever became of the ranges before it."""
        start, end = place
        last = end == item.size
        made = self._interchange(item, box, documents, first=start, received=received, last=last)
        return replace(made, range_start=start, range_end=end, last=last)

    def failed_range(self, item: IntakeItem, box: int, range_: Range, reason: str) -> Interchange:
        """A range that nothing can be done with: every line is kept back."""
        start, end = range_.interchange.range_start, range_.interchange.range_end
        assert end is not None
        documents = list(_kept_back(range_.content, start, reason=reason))
        return self._range(item, box, (start, end), range_.received, documents)

    def interchange(self, item: IntakeItem, box: int, content: bytes) -> Interchange:
        """What the content of a source becomes."""
        return self._standard(self._interchange(item, box, self._execute(self.adapter.name(item.identity), content)))

    def _standard(self, made: Interchange) -> Interchange:
        """Of one message there is nothing to hold together: if nobody wants it, it is unrouted like any other."""
        return replace(made, standard=True) if self.pipeline.standard and len(made.messages) > 1 else made

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
        return self._standard(self._numbered(host_id, source, documents, ids, replaces))

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

    def _execute(self, source: str, content: bytes, *, piece: bool = False) -> Sequence[Document]:
        """Whatever a pipeline raises, the bytes are kept."""
        if not self.pipeline.may_take_long(content):  # setting an alarm takes microseconds, and files may be small
            return self._executed(source, content, piece=piece)
        try:
            with time_limit(self.time_limit):
                return self._executed(source, content, piece=piece)
        except OutOfTimeError as error:
            return [Document(content, error=self._reason(source, error), piece=piece)]

    def _executed(self, source: str, content: bytes, *, piece: bool) -> Sequence[Document]:
        try:
            return self.pipeline.execute(content, piece=piece)
        except (Exception, SystemExit) as error:
            return [Document(content, error=self._reason(source, error), piece=piece)]

    def _reason(self, source: str, error: BaseException) -> str:
        if isinstance(error, OutOfTimeError):
            return f"the pipeline took more than {self.time_limit:g} seconds"
        logger.error("Receive location %r fails on %s", self.definition.name, source, exc_info=error)
        return unexpected(error)

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
        good = _without_error(documents)
        run = None
        together = len(good) == len(documents) or not self.definition.route_failures
        if len(good) >= _FEWEST_IN_A_RUN and together:
            ids = message_ids(box, item.sequence, [first + n for n in good])
            chosen = documents if len(good) == len(documents) else [documents[n] for n in good]
            run = message_run(shared, ids, good, chosen, before=received, end=end)
        if run is not None and len(good) == len(documents):
            return Interchange(item.sequence, self.id, self.host_id, run)
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


def _without_error(documents: Sequence[Document]) -> Sequence[int]:
    if isinstance(documents, DocumentRun):
        return range(len(documents))
    return [n for n, document in enumerate(documents) if document.error is None]


def _kept_back(content: bytes, _: int, *, reason: str) -> Iterator[Document]:
    """Every line that is not blank, as it is."""
    return (Document(line.strip(b"\r"), error=reason) for line in lines_of(content) if line.strip())


def locations_at_work(
    definitions: Iterable[tuple[int, int, Mapping[str, Any]]], *, time_limit: float = TIME_LIMIT_SECONDS
) -> dict[int, ReceiveLocation]:
    """Locations by their id; one that cannot work here, for want of a driver or a module, does not stop the others."""
    working = {}
    for id_, host, stored in definitions:
        try:
            working[id_] = ReceiveLocation.from_definition(id_, host, stored, time_limit)
        except ApplicationError as error:
            logger.error("Receive location %r cannot work here: %s", stored.get("name"), error)
        except ValidationError as error:  # what it shows of its input may hold a password
            problem = error.errors(include_input=False, include_url=False)[0]
            logger.error(
                "Receive location %r cannot work here: %s: %s", stored.get("name"), problem["loc"], problem["msg"]
            )
    return working
