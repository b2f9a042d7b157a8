"""The send pipeline: turns the body of a message into the bytes that go out.

Stages, in order: map, custom components, assemble, encode. Whatever fails is a DocumentError, and the message stays as
it was; only a component may ask for another attempt, by a TransientError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crossdock.errors import CrossdockError, DocumentError, PromotionError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.pipeline.assemble import Assembler
from crossdock.pipeline.decode import LIMIT_BYTES
from crossdock.pipeline.document import Document
from crossdock.pipeline.receive import Component, Maps, mapped

Encoder = Callable[[bytes], bytes]
_TYPE = "BTS.MessageType"


@dataclass(frozen=True, slots=True)
class Step:
    """A function that the application names: a component, which takes a document, or an encoder, which takes bytes."""

    name: str
    function: Callable[[Any], Any]

    def __call__(self, given: Any) -> Any:
        try:
            with FOREIGN_CODE:
                made = self.function(given)
        except CrossdockError:
            raise
        except Exception as error:
            raise DocumentError(f"{self.name} fails on it: {described(error)}") from error
        if not isinstance(made, type(given)):
            raise DocumentError(f"{self.name} gives {type(made).__name__} instead of {type(given).__name__}")
        return made


@dataclass(frozen=True, slots=True)
class SendPipeline:
    """Without an assembler the body goes out as it is, whatever it holds."""

    maps: Maps = field(default_factory=dict)
    components: Sequence[Component] = ()
    assembler: Assembler | None = None
    encoders: Sequence[Encoder] = ()

    def execute(self, message: Message) -> Message:
        """The message as it goes out: its id and context, and a new body.

        One that no stage is for is given back as it is, so that a large part is not read. A map replaces
        `BTS.MessageType`; what components promote or write is in the context too. Raises DocumentError.
        """
        type_ = message.context.get(_TYPE)
        if self._only_maps and (type_ or "") not in self.maps:
            return message
        try:
            document = self._mapped(_document(message))
            for component in self.components:
                document = _checked(component(document))
            content = document.body if self.assembler is None else self.assembler(document)
            for encode in self.encoders:
                content = encode(content)
        except PromotionError as error:
            raise DocumentError(str(error)) from error
        context = Context(document.promoted, document.written, message.context.labels)
        parts = (Part(message.parts[0].name, content), *message.parts[1:])
        return Message(message.id, context, parts, message)

    @property
    def _only_maps(self) -> bool:
        return not self.components and self.assembler is None and not self.encoders

    def _mapped(self, document: Document) -> Document:
        """A map changes the body and its type. The properties are those by which the message was routed."""
        made = mapped(document, self.maps)
        if made is document:
            return document
        context = Context(document.promoted, document.written)
        context = context.write(_TYPE, None) if made.type is None else context.promote(_TYPE, made.type)
        return Document(made.body, made.type, context.promoted, context.written)


def _document(message: Message) -> Document:
    """Of the whole body, which is in memory from here on."""
    content = bytearray()
    for chunk in message.parts[0].chunks():
        content += chunk
        if len(content) > LIMIT_BYTES:
            raise DocumentError(f"the body has more than {LIMIT_BYTES:,} bytes, and can only be passed through")
    type_ = message.context.get(_TYPE)
    return Document(
        bytes(content), None if type_ is None else str(type_), message.context.promoted, message.context.written
    )


def _checked(document: Document) -> Document:
    if document.error is not None:
        raise DocumentError(document.error)
    return document
