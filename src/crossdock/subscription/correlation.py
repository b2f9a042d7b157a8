"""Correlation: how an instance subscription is found by the values of a few properties.

Publishers and subscribers work out the same hash from the same values, so that the store finds a running instance by
one lookup, however many of them wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from uuid import UUID

from crossdock.message.property import Value, format_value, type_of
from crossdock.subscription.match import fold


def correlation_hash(
    correlation: int, properties: Sequence[str], values: Mapping[str, Value], *, case_sensitive: bool
) -> UUID | None:
    """The hash of the values of these properties; None if one is absent, or is no value that equals itself."""
    digest = blake2b(str(correlation).encode(), digest_size=16)
    for name in properties:
        value = values.get(name)
        if value is None or value != value:
            return None
        text = f"{type_of(value)}:{_canonical(fold(value, case_sensitive=case_sensitive))}".encode(
            "utf-8", "surrogatepass"
        )
        digest.update(b"%d:%s" % (len(text), text))
    return UUID(bytes=digest.digest())


def _canonical(value: Value) -> str:
    """The same text for values that compare as equal."""
    if isinstance(value, Decimal):
        text = format(value, "f")  # normalize() would round to the precision of the context
        return (text.rstrip("0").rstrip(".") if "." in text else text) if value else "0"
    if isinstance(value, float):
        return repr(value + 0.0)  # -0.0 equals 0.0
    return value if isinstance(value, str) else format_value(value)


def shown_values(properties: Sequence[str], values: Mapping[str, Value]) -> list[str]:
    """The values as text, for people."""
    return [
        format_value(values[name]) if not isinstance(values[name], (str, datetime)) else str(values[name])
        for name in properties
    ]
