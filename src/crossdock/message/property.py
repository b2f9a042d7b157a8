"""Properties: a name and a type, declared once for the whole group, and values that are exactly what was written.

Values are always taken from their text, so `999.9999999999999991` is that decimal and not a float near it.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from enum import StrEnum
from typing import cast

from crossdock.errors import PromotionError, PropertyError

Value = str | int | Decimal | float | bool | datetime

# Written into a request, and promoted in what answers it.
TOKEN = "BTS.EpmRRCorrelationToken"  # noqa: S105 - the name of a property


class PropertyType(StrEnum):
    """The types a property can have; each has one way to be written as text."""

    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATETIME = "datetime"


_TYPES: Mapping[type, PropertyType] = {
    str: PropertyType.TEXT,
    int: PropertyType.INTEGER,
    Decimal: PropertyType.DECIMAL,
    float: PropertyType.FLOAT,
    bool: PropertyType.BOOLEAN,
    datetime: PropertyType.DATETIME,
}
DECIMAL_DIGITS_BEFORE_POINT = 20
DECIMAL_DIGITS_AFTER_POINT = 18

NAME_LIMIT = 200  # so that PostgreSQL can index it
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_NO_PLAIN_NUMBERS = dict.fromkeys(map(ord, "-.0123456789\n"))
_ZERO = Decimal(0)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SPECIAL_FLOATS = {"NaN": "nan", "INF": "inf", "+INF": "inf", "-INF": "-inf"}


def parse_value(type_: PropertyType, text: str) -> Value:
    """The value that `text` spells in this type. What does not fit is a PromotionError, never a near miss."""
    return PARSERS[type_](text)


def parse_values(type_: PropertyType, texts: Sequence[str | None]) -> list[Value | None]:
    """The same for many texts; where there is none there is no value."""
    if type_ is PropertyType.DECIMAL and None not in texts:
        together = "\n".join(cast(Sequence[str], texts))
        # Too short not to fit, and nothing that only Python takes for a number.
        if together.isascii() and not together.translate(_NO_PLAIN_NUMBERS) and _all_short(texts):
            with suppress(InvalidOperation):
                return [Decimal(text) or _ZERO for text in cast(Sequence[str], texts)]
    parse = PARSERS[type_]
    return [None if text is None else parse(text) for text in texts]


def format_value(value: Value) -> str:
    """The text that `parse_value` turns back into the same value."""
    if value.__class__ is Decimal:
        return format(value, "f")
    if value.__class__ is int:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}[repr(value)]
    return repr(value) if isinstance(value, float) else str(value)


def check_value(name: str, value: object) -> None:
    """Raise PromotionError unless the value can be kept: one of a property type, within its limits."""
    if not isinstance(value, str | bool | int | float | Decimal | datetime):
        raise PromotionError(f"property {name!r} cannot be {type(value).__name__}")
    try:
        parse_value(type_of(value), format_value(value))
    except PromotionError as error:
        raise PromotionError(f"property {name!r} is {type_of(value)}, and {error}") from error


def type_of(value: Value) -> PropertyType:
    """The property type a Python value stands for."""
    if (known := _TYPES.get(value.__class__)) is not None:
        return known
    if isinstance(value, bool):
        return PropertyType.BOOLEAN
    if isinstance(value, datetime):
        return PropertyType.DATETIME
    if isinstance(value, Decimal):
        return PropertyType.DECIMAL
    if isinstance(value, int):
        return PropertyType.INTEGER
    return PropertyType.FLOAT if isinstance(value, float) else PropertyType.TEXT


def _parse_integer(text: str) -> int:
    text = text.strip()
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        raise PromotionError(f"{_shown(text)} is not an integer")
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise PromotionError(f"{text} does not fit an integer of 64 bits")
    return value


def _parse_decimal(text: str) -> Decimal:
    if len(text) <= DECIMAL_DIGITS_AFTER_POINT:  # too short not to fit, if it is plainly a number
        plain = text.removeprefix("-").replace(".", "", 1)
        if plain.isdigit() and plain.isascii():
            return Decimal(text) or Decimal(0)
    text = text.strip()
    if not _NUMBER.fullmatch(text) or len(text) > 100:
        raise PromotionError(f"{_shown(text)} is not a decimal")
    value = Decimal(text)
    if value == 0:
        return Decimal(0)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # finite by the pattern above
    trailing_zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if len(digits) + exponent > DECIMAL_DIGITS_BEFORE_POINT or -exponent - trailing_zeros > DECIMAL_DIGITS_AFTER_POINT:
        raise PromotionError(
            f"{text} does not fit a decimal of {DECIMAL_DIGITS_BEFORE_POINT} digits before "
            f"and {DECIMAL_DIGITS_AFTER_POINT} after the point"
        )
    surplus = -exponent - DECIMAL_DIGITS_AFTER_POINT
    return value if surplus <= 0 else _without_zeros(value, surplus)


def _all_short(texts: Iterable[str | None]) -> bool:
    return max(map(len, filter(None, texts)), default=0) <= DECIMAL_DIGITS_AFTER_POINT


def _without_zeros(value: Decimal, count: int) -> Decimal:
    """Cut trailing zeros by their digits: arithmetic would round to the context's precision."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    return Decimal((sign, digits[:-count] or (0,), exponent + count))


