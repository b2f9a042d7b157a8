"""Values of a database as JSON, exactly; and keys as bytes from which the same value can be bound again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec


class NotText(bytes):
    """What a database says is text, and is not UTF-8. No key can be that: as bytes it would not find its row again."""


_ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)
# What each kind of key is written as, and how it is read back. A float is no key: databases round it differently.
_KINDS: Mapping[type, tuple[bytes, Callable[[Any], str], Callable[[str], Any]]] = {
    int: (b"i", str, int),
    str: (b"s", str, str),
    Decimal: (b"n", str, Decimal),
    UUID: (b"u", str, UUID),
    datetime: (b"t", datetime.isoformat, datetime.fromisoformat),
    date: (b"d", date.isoformat, date.fromisoformat),
    bytes: (b"b", bytes.hex, bytes.fromhex),
}
_READ = {tag: read for tag, _, read in _KINDS.values()}


def as_document(row: Mapping[str, Any]) -> bytes:
    """One JSON object: decimals with their digits, times as ISO 8601, bytes as base64, what JSON lacks as text."""
    return _ENCODER.encode({name: _exact(value) for name, value in row.items()})


def key_to_bytes(key: Any) -> bytes:
    """Raises TypeError, with what it is instead, if it cannot be a key."""
    if isinstance(key, memoryview | bytearray):
        key = bytes(key)
    if key is None:
        raise TypeError("NULL")
    if isinstance(key, NotText):
        raise TypeError(f"{bytes(key)!r}, which is not UTF-8")
    if type(key) not in _KINDS:
        raise TypeError(
            f"a {type(key).__name__}, and a key is a whole number, a text, a decimal, a time, a UUID or bytes"
        )
    tag, write, _ = _KINDS[type(key)]
    return tag + write(key).encode()


def key_from_bytes(written: bytes) -> Any:
    return _READ[written[:1]](written[1:].decode())


def json_as_it_is(document: str | bytes) -> msgspec.Raw:
    """For JSON columns: to parse numbers would round them."""
    return msgspec.Raw(document)


def _exact(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value if value.is_finite() else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, NotText):
        return bytes(value)
    if isinstance(value, list | tuple):
        return [_exact(each) for each in value]
    return value
