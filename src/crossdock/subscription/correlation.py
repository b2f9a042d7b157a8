"""Correlation: how an instance subscription is found by the values of a few properties.

Publishers and subscribers work out the same hash from the same values, so that the store finds a running instance by
one lookup, however many of them wait. It begins with the number of the correlation, so that the store can tell whose it
is: a host that subscribes is held to correlations of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from uuid import UUID

from crossdock.errors import brief
from crossdock.message.property import Value, format_value, type_of
from crossdock.subscription.match import fold


def correlation_hash(
    correlation: int, properties: Sequence[str], values: Mapping[str, Value], *, case_sensitive: bool
) -> UUID | None:
    """The hash of the values of these properties; None if one is absent, or is no value that equals itself."""
    digest = blake2b(str(correlation).encode(), digest_size=12)
    for name in properties:
        value = values.get(name)
        if value is None or value != value:
            return None
        text = f"{type_of(value)}:{_canonical(fold(value, case_sensitive=case_sensitive))}".encode(
            "utf-8", "surrogatepass"
        )
        digest.update(b"%d:%s" % (len(text), text))
    return UUID(bytes=correlation.to_bytes(4) + digest.digest())


def _canonical(value: Value) -> str:
    """The same text for values that compare as equal."""
    if isinstance(value, Decimal):
        text = format(value, "f")  # normalize() would round to the precision of the context
        return (text.rstrip("0").rstrip(".") if "." in text else text) if value else "0"
    if isinstance(value, float):
        return repr(value + 0.0)  # -0.0 equals 0.0
    return value if isinstance(value, str) else format_value(value)


def shown_values(properties: Sequence[str], values: Mapping[str, Value]) -> list[str]:
    """The values as text, for people. PostgreSQL's text does not hold NUL."""
    return [
        (format_value(values[name]) if not isinstance(values[name], (str, datetime)) else str(values[name])).replace(
            "\0", "\\0"
        )
        for name in properties
    ]


@dataclass(frozen=True, slots=True)
class CorrelationVerdict:
    """Whether a message may follow a correlation: it has one of its types, and nothing is `missing`."""

    name: str
    of_type: bool
    missing: tuple[str, ...]
    values: str

    @property
    def may_follow(self) -> bool:
        return self.of_type and not self.missing

    @property
    def reason(self) -> str:
        """Why no instance was given the message, or would be."""
        if not self.of_type:
            return f"correlation {self.name}: messages of this type do not follow it"
        if self.missing:
            return f"correlation {self.name}: {', '.join(self.missing)} is absent"
        return f"correlation {self.name}: no instance waits for {self.values}"


def explain_correlation(
    name: str,
    properties: Sequence[str],
    types: Collection[str],
    promoted: Mapping[str, Value],
    *,
    case_sensitive: bool = False,
) -> CorrelationVerdict:
    """What a message with these properties lacks to follow a correlation, or the values that an instance waits for."""
    kind = fold(promoted.get("BTS.MessageType"), case_sensitive=case_sensitive)
    of_type = kind is not None and kind in {fold(each, case_sensitive=case_sensitive) for each in types}
    missing = tuple(each for each in properties if promoted.get(each) is None)
    known = [each for each in properties if each not in missing]
    shown = zip(known, shown_values(known, promoted), strict=True)
    return CorrelationVerdict(name, of_type, missing, ", ".join(f"{each}={brief(value)}" for each, value in shown))
