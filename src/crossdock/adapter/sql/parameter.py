"""What the parameters of a statement stand for: the message, its properties, or the fields of a JSON body."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec

from crossdock.adapter.macro import property_of
from crossdock.errors import ApplicationError, TerminalError
from crossdock.message.json_field import member
from crossdock.message.message import Message

_STEP = re.compile(r"\.([^.\[\]'\"\s]+)|\[([0-9]+)\]|\['([^']+)'\]")
_INTEGER_64 = range(-(2**63), 2**63)
_COMMAS_LIMIT = 2_000_000
_DECODER = msgspec.json.Decoder(float_hook=Decimal)  # a float would round it
_ENCODER = msgspec.json.Encoder(decimal_format="number")

Path = Sequence[str | int]


class Parameters:
    """The parameters `names`: each is the property or the path that `given` says, or else what has its name."""

    def __init__(self, names: Sequence[str], given: Mapping[str, str], *, plain: bool) -> None:
        for name in given:
            if name not in names:
                raise ApplicationError(f"`parameters` has {name!r}, and the statement has no :{name}")
        self._paths = {name: _parsed(value) for name, value in given.items() if value.startswith("$")}
        self._named = {name: given.get(name, name) for name in names if name not in self._paths}
        self._plain = plain

    def of(self, message: Message) -> dict[str, Any]:
        """The values to bind; None for what the message does not have. TerminalError: its body is no text."""
        content = _Content(message)
        values = {name: _named(content, source) for name, source in self._named.items()}
        values |= {name: _at(content.document, path) for name, path in self._paths.items()}
        return {name: self._bindable(value) for name, value in values.items()}

    def _bindable(self, value: Any) -> Any:
        if isinstance(value, dict | list):
            return _ENCODER.encode(value).decode()
        if not self._plain or isinstance(value, bool):
            return value
        # SQLite has neither decimals nor times; as text they are exact, and a numeric column makes numbers of them.
        if isinstance(value, datetime):
            return value.isoformat()
        exact = isinstance(value, Decimal) or (isinstance(value, int) and value not in _INTEGER_64)
        return str(value) if exact else value


class _Content:
    """A message whose body is read only if a parameter needs it, and once."""

    def __init__(self, message: Message) -> None:
        self.message = message

    @cached_property
    def text(self) -> str:
        try:
            return self.message.body.decode()
        except UnicodeDecodeError:
            raise TerminalError("the body is not text in UTF-8, so that it cannot be a parameter") from None

    @cached_property
    def document(self) -> msgspec.Raw | None:
        """None if the body is not JSON."""
        body = self.message.body.removeprefix(b"\xef\xbb\xbf")
        try:
            body.decode()
            return msgspec.json.decode(body, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def _named(content: _Content, name: str) -> Any:
    if name == "Body":
        return content.text
    value = property_of(content.message, name)
    return _at(content.document, (name,)) if value is None else value


def _at(document: msgspec.Raw | None, path: Path) -> Any:
    """None if it is not there. Only that is taken apart: as values, a body takes thirty times its bytes."""
    if document is None:
        return None
    found = document
    try:
        for step in path:
            found = _element(found, step) if isinstance(step, int) else member(found, step)
        return _DECODER.decode(found)
    except (msgspec.DecodeError, LookupError, RecursionError, ArithmeticError):
        return None


def _element(array: msgspec.Raw, place: int) -> msgspec.Raw:
    if bytes(array).count(b",") > _COMMAS_LIMIT:
        raise TerminalError(f"a parameter is an element of an array with more than {_COMMAS_LIMIT:,} commas in it")
    return msgspec.json.decode(array, type=list[msgspec.Raw])[place]


def _parsed(path: str) -> Path:
    steps: list[str | int] = []
    position = 1
    while (found := _STEP.match(path, position)) is not None:
        name, index, quoted = found.groups()
        steps.append(int(index) if index is not None else name or quoted)
        position = found.end()
    if position != len(path):
        raise ApplicationError(f"{path!r} is not a path to one field; write it as $.order.lines[0].amount")
    return tuple(steps)
