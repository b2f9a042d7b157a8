"""Bodies as values: JSON with exact numbers, and XML that nothing can be smuggled into."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from crossdock.errors import DocumentError

_BOM = b"\xef\xbb\xbf"
# Whoever makes a whole number of `1e999999999`, or prints it, would hold the process for hours and fill its memory.
_LARGEST_EXPONENT = 6_144  # of a decimal of 128 bits
_LONGEST_NUMBER = 10_000  # in characters


def _number(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:  # its exponent is beyond what Python can hold
        value = None
    if value is None or len(text) > _LONGEST_NUMBER or abs(value.adjusted()) > _LARGEST_EXPONENT:
        raise DocumentError(f"the body has a number that is too large or too long: {text[:40]}")
    return value


_decode = msgspec.json.Decoder(float_hook=_number).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode
_XML_OPTIONS: Mapping[str, Any] = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "dtd_validation": False,
    "attribute_defaults": False,
    "huge_tree": False,
    "strip_cdata": False,
}


def parse_json(body: bytes) -> Any:
    """The value; a number with a point or an exponent is a Decimal, of at most 10,000 digits. Raises DocumentError."""
    try:
        return _decode(body.removeprefix(_BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"the body is not JSON: {error}") from error


def write_json(value: object) -> bytes:
    """A value as JSON, a Decimal as the number that it is. Raises DocumentError for what JSON cannot hold."""
    try:
        written = _encode(value)
        if b"NaN" in written or b"Infinity" in written:
            _decode(written)  # fails, unless it is only within a text
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # DecodeError is a ValueError
        raise DocumentError(f"it cannot be written as JSON: {error}") from error
    return written


def parse_xml(body: bytes) -> Any:
    """The root element (lxml). A document type declaration is refused, and so is every entity. Raises DocumentError."""
    from lxml import etree  # most messages are never read as XML

    try:
        root = etree.fromstring(body, etree.XMLParser(**_XML_OPTIONS))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DocumentError(f"the body is not XML: {error}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise DocumentError("the body has a document type declaration, which is not taken")
    return root
