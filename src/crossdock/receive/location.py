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
    ContextError,
    DocumentError,
    OutOfTimeError,
    PromotionError,
    SlowPipelineError,
    TerminalError,
    TooManyMessagesError,
    TransientError,
)
from crossdock.foreign import FOREIGN_CODE
from crossdock.message.context import members
from crossdock.message.message import POSITIONS, Message, MessageId
from crossdock.message.property import Value
from crossdock.message.publication import Express, FromSource, InPlaceOf, Publication
from crossdock.pipeline.build import receive_pipeline
from crossdock.pipeline.decode import LIMIT_BYTES
from crossdock.pipeline.definition import PipelineDefinition, SendPipelineDefinition
from crossdock.pipeline.document import Document, DocumentColumns
from crossdock.pipeline.limits import bounded, too_much
from crossdock.pipeline.lines import MESSAGES_LIMIT
from crossdock.pipeline.receive import Lines, ReceivePipeline, unexpected
from crossdock.receive.item import IntakeItem
from crossdock.receive.messages import LocationMessages, is_disassembled
from crossdock.receive.nothing import NothingToRead
from crossdock.receive.ranges import DEFAULT_RANGE_LIMITS, SIZE_LIMIT_BYTES, Cutter, first_position, kept_back
from crossdock.receive.time_limit import TIME_LIMIT_SECONDS, time_limit

logger = logging.getLogger(__name__)

_HEAD_BYTES = 1024 * 1024
# What a request itself gives to each of its messages, such as its query.
_REPEATED_BYTES = 16 * 1024 * 1024
# What a source gives to each of its messages: where it was found, which its sender may make long.
_NAMED_BYTES = 256 * 1024 * 1024
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


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
    messages: LocationMessages
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
        address = transport.printable(definition.address)
        return cls(
            id_,
            host_id,
            definition,
            NothingToRead() if is_pushed(made) else cast(ReceiveAdapter, made),
            receive_pipeline(definition.pipeline, unpacked_limit=unpacked_limit),
            address,
            LocationMessages(
                host_id,
                definition.port,
                definition.name,
                address,
                transport.type,
                frozenset(definition.labels),
                definition.route_failures,
            ),
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
        messages: int = DEFAULT_RANGE_LIMITS.range_messages,
        *,
        range_bytes: int = DEFAULT_RANGE_LIMITS.range_bytes,
        unread: TerminalError | None = None,
    ) -> Iterator[Range] | None:
        """A large source range by range, from `start` on, before which so many messages were received.

        No range has more than so many `messages`; it has at most `range_bytes`, or one line. None if it has to be read
        whole. Ends early if the source vanishes or changes. If `unread` is given no line goes through the pipeline:
        each is kept back with it.
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
        cutter = Cutter(self.adapter, item, start, range_bytes)
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
        return self.messages.of_source(
            item, self.name_of(item.identity), documents, cause, first=first, received=received
        )

    def failed_range(self, item: IntakeItem, range_: Range, error: TerminalError) -> Publication:
        """A range that nothing can be done with: every line is kept back."""
        documents = list(kept_back(range_.content, range_.start, error=error))
        return self._range(item, (range_.start, range_.end), range_.received, documents)

    def publication(self, item: IntakeItem, content: bytes) -> Publication:
        """What the content of a source becomes."""
        source = self.name_of(item.identity)
        return self._standard(self._made_whole(item, source, self._execute(source, content)))

    def _standard(self, made: Publication) -> Publication:
        """Of one message there is nothing to hold together: if nobody wants it, it is unrouted like any other."""
        return replace(made, all_or_nothing=True) if self.pipeline.standard and len(made.messages) > 1 else made

    def failed(self, item: IntakeItem, content: bytes, error: TerminalError) -> Publication:
        """A source that nothing can be done with: all of it is kept back."""
        kept = [Document(content, piece=False).failed(error)]
        return self._made_whole(item, self.name_of(item.identity), kept)

    def _made_whole(self, item: IntakeItem, source: str, documents: Sequence[Document]) -> Publication:
        cause = FromSource(item.sequence, self.id, item.random_bits)
        return self.messages.of_source(item, source, documents, cause)

    def again(self, host_id: int, suspended: Message, sequence: int, ids: Callable[[], MessageId]) -> Publication:
        """What a suspended document becomes when it goes through the pipeline once more.

        From the start if it is a whole source; a piece of one is already decoded and taken apart.
        """
        source = str(suspended.context.get("FILE.ReceivedFileName") or suspended.id)
        documents = self._execute(source, suspended.body, piece=is_disassembled(suspended))
        cause = InPlaceOf(host_id, sequence, self.id)
        return self._standard(self.messages.numbered(host_id, source, documents, ids, cause))

    def pushed(
        self,
        content: bytes,
        properties: Mapping[str, Value],
        ids: Callable[[], MessageId],
        *,
        most: int = MESSAGES_LIMIT,
    ) -> Publication:
        """What becomes of bytes that somebody pushes to us, with these properties written to every message.

        TooManyMessagesError: there are more than `most` messages in them, or too many for properties of that size.
        """
        documents = self._execute(self.address, content, most=most)
        if documents[0].code == TooManyMessagesError.code:
            raise TooManyMessagesError(f"there are more than {most:,} messages in it, which is the most")
        repeated = len(members(dict(properties)))
        if len(documents) * repeated > _REPEATED_BYTES:
            raise TooManyMessagesError(
                f"each of its {len(documents):,} messages would keep {repeated:,} bytes of its request's properties, "
                f"and {_REPEATED_BYTES:,} bytes together is the most"
            )
        written = [document.changed(written={**document.written, **properties}) for document in documents]
        return self.messages.numbered(self.host_id, None, written, ids, Express(self.id))

    def _execute(
        self, source: str, content: bytes, *, piece: bool = False, most: int = MESSAGES_LIMIT
    ) -> Sequence[Document]:
        """Whatever a pipeline raises, the bytes are kept."""
        if not self.pipeline.may_take_long(content):  # setting an alarm takes microseconds, and files may be small
            return self._executed(source, content, piece=piece, most=most)
        try:
            with time_limit(self.time_limit):
                return self._executed(source, content, piece=piece, most=most)
        except OutOfTimeError as error:
            return [Document(content, piece=piece).failed(self._problem(source, error))]

    def _executed(self, source: str, content: bytes, *, piece: bool, most: int) -> Sequence[Document]:
        try:
            with FOREIGN_CODE:
                documents = self.pipeline.execute(content, piece=piece, most=most)
            if len(documents) * len(source) > _NAMED_BYTES:
                problem = ContextError(
                    f"each of its {len(documents):,} messages would keep the {len(source):,} characters of its name; "
                    "send it in parts, or under a shorter name"
                )
                return [Document(content, piece=piece).failed(problem)]
            return bounded(documents, content, piece=piece, stages=self.pipeline.may_take_long(content))
        except Exception as error:
            return [Document(content, piece=piece).failed(self._problem(source, error))]

    def _problem(self, source: str, error: BaseException) -> TerminalError:
        if isinstance(error, OutOfTimeError):
            return SlowPipelineError(f"the pipeline took more than {self.time_limit:g} seconds")
        logger.error("Receive location %r fails on %s", self.definition.name, source, exc_info=error)
        return unexpected(error)


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
