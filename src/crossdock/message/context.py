"""The context of a message: properties, each written or promoted. Only promoted ones are routable.

Kept as JSON in the spool: text as a string, every other type as `{"<type>": "<text>"}`, so that no number is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any, TypeGuard

import msgspec

from crossdock.errors import ContextError, PromotionError
from crossdock.message.property import PropertyType, Value, format_value, parse_value, type_of

# The longest text that is only written, in characters; a promoted one is shorter (`text_limit` of the settings).
WRITTEN_TEXT_LIMIT = 64 * 1024
# Of one context as it is stored. A claim reads up to 500 of them at once.
CONTEXT_LIMIT_BYTES = 1024 * 1024
PROPERTIES_LIMIT = 1_000

_to_json = msgspec.json.Encoder().encode
_to_lines = msgspec.json.Encoder().encode_lines


class Context(msgspec.Struct, frozen=True):
    """Immutable; `promote` and `write` give a new one. Writing demotes, writing None removes.

    Only a host that has all the `labels` of a message is given it.
    """

    promoted: Mapping[str, Value] = msgspec.field(default_factory=dict)
    written: Mapping[str, Value] = msgspec.field(default_factory=dict)
    labels: frozenset[str] = frozenset()

    def promote(self, name: str, value: Value) -> Context:
        return Context({**self.promoted, name: value}, _without(self.written, name), self.labels)

    def write(self, name: str, value: Value | None) -> Context:
        written = _without(self.written, name)
        kept = written if value is None else {**written, name: value}
        return Context(_without(self.promoted, name), kept, self.labels)

    def get(self, name: str) -> Value | None:
        """The value, promoted or written; None if there is none."""
        return self.promoted.get(name, self.written.get(name))

    def to_json(self) -> bytes:
        """As it is stored. Raises ContextError if that is more than the MessageBox keeps."""
        kept: dict[str, object] = {"promoted": _encode(self.promoted), "written": _encode(self.written)}
        if self.labels:
            kept["labels"] = sorted(self.labels)
        stored = _to_json(kept)
        if len(stored) > CONTEXT_LIMIT_BYTES or len(self.promoted) + len(self.written) > PROPERTIES_LIMIT:
            raise self._too_large(len(stored))
        return stored

    def _too_large(self, size: int) -> ContextError:
        count = len(self.promoted) + len(self.written)
        if count > PROPERTIES_LIMIT:
            return ContextError(f"its context has {count:,} properties, and {PROPERTIES_LIMIT:,} is the most")
        texts = {name: len(value) for name, value in [*self.promoted.items(), *self.written.items()] if _is_text(value)}
        largest = max(texts, key=lambda name: texts[name], default=None)
        named = "" if largest is None else f"; the longest is {largest!r} with {texts[largest]:,} characters"
        return ContextError(f"its context has {size:,} bytes, and {CONTEXT_LIMIT_BYTES:,} is the most{named}")

    @classmethod
    def from_json(cls, document: bytes | str) -> Context:
        """What was stored. Raises ContextError if that is no context: whoever may write to the MessageBox wrote it."""
        try:
            kept = msgspec.json.decode(document)
            promoted, written = kept["promoted"], kept["written"]
            if len(promoted) + len(written) > PROPERTIES_LIMIT:  # each takes many times its bytes
                raise ValueError("it has more properties than are kept")
            labels = _decode_labels(kept["labels"]) if "labels" in kept else frozenset()
            return cls(_decode(promoted), _decode(written), labels)
        except Exception as error:  # there are many ways to be no context
            raise ContextError(f"its context cannot be read ({type(error).__name__})") from error


def members(values: Mapping[str, Value]) -> bytes:
    """The properties as members of a JSON object, as `to_json` writes them."""
    return _to_json(_encode(values))[1:-1]


def encoded_values(values: Sequence[Value | None]) -> list[bytes]:
    """Each as `to_json` writes it."""
    kinds = set(map(type, values)) - {NoneType}
    kept: Iterable[object] = values
    if len(kinds) == 1 and not kinds & {str}:
        type_ = type_of(next(value for value in values if value is not None))
        kept = [None if value is None else {type_: format_value(value)} for value in values]
    elif kinds - {str}:
        kept = [None if value is None else _encode_typed(value) for value in values]
    return _to_lines(kept).split(b"\n")[:-1]  # JSON holds no line end


def _is_text(value: Value) -> TypeGuard[str]:
    return value.__class__ is str


def _without(values: Mapping[str, Value], name: str) -> Mapping[str, Value]:
    return {known: value for known, value in values.items() if known != name} if name in values else values


def _encode(values: Mapping[str, Value]) -> Mapping[str, Value | dict[str, str]]:
    # Most are text: a copy with the few others replaced takes half the time of looking at each in turn.
    typed = {name: _encode_typed(value) for name, value in values.items() if value.__class__ is not str}
    return {**values, **typed} if typed else values


def _encode_typed(value: Value) -> str | dict[str, str]:
    return value if isinstance(value, str) else {type_of(value): format_value(value)}


def _decode(kept: Mapping[str, Any]) -> Mapping[str, Value]:
    typed = {name: _decode_typed(value) for name, value in kept.items() if value.__class__ is not str}
    return {**kept, **typed} if typed else kept


def _decode_labels(kept: object) -> frozenset[str]:
    if not isinstance(kept, list) or len(kept) > PROPERTIES_LIMIT or not all(isinstance(label, str) for label in kept):
        raise TypeError("labels are a list of texts")
    return frozenset(kept)


def _decode_typed(kept: Mapping[str, str]) -> Value:
    ((type_, text),) = kept.items()
    if text.__class__ is not str:
        raise TypeError("a value is kept as text")
    if len(text) <= _SURELY_FITS and (read := _READ.get(type_)) is not None:
        try:
            return read(text)
        except (ValueError, ArithmeticError):
            return text
    try:
        return parse_value(PropertyType(type_), text)
    except PromotionError:  # whoever wrote it did not check it; a message that cannot be read could not be delivered
        return text


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite() or abs(value.adjusted()) > _LARGEST_EXPONENT:  # whoever prints it would fill the memory
        raise ValueError(text)
    return value


# What was written with care is read without: every claim reads every property.
_SURELY_FITS = 18
_LARGEST_EXPONENT = 38
_READ: Mapping[str, Callable[[str], Value]] = {
    PropertyType.INTEGER: int,
    PropertyType.DECIMAL: _decimal,
    PropertyType.BOOLEAN: "true".__eq__,
}