def _parse_float(text: str) -> float:
    text = text.strip()
    if text in _SPECIAL_FLOATS:
        return float(_SPECIAL_FLOATS[text])
    if not _NUMBER.fullmatch(text):
        raise PromotionError(f"{_shown(text)} is not a float")
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise PromotionError(f"{_shown(text)} does not fit a float")
    return value


def _parse_boolean(text: str) -> bool:
    text = text.strip()
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise PromotionError(f"{_shown(text)} is not a boolean (true, false, 1 or 0)")
    return value


def _parse_datetime(text: str) -> datetime:
    text = text.strip()
    try:
        value = datetime.fromisoformat(text)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise PromotionError(f"{_shown(text)} is not a date and time in ISO 8601") from error


def _shown(text: str) -> str:
    """The value in quotes, cut where it would drown the sentence."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


# Blanks around a value do not count, but in text they are part of it.
PARSERS: Mapping[PropertyType, Callable[[str], Value]] = {
    PropertyType.TEXT: str,
    PropertyType.INTEGER: _parse_integer,
    PropertyType.DECIMAL: _parse_decimal,
    PropertyType.FLOAT: _parse_float,
    PropertyType.BOOLEAN: _parse_boolean,
    PropertyType.DATETIME: _parse_datetime,
}


# The system properties of the model, under their own names; True: promoted, False: only written (not routable).
SYSTEM_PROPERTIES: Mapping[str, tuple[PropertyType, bool]] = {
    "BTS.ReceivePortName": (PropertyType.TEXT, True),
    "BTS.ReceivePortID": (PropertyType.TEXT, True),
    "BTS.ReceiveLocationName": (PropertyType.TEXT, False),
    "BTS.InboundTransportLocation": (PropertyType.TEXT, True),
    "BTS.InboundTransportType": (PropertyType.TEXT, True),
    "BTS.MessageType": (PropertyType.TEXT, True),
    "BTS.InterchangeID": (PropertyType.TEXT, False),
    "BTS.InterchangeSequenceNumber": (PropertyType.INTEGER, True),
    "BTS.LastInterchangeMessage": (PropertyType.BOOLEAN, True),
    "BTS.MessageID": (PropertyType.TEXT, False),
    "BTS.SPTransportID": (PropertyType.TEXT, True),
    "BTS.SPTransportBackupID": (PropertyType.TEXT, True),
    "BTS.SPID": (PropertyType.TEXT, True),
    "BTS.SPGroupID": (PropertyType.TEXT, True),
    "BTS.SPName": (PropertyType.TEXT, True),
    "BTS.OutboundTransportLocation": (PropertyType.TEXT, True),
    "BTS.OutboundTransportType": (PropertyType.TEXT, True),
    "BTS.IsDynamicSend": (PropertyType.BOOLEAN, False),
    "BTS.Operation": (PropertyType.TEXT, True),
    "BTS.PartnerService": (PropertyType.TEXT, True),
    "BTS.PartnerPort": (PropertyType.TEXT, True),
    "BTS.CorrelationToken": (PropertyType.TEXT, True),
    TOKEN: (PropertyType.TEXT, True),
    "BTS.RouteDirectToTP": (PropertyType.BOOLEAN, True),
    "BTS.IsRequestResponse": (PropertyType.BOOLEAN, False),
    "BTS.IsFault": (PropertyType.BOOLEAN, False),
    "BTS.AckType": (PropertyType.TEXT, True),
    "BTS.AckID": (PropertyType.TEXT, True),
    "BTS.AckOwnerID": (PropertyType.TEXT, True),
    "FILE.ReceivedFileName": (PropertyType.TEXT, False),
    "ErrorReport.ErrorType": (PropertyType.TEXT, True),
    "ErrorReport.FailureCode": (PropertyType.TEXT, True),
    "ErrorReport.FailureCategory": (PropertyType.INTEGER, True),
    "ErrorReport.Description": (PropertyType.TEXT, False),
    "ErrorReport.MessageType": (PropertyType.TEXT, True),
    "ErrorReport.ReceivePortName": (PropertyType.TEXT, True),
    "ErrorReport.InboundTransportLocation": (PropertyType.TEXT, True),
    "ErrorReport.SendPortName": (PropertyType.TEXT, True),
    "ErrorReport.OutboundTransportLocation": (PropertyType.TEXT, True),
    "ErrorReport.RoutingFailureReportID": (PropertyType.TEXT, True),
}


_SYSTEM_NAMES = {name.lower() for name in SYSTEM_PROPERTIES} | {
    name.removeprefix("BTS.").lower() for name in SYSTEM_PROPERTIES
}


class PropertyRegistry:
    """The declared properties together with the system's; finds the full name and the type of a short one."""

    def __init__(self, declared: Mapping[str, PropertyType] | Iterable[tuple[str, PropertyType]] = ()) -> None:
        self._declared: dict[str, PropertyType] = {}
        self._by_folded: dict[str, str] = {}
        for name, type_ in dict(declared).items():
            self.declare(name, type_)

    @property
    def declared(self) -> Mapping[str, PropertyType]:
        return self._declared

    def __iter__(self) -> Iterator[str]:
        yield from self._declared
        yield from SYSTEM_PROPERTIES

    def declare(self, name: str, type_: PropertyType) -> None:
        """Add a property. The same declaration twice is fine; another type or another case is refused."""
        if not _NAME.fullmatch(name):
            raise PropertyError(f"Property {name!r} has no usable name: letters, digits, _ and dots between parts")
        if len(name) > NAME_LIMIT:
            raise PropertyError(f"Property {reprlib.repr(name)} has a name of more than {NAME_LIMIT} characters")
        if name.lower() in _SYSTEM_NAMES:
            raise PropertyError(f"Property {name!r} would hide the system property of that name; choose another name")
        other = self._by_folded.get(name.lower())
        if other is not None and other != name:
            raise PropertyError(f"Property {name!r} differs from {other!r} only by case; use one spelling")
        known = self._declared.get(name)
        if known is not None and known != type_:
            raise PropertyError(f"Property {name!r} is already declared as {known}, and cannot also be {type_}")
        self._declared[name] = type_
        self._by_folded[name.lower()] = name

    def resolve(self, name: str) -> str | None:
        """The full name: a declared property, a system property, or `BTS.<name>`; None if there is no such property."""
        if name in self._declared or name in SYSTEM_PROPERTIES:
            return name
        return f"BTS.{name}" if f"BTS.{name}" in SYSTEM_PROPERTIES else None

    def type_of(self, full_name: str) -> PropertyType:
        """The type of a name that `resolve` gave."""
        return self._declared.get(full_name) or SYSTEM_PROPERTIES[full_name][0]

    def routable(self, full_name: str) -> bool:
        """Whether a filter can use it: system properties that are only written never reach the router."""
        return full_name in self._declared or SYSTEM_PROPERTIES[full_name][1]

    def suggest(self, name: str) -> str | None:
        """The known property that was probably meant."""
        short = {known.removeprefix("BTS.").lower(): known.removeprefix("BTS.") for known in self}
        close = get_close_matches(name.lower(), short, n=1, cutoff=0.6)
        return short[close[0]] if close else None
