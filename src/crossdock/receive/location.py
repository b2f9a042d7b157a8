"""A receive location: where sources are found, and how each becomes a publication."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from crossdock.adapter.calling import called, source_name
from crossdock.adapter.contract import PushedReceiveAdapter, RangedReceiveAdapter, ReceiveAdapter, is_pushed
from crossdock.adapter.registry import receive_adapter, transport_of
from crossdock.adapter.secret import without_secrets
from crossdock.errors import (
    ApplicationError,
    DocumentError,
    OutOfTimeError,
    PromotionError,
    SlowPipelineError,
    TerminalError,
    TooManyMessagesError,
    TransientError,
    brief,
)
from crossdock.foreign import FOREIGN_CODE
from crossdock.message.columns import BODY, message_ids
from crossdock.message.context import Context
from crossdock.message.message import POSITIONS, Message, MessageId, Part, message_id
from crossdock.message.property import Value
from crossdock.message.publication import Cause, Express, Failure, FromSource, InPlaceOf, Publication
from crossdock.pipeline.build import receive_pipeline
from crossdock.pipeline.decode import LIMIT_BYTES
from crossdock.pipeline.definition import PipelineDefinition, SendPipelineDefinition
from crossdock.pipeline.document import Document, DocumentColumns
from crossdock.pipeline.receive import Lines, ReceivePipeline, unexpected
from crossdock.receive.columns import message_columns
from crossdock.receive.item import IntakeItem
from crossdock.receive.limits import bounded, context_problem, too_much
from crossdock.receive.nothing import NothingToRead
from crossdock.receive.ranges import RANGE_MESSAGES, SIZE_LIMIT_BYTES, Cutter, first_position, kept_back
from crossdock.receive.time_limit import TIME_LIMIT_SECONDS, time_limit

logger = logging.getLogger(__name__)

_HEAD_BYTES = 1024 * 1024
# For fewer it takes longer to make columns than to make each message by itself.
_FEWEST_IN_COLUMNS = 5
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_STAGE, _DISASSEMBLED = "Crossdock.Stage", "disassembled"
_DESCRIPTION = "ErrorReport.Description"
_LONGEST_TYPE = 1_000  # of a failed message: the root of any document may be its type


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
    """Lines of a large source from byte `start` to `end`, how many messages came before, and what became of these."""

    content: bytes
    received: int
    start: int
    end: int
    publication: Publication
    last: bool = False


@dataclass(frozen=True, slots=True)
class ReceiveLocation:
    """A location at work. `address` is the one to show: without passwords. `time_limit`: for a source, in seconds.

    The `listener` is where partners send, rather than we find and read; then the adapter has nothing to read.
    """

    id: int
    host_id: int
    definition: LocationDefinition
    adapter: ReceiveAdapter
    pipeline: ReceivePipeline
    address: str
    transport: str
    labels: frozenset[str]
    time_limit: float = TIME_LIMIT_SECONDS
    listener: PushedReceiveAdapter | None = None

    @classmethod
    def from_definition(
        cls, id_: int, host_id: int, stored: Mapping[str, Any], time_limit: float = TIME_LIMIT_SECONDS
    ) -> ReceiveLocation:
        definition = LocationDefinition.model_validate(stored)
        kind, code = definition.adapter, definition.pipeline.code
        made = receive_adapter(kind, definition.address, definition.options, code=code)
        transport = transport_of(kind, code)
        said = getattr(made, "maximum_size", None)
        unpacked_limit = min(LIMIT_BYTES, said) if isinstance(said, int) else LIMIT_BYTES
        return cls(
            id_,
            host_id,
            definition,
            NothingToRead() if is_pushed(made) else cast(ReceiveAdapter, made),
            receive_pipeline(definition.pipeline, unpacked_limit=unpacked_limit),
            transport.printable(definition.address),
            transport.type,
            frozenset(definition.labels),
            time_limit,
            made if is_pushed(made) else None,
        )

    @property
    def is_pushed(self) -> bool:
        """Whether sources are sent here, rather than found and read."""
        return self.listener is not None

    def name_of(self, identity: bytes) -> str:
        """What a person would call the source."""
        return source_name(self.adapter, identity)

    def without_secrets(self, text: str) -> str:
        """What an adapter says may quote its address, and an adapter need not be ours."""
        return without_secrets(text, self.definition.address, self.definition.options)

    def read(self, item: IntakeItem) -> bytes | None:
        """The content of a source; None if it vanished or changed since it was listed. Raises TransientError only."""
        if item.size > SIZE_LIMIT_BYTES:
            raise TransientError(
                f"{self.name_of(item.identity)} has {item.size:,} bytes, and {SIZE_LIMIT_BYTES:,} is the most"
            )
        return called(self.adapter.read, item.identity)

    def ranges(
        self,
        item: IntakeItem,
        start: int,
        received: int,
        messages: int = RANGE_MESSAGES,
        *,
        unread: TerminalError | None = None,
    ) -> Iterator[Range] | None:
        """A large source range by range, from `start` on, before which so many messages were received.

        No range has more than so many `messages`. None if it has to be read whole. Ends early if the source vanishes or
        changes. If `unread` is given no line goes through the pipeline: each is kept back with it.
        """
        if not isinstance(self.adapter, RangedReceiveAdapter):
            return None
        head = called(self.adapter.read_range, item.identity, 0, _HEAD_BYTES)
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
            read = Lines(partial(kept_back, error=unread), lambda document: document)
        return self._ranges(cutter, read, start, received, messages)

    def _ranges(self, cutter: Cutter, read: Lines, start: int, received: int, messages: int) -> Iterator[Range]:
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
            made = self._range(item, (start, cutter.place), received, documents)
            yield Range(content[:used], received, start, cutter.place, made, last=cutter.place == item.size)
            start, received = cutter.place, received + len(documents)

    def _read_lines(self, item: IntakeItem, read: Lines, content: bytes, start: int) -> tuple[Sequence[Document], int]:
        """The documents in so many bytes at the beginning: up to one on which the pipeline fails, or just that one."""
        documents: list[Document] = []
        try:
            with time_limit(self.time_limit), FOREIGN_CODE:
                found = read(content, start)
                if isinstance(found, DocumentColumns):
                    return found, len(content)
                documents.extend(found)
            if (excess := too_much(documents)) is not None:
                documents = [document.failed(excess) for document in documents]
            return documents, len(content)
        except (Exception, OutOfTimeError) as error:
            problem = self._problem(self.name_of(item.identity), error)
        place = read.place_of(content, start, len(documents))
        if documents:
            return documents, place
        end = content.find(b"\n", place) + 1 or len(content)
        return [Document(content[place:end].strip(b"\r\n")).failed(problem)], end

    def _range(
        self, item: IntakeItem, place: tuple[int, int], received: int, documents: Sequence[Document]
    ) -> Publication:
        start, end = place
        last, first = end == item.size, first_position(start, received)
        if first + len(documents) > POSITIONS:
            raise TransientError(
                f"{self.name_of(item.identity)} has more messages than ids can tell apart; {received:,} are published"
            )
        cause = FromSource(item.sequence, self.id, item.random_bits, start, end, last)
        return self._publication(item, documents, cause, first=first, received=received)

    def failed_range(self, item: IntakeItem, range_: Range, error: TerminalError) -> Publication:
        """A range that nothing can be done with: every line is kept back."""
        documents = list(kept_back(range_.content, range_.start, error=error))
        return self._range(item, (range_.start, range_.end), range_.received, documents)

    def publication(self, item: IntakeItem, content: bytes) -> Publication:
        """What the content of a source becomes."""
        documents = self._execute(self.name_of(item.identity), content)
        return self._standard(self._publication(item, documents, self._whole(item)))

    def _standard(self, made: Publication) -> Publication:
        """Of one message there is nothing to hold together: if nobody wants it, it is unrouted like any other."""
        return replace(made, all_or_nothing=True) if self.pipeline.standard and len(made.messages) > 1 else made

    def failed(self, item: IntakeItem, content: bytes, error: TerminalError) -> Publication:
        """A source that nothing can be done with: all of it is kept back."""
        return self._publication(item, [Document(content, piece=False).failed(error)], self._whole(item))

    def _whole(self, item: IntakeItem) -> FromSource:
        return FromSource(item.sequence, self.id, item.random_bits)

    def again(self, host_id: int, suspended: Message, sequence: int, ids: Callable[[], MessageId]) -> Publication:
        """What a suspended document becomes when it goes through the pipeline once more.

        From the start if it is a whole source; a piece of one is already decoded and taken apart.
        """
        source = str(suspended.context.get("FILE.ReceivedFileName") or suspended.id)
        piece = suspended.context.get(_STAGE) == _DISASSEMBLED
        documents = self._execute(source, suspended.body, piece=piece)
        cause = InPlaceOf(host_id, sequence, self.id)
        return self._standard(self._numbered(host_id, source, documents, ids, cause))

    def pushed(
        self,
        content: bytes,
        properties: Mapping[str, Value],
        ids: Callable[[], MessageId],
        *,
        most: int | None = None,
    ) -> Publication:
        """What becomes of bytes that somebody pushes to us, with these properties written to every message.

        TooManyMessagesError: there are more than `most` messages in them.
        """
        documents = self._execute(self.address, content)
        if most is not None and len(documents) > most:
            raise TooManyMessagesError(f"there are {len(documents):,} messages in it, and {most:,} is the most")
        written = [document.changed(written={**document.written, **properties}) for document in documents]
        return self._numbered(self.host_id, None, written, ids, Express(self.id))

    def _numbered(
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

    def _execute(self, source: str, content: bytes, *, piece: bool = False) -> Sequence[Document]:
        """Whatever a pipeline raises, the bytes are kept."""
        if not self.pipeline.may_take_long(content):  # setting an alarm takes microseconds, and files may be small
            return self._executed(source, content, piece=piece)
        try:
            with time_limit(self.time_limit):
                return self._executed(source, content, piece=piece)
        except OutOfTimeError as error:
            return [Document(content, piece=piece).failed(self._problem(source, error))]

    def _executed(self, source: str, content: bytes, *, piece: bool) -> Sequence[Document]:
        try:
            with FOREIGN_CODE:
                documents = self.pipeline.execute(content, piece=piece)
            return bounded(documents, content, piece=piece, stages=self.pipeline.may_take_long(content))
        except Exception as error:
            return [Document(content, piece=piece).failed(self._problem(source, error))]

    def _problem(self, source: str, error: BaseException) -> TerminalError:
        if isinstance(error, OutOfTimeError):
            return SlowPipelineError(f"the pipeline took more than {self.time_limit:g} seconds")
        logger.error("Receive location %r fails on %s", self.definition.name, source, exc_info=error)
        return unexpected(error)

    def _publication(
        self,
        item: IntakeItem,
        documents: Sequence[Document],
        cause: FromSource,
        *,
        first: int = 0,
        received: int = 0,
    ) -> Publication:
        """Documents of a source in the ledger: their ids go from `first` on, their numbers from what was `received`."""
        bits = item.random_bits
        shared = self._shared(str(message_id(bits, item.sequence, 0)), self.name_of(item.identity))
        end = len(documents) - 1 if cause.last else -1
        good = _without_error(documents)
        columns = None
        together = len(good) == len(documents) or not self.definition.route_failures
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
            if self.definition.route_failures:
                written = {**promoted, **written, _DESCRIPTION: brief(document.error)}
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
        if document.type is None or len(document.type) > _LONGEST_TYPE:
            return report
        return {**report, "ErrorReport.MessageType": document.type}

    def _sorted(self, host_id: int, made: Sequence[tuple[Message, Document]], cause: Cause) -> Publication:
        """The good ones apart from those that failed; a failure that is routed is a message like any other."""
        good: list[Message] = []
        failed: list[Failure] = []
        for message, document in made:
            if document.error is None or self.definition.route_failures:
                good.append(message)
            else:
                failed.append(Failure(message, document.error, document.code))
        return Publication(host_id, tuple(good), tuple(failed), cause)


def _without_error(documents: Sequence[Document]) -> Sequence[int]:
    if isinstance(documents, DocumentColumns):
        return range(len(documents))
    return [n for n, document in enumerate(documents) if document.error is None]


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
