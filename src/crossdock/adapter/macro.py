"""Macros in addresses and headers: `%MessageID%`, and `%Name%` for the property of that name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from crossdock.message.message import Message
from crossdock.message.property import Value, format_value

# A letter that is escaped for a URL, as %C3%A4, comes first: `%C3%` in it is no macro.
_MACRO = re.compile(
    r"%[C-F][0-9A-F](?:%[89AB][0-9A-F])+|%(?P<name>[A-Z_]\w*(?:\.[A-Z_]\w*)*)%", re.ASCII | re.IGNORECASE
)


def expand(
    text: str, message: Message, written: Callable[[str], str] = str, *, more: Mapping[str, str] | None = None
) -> str:
    """The text with the value of each macro, as `written` gives it; a property that is missing is empty.

    `more` are macros that are no properties, with their values.
    """

    def value(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        name = found["name"]
        value = more[name] if more is not None and name in more else property_of(message, name)
        return "" if value is None else written(format_value(value))

    return _MACRO.sub(value, text)


def macros_in(text: str) -> list[str]:
    """The names of the macros, in their order."""
    return [found["name"] for found in _MACRO.finditer(text) if found["name"]]


def has_macro(text: str) -> bool:
    return bool(macros_in(text))


def without_macros(text: str) -> str:
    """The text with a letter for each macro, which may look like one that is escaped: `%Account%` begins with %AC."""
    return _MACRO.sub(lambda found: "x" if found["name"] else found[0], text)


def property_of(message: Message, name: str) -> Value | None:
    """The id, or a property by its name or by a system property's short name; None if there is none."""
    if name == "MessageID":
        return str(message.id)
    value = message.context.get(name)
    return message.context.get(f"BTS.{name}") if value is None else value
