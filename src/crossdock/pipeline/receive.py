"""The receive pipeline: decodes a file, takes it apart into documents, gives each its type and promotes its properties.

Stages, in order: decode, disassemble (with promotion), validate, custom components, map. A recoverable interchange
keeps the good documents and reports the bad ones; a standard one is all or nothing.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Protocol, runtime_checkable

from crossdock.errors import DocumentError, PipelineError, PromotionError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.pipeline.custom import Checks
from crossdock.pipeline.document import Document, DocumentColumns, LineReader
from crossdock.pipeline.lines import MESSAGES_LIMIT, lines_of, too_many
from crossdock.pipeline.map import Transform
from crossdock.pipeline.validate import Validator

logger = logging.getLogger(__name__)

_LITTLE_BYTES = 64 * 1024

Decoder = Callable[[bytes], bytes]
Component = Callable[[Document], Document]


class Disassembler(Protocol):
    """Takes bytes apart. Raises DocumentError if that cannot be done at all."""

    def disassemble(self, content: bytes, *, piece: bool = False) -> Iterator[Document]:
        """The documents in a source; of a `piece`, which was found in one before, just that one."""


Together = Callable[[bytes, int | None], DocumentColumns | None]


def _together_of(disassembler: object) -> Together | None:
    """How a disassembler takes files apart all at once, or the lines from a start on, which takes half the time.

    None where it cannot. What it gives is None if one has to look at each document. It is asked for by name: asking
    for a protocol would take longer than a small file.
    """
    return getattr(disassembler, "together", None)


@runtime_checkable
class LineDisassembler(Protocol):
    """Can take some files apart line by line, and so need not have all of one at once."""

    def by_lines(self, head: bytes) -> LineReader | None:
        """How to read a file that begins so; None if that one cannot be read by lines."""


# By the type of the document: how it is turned, and what gives the result its type and its properties.
Maps = Mapping[str, tuple[Transform, Disassembler]]


@dataclass(frozen=True, slots=True)
class PassThrough:
    """The file is the message, whatever it holds; it has no type."""

    def disassemble(self, content: bytes, *, piece: bool = False) -> Iterator[Document]:  # noqa: ARG002
        yield Document(content)


@dataclass(frozen=True, slots=True)
class CustomDisassembler:
    """A function that gives the bytes of each message, which have no type, or whole documents."""

    name: str
    function: Callable[[bytes], Iterable[bytes | Document]]
    checks: Checks

    def disassemble(self, content: bytes, *, piece: bool = False) -> Iterator[Document]:
        if piece:
            raise DocumentError(
                f"it was found by {self.name}, which cannot take it up again; save it and send it again"
            )
        for found in self.function(content):
            document = found if isinstance(found, Document) else Document(found)
            if not isinstance(document.body, bytes):
                raise DocumentError(f"{self.name} gives {type(document.body).__name__} instead of bytes")
            yield self._checked(document)

    def _checked(self, document: Document) -> Document:
        """Its bytes are safe with us: what is wrong with its properties is its own affair."""
        try:
            return self.checks.checked(self.name, document, Document(document.body))
        except DocumentError as error:
            return Document(document.body).failed(error)


@dataclass(frozen=True, slots=True)
class Validated:
    """What a disassembler gives has to fit a schema too."""

    disassembler: Disassembler
    validate: Validator

    def disassemble(self, content: bytes, *, piece: bool = False) -> Iterator[Document]:
        for document in self.disassembler.disassemble(content, piece=piece):
            try:
                if document.error is None:
                    self.validate(document.body)
                yield document
            except DocumentError as error:
                yield document.failed(error)


@dataclass(frozen=True, slots=True)
class Lines:
    """Reads whole lines of a large file, given where in it they begin: takes them apart, then finishes each."""

    read: LineReader
    finish: Component
    together: Callable[[bytes, int], DocumentColumns | None] = lambda *_: None

    def __call__(self, content: bytes, start: int) -> Iterable[Document]:
        run = self.together(content, start)
        return map(self.finish, self.read(content, start)) if run is None else run

    def place_of(self, content: bytes, start: int, number: int) -> int:
        """How many bytes come before the line of the document that so many others precede."""
        ends = [0, *accumulate(len(line) + 1 for line in lines_of(content))][:-1]
        return ends[bisect_right(ends, number, lo=1, key=lambda end: self._documents(content[:end], start)) - 1]

    def _documents(self, content: bytes, start: int) -> int:
        try:
            with FOREIGN_CODE:
                return sum(1 for _ in self.read(content, start))
        except Exception:  # the one that is looked for cannot even be taken apart
            return len(content) + 1


@dataclass(frozen=True, slots=True)
class ReceivePipeline:
    """`decodes`: decoding changes what ordinary files hold."""

    disassembler: Disassembler
    decoders: Sequence[Decoder] = ()
    decodes: bool = False
    validators: Mapping[str, Validator] = field(default_factory=dict)
    components: Sequence[Component] = ()
    maps: Maps = field(default_factory=dict)
    standard: bool = False

    def may_take_long(self, content: bytes) -> bool:
        """Whether it does more than to take apart and promote, or has much to do."""
        return (
            self._has_stages
            or self.decodes
            or isinstance(self.disassembler, CustomDisassembler)
            or len(content) > _LITTLE_BYTES
        )

    def execute(self, content: bytes, *, piece: bool = False, most: int = MESSAGES_LIMIT) -> Sequence[Document]:
        """The documents in a source, so many at the `most`; or, of a `piece` that was found in one before, it again."""
        try:
            decoded = content
            for decode in () if piece else self.decoders:
                decoded = decode(decoded)
            # Blank lines are no messages, and are told apart below.
            few = most >= MESSAGES_LIMIT or decoded.count(b"\n") <= most
            if not piece and few and (run := self._together(decoded)) is not None:
                if len(run) > most:
                    raise too_many(most)
                return run
            found = self.disassembler.disassemble(decoded, piece=piece)
            documents = list(islice(map(self._finished, found), most + 1))
            if not documents:
                raise DocumentError("the file holds no message")
            if len(documents) > most:
                raise too_many(most)
        except (DocumentError, PromotionError) as error:
            return [Document(content, piece=piece).failed(error)]
        failed = next((document for document in documents if document.error is not None), None)
        if failed is None or (len(documents) > 1 and not self.standard):
            return documents
        if len(documents) == 1:
            return [failed.changed(piece=piece or failed.body is not content)]
        reason = f"{failed.error} (all of the file is kept back: its interchange is standard)"
        return [Document(content, error=reason, piece=piece, code=failed.code)]

    def _together(self, content: bytes, start: int | None = None) -> DocumentColumns | None:
        if self._has_stages:
            return None
        together = _together_of(self.disassembler)
        return None if together is None else together(content, start)

    @property
    def _has_stages(self) -> bool:
        return bool(self.validators or self.components or self.maps)

    def by_lines(self, head: bytes) -> Lines | None:
        """How to read a large file range by range; None if it has to be read whole."""
        if self.standard or self.decodes or not isinstance(self.disassembler, LineDisassembler):
            return None
        read = self.disassembler.by_lines(head)
        return None if read is None else Lines(read, self._finished, self._together)

    def _finished(self, document: Document) -> Document:
        """Through the stages that look at one document at a time."""
        if document.error is not None or not self._has_stages:
            return document
        done = document
        try:
            with FOREIGN_CODE:
                if (validate := self.validators.get(document.type or "")) is not None:
                    validate(document.body)
                for component in self.components:
                    done = component(done)
                    if done.error is not None:
                        return document.changed(promoted={}, written={}, error=done.error, code=done.code)
                return mapped(done, self.maps)
        except (DocumentError, PromotionError) as error:
            return document.failed(error)
        except Exception as error:  # what foreign code raises fails this document and no other
            logger.debug("A component failed", exc_info=error)
            return document.failed(unexpected(error))


def unexpected(error: BaseException) -> PipelineError:
    """Why a document is suspended on which a pipeline raised what it should not."""
    return PipelineError(f"the pipeline failed: {described(error)}")


def mapped(document: Document, maps: Maps) -> Document:
    """What the map for its type makes of a document; it keeps what was promoted unless that is promoted anew."""
    if (document.type or "") not in maps:
        return document
    transform, target = maps[document.type or ""]
    turned = transform(document.body)
    try:
        results = list(target.disassemble(turned, piece=True))
    except DocumentError as error:
        reason = str(error).replace("the file", "it")  # which is no file
        raise DocumentError(f"what the map makes of it cannot be used: {reason}") from error
    if len(results) != 1:
        raise DocumentError(f"the map makes {len(results)} messages of it, and must make one")
    [made] = results
    if made.error is not None:
        raise DocumentError(f"what the map makes of it cannot be used: {made.error}")
    inherited = {name: value for name, value in document.promoted.items() if name != "BTS.MessageType"}
    promoted = {**inherited, **made.promoted}
    return Document(made.body, made.type, promoted, {**document.written, **made.written})
