"""JSON: one document, an array or lines, taken apart into the exact bytes of each message, and fields found by path.

Numbers are never turned into floats: a field is its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np

from crossdock.errors import ApplicationError, DocumentError, PromotionError

Split = Literal["document", "array", "lines"]
Path = tuple[str | int, ...]

_BOM = b"\xef\xbb\xbf"
_STEP = re.compile(r"""\.([A-Za-z_][\w-]*)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.ASCII)
_BLANK = b" \t\r\n"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
# The same everywhere, and well below what any version of Python or msgspec can follow.
NESTING_LIMIT = 500


def disassemble(content: bytes, split: Split | None = None) -> Iterator[tuple[bytes, DocumentError | None]]:
    """The bytes of each message in a file, with what is wrong with them. `split` overrides what the file looks like."""
    body = content.removeprefix(_BOM)
    if not body.strip(_BLANK):
        yield content, DocumentError("the file is empty" if not content else "the file holds no message")
        return
    match split or _looks_like(body):
        case "array":
            yield from _array(content, body)
        case "lines":
            for number, line in enumerate(body.split(b"\n"), start=1):
                if stripped := line.strip(_BLANK):
                    yield stripped, _problem(stripped, f"line {number}")
        case _:
            yield content, _problem(body, "the file")


def parse_path(path: str) -> Path:
    """`$.a.b[0]['c d']` as steps; no wildcards and no filters, since a property has one value."""
    steps: list[str | int] = []
    position = 1
    while path.startswith("$") and position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            break
        name, index, single, double = found.groups()
        steps.append(int(index) if index is not None else re.sub(r"\\(.)", r"\1", name or single or double or ""))
        position = found.end()
    if not steps or position != len(path):
        raise ApplicationError(f"{path!r} is not a path to one field; write it as $.order.lines[0].amount")
    return tuple(steps)


def find(body: bytes, path: Sequence[str | int]) -> str | None:
    """The text of the field at `path`; None if it is absent or null. An object or an array is a PromotionError."""
    value = msgspec.Raw(body.removeprefix(_BOM))
    for step in path:
        kind: type = list[msgspec.Raw] if isinstance(step, int) else dict[str, msgspec.Raw]
        try:
            value = msgspec.json.decode(value, type=kind)[step]
        except (msgspec.ValidationError, LookupError):
            return None
        except (msgspec.DecodeError, RecursionError) as error:
            raise PromotionError(f"it cannot be read: {error}") from error
    text = bytes(value).strip(_BLANK)
    if text == b"null":
        return None
    if text[:1] == b'"':
        return msgspec.json.decode(text, type=str)
    if text[:1] in (b"{", b"["):
        raise PromotionError("it is an object or an array, and a property has one value")
    return text.decode()


def _looks_like(body: bytes) -> Split:
    start = body.lstrip(_BLANK)
    if start[:1] == b"[":
        return "array"
    first, _, rest = start.partition(b"\n")
    return "lines" if rest.strip(_BLANK) and _problem(first.strip(_BLANK), "") is None else "document"


def _array(content: bytes, body: bytes) -> Iterator[tuple[bytes, DocumentError | None]]:
    problem = _unreadable(body, "the file")
    if problem is not None:
        yield content, problem
        return
    try:
        elements = msgspec.json.decode(body, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        yield content, DocumentError("the file is not a JSON array")
        return
    if not elements:
        yield content, DocumentError("the file is an empty array and holds no message")
    for number, element in enumerate(elements, start=1):
        document = bytes(element).strip(_BLANK)
        yield document, _too_deep(document, f"element {number}")


def _problem(body: bytes, place: str) -> DocumentError | None:
    """Why these bytes are not one JSON value that can be worked with; None if they are."""
    return _unreadable(body, place) or _too_deep(body, place)


def _too_deep(body: bytes, place: str) -> DocumentError | None:
    if body.count(b"{") + body.count(b"[") <= NESTING_LIMIT:
        return None
    signs = np.frombuffer(_STRING.sub(b"", body), np.uint8)
    steps = np.isin(signs, list(b"{[")).astype(np.int64) - np.isin(signs, list(b"}]"))
    return DocumentError(f"{place} is nested too deeply") if steps.cumsum().max() > NESTING_LIMIT else None


def _unreadable(body: bytes, place: str) -> DocumentError | None:
    try:
        body.decode("utf-8")
        msgspec.json.decode(body, type=msgspec.Raw)
    except UnicodeDecodeError as error:
        return DocumentError(f"{place} is not UTF-8: byte {error.start + 1} is 0x{body[error.start]:02x}")
    except RecursionError:
        return DocumentError(f"{place} is nested too deeply")
    except msgspec.DecodeError as error:
        return DocumentError(f"{place} is not JSON: {_explained(str(error), body)}")
    return None


def _explained(message: str, body: bytes) -> str:
    if "truncated" in message:
        return "it holds half of a surrogate pair" if rb"\ud" in body.lower() else "it ends too early"
    return message.removeprefix("JSON is malformed: ")
