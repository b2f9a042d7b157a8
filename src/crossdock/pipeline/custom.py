"""What code of an application's own gives: looked at before anything is done with it, and named where it is wrong.

A document that a component made unusable fails alone; in the MessageBox it would take its whole source with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from crossdock.errors import DocumentError, PromotionError
from crossdock.message.context import WRITTEN_TEXT_LIMIT
from crossdock.message.property import SYSTEM_PROPERTIES, PropertyType, Value, check_value, type_of
from crossdock.pipeline.document import Document

_TYPE = "BTS.MessageType"
_EXACT = (str, bool, int, float, Decimal, datetime)


@dataclass(frozen=True, slots=True)
class Checks:
    """`types`: those of the declared properties, as far as they are known. `text_limit`: of a promoted text."""

    types: Mapping[str, PropertyType] = field(default_factory=dict)
    text_limit: int = 256

    def checked(self, name: str, made: Any, before: Document) -> Document:
        """What `name` made of the document `before`, with values as the MessageBox keeps them. Raises DocumentError."""
        if not isinstance(made, Document):
            raise DocumentError(f"{name} gives {type(made).__name__} instead of a Document")
        if made.error is not None:
            return made
        if not isinstance(made.body, bytes):
            raise DocumentError(f"{name} gives a body that is {type(made.body).__name__} instead of bytes")
        try:
            promoted = self._values(made.promoted, before.promoted, self.text_limit)
            written = self._values(made.written, before.written, max(self.text_limit, WRITTEN_TEXT_LIMIT))
            return _typed(made.changed(promoted=promoted, written=written), before)
        except PromotionError as error:
            raise DocumentError(f"{name} gives what cannot be kept: {error}") from error

    def _values(self, given: Any, before: Mapping[str, Value], limit: int) -> Mapping[str, Value]:
        if not isinstance(given, Mapping):
            raise PromotionError(f"properties are a mapping, not {type(given).__name__}")
        return {
            name: value if name in before and before[name] is value else self._value(name, value, limit)
            for name, value in given.items()
        }

    def _value(self, name: Any, value: Any, limit: int) -> Any:
        if not isinstance(name, str):
            raise PromotionError(f"the name of a property is text, not {name!r}")
        system = SYSTEM_PROPERTIES.get(name)
        fitting = _fitting(name, value, self.types.get(name) if system is None else system[0])
        try:
            check_value(name, fitting)
        except (OverflowError, ValueError) as error:  # too many digits, or a time that is in no year
            raise PromotionError(f"property {name!r} is out of all bounds: {error}") from error
        if isinstance(fitting, str):
            _check_text(name, fitting, limit)
        return fitting


@dataclass(frozen=True, slots=True)
class CustomComponent:
    """A function from a document to a document."""

    name: str
    function: Callable[[Document], Document]
    checks: Checks

    def __call__(self, document: Document) -> Document:
        return self.checks.checked(self.name, self.function(document), document)


@dataclass(frozen=True, slots=True)
class CustomDecoder:
    """A function from bytes to bytes."""

    name: str
    function: Callable[[bytes], bytes]

    def __call__(self, content: bytes) -> bytes:
        decoded = self.function(content)
        if not isinstance(decoded, bytes):
            raise DocumentError(f"{self.name} gives {type(decoded).__name__} instead of bytes")
        return decoded


def _typed(made: Document, before: Document) -> Document:
    """The type and what is promoted as BTS.MessageType are one, whichever of them was changed."""
    if made.type is not None and not isinstance(made.type, str):
        raise PromotionError(f"the type of a message is text, not {type(made.type).__name__}")
    promoted = made.promoted.get(_TYPE)
    if made.type == before.type and promoted == before.promoted.get(_TYPE):
        return made
    type_ = made.type if made.type != before.type or promoted is None else str(promoted)
    others = {name: value for name, value in made.promoted.items() if name != _TYPE}
    return made.changed(type=type_, promoted=others if type_ is None else {**others, _TYPE: type_})


def _fitting(name: str, value: Any, known: PropertyType | None) -> Any:
    """The value as its property has it: a whole number may be any number, and a time without a zone is UTC."""
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    if not isinstance(value, _EXACT):
        return value  # no property can be that, which is said elsewhere
    if isinstance(value, str) and type(value) is not str:
        value = str.__str__(value)
    given = type_of(value)
    if known is None or given == known:
        return value
    if given == PropertyType.INTEGER and known == PropertyType.DECIMAL:
        return Decimal(value)
    if given == PropertyType.INTEGER and known == PropertyType.FLOAT:
        return float(value)
    raise PromotionError(f"property {name!r} is {known}, and not {given}")


def _check_text(name: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise PromotionError(f"property {name!r} has {len(text)} characters, and {limit} is the most")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromotionError(f"property {name!r} is no text that can be written as UTF-8") from error
