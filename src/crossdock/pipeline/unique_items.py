"""`uniqueItems` of a JSON Schema in linear time.

The library compares every two items, and numbers that fit no float digit by digit: a few kilobytes of long numbers kept
the whole process waiting for minutes.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any


class UniqueItems:
    """A keyword as the library wants it."""

    def __init__(self, _schema: object, wanted: object, _path: object) -> None:
        self._wanted = wanted is True

    def validate(self, instance: Any) -> None:
        items = instance if self._wanted and isinstance(instance, list) else []
        # As texts: numbers can be chosen so that their hashes are all the same.
        if len(set(map(_text, items))) < len(items):
            raise ValueError("the items are not unique")


def _text(value: Any) -> str:
    """The same for values that JSON Schema takes for the same: 1, 1.0 and 10e-1, but not true."""
    match value:
        case bool() | None:
            return str(value)
        case str():
            return repr(value)
        case int() | float() | Decimal():
            return _number(value if isinstance(value, Decimal) else Decimal(str(value)))
        case list():
            return f"[{','.join(map(_text, value))}]"
        case dict():
            return f"{{{','.join(f'{name!r}:{_text(value[name])}' for name in sorted(value))}}}"
        case _:
            raise TypeError(f"{value!r} is no value of JSON")


def _number(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    if not kept:
        return "0"
    return f"{'-' * sign}{kept}e{int(exponent) + len(text) - len(kept)}"
