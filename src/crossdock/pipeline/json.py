"""JSON: one document, an array or lines, taken apart into the exact bytes of each message, and fields found by path.

Numbers are never turned into floats: a field is its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Literal, cast

import msgspec

from crossdock.errors import ApplicationError, DocumentError, PromotionError
from crossdock.message.json_field import member
from crossdock.message.property import PropertyType
from crossdock.pipeline.document import Document, DocumentColumns, LineReader, Promoter, Promotion
from crossdock.pipeline.lines import MESSAGES_LIMIT, has_too_many_lines, lines_of, too_many
from crossdock.pipeline.nesting import nesting

Split = Literal["document", "array", "lines"]
Path = tuple[str | int, ...]

_BOM = b"\xef\xbb\xbf"
_STEP = re.compile(r"""\.([A-Za-z_][\w-]*)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.ASCII)
_BLANK = b" \t\r\n"
_NOT_BLANK = re.compile(rb"[^ \t\r\n]")
_OPEN, _CLOSE = b"{}"
_NUMBER_SIGNS = b"-+.0123456789eE\n"
# The same everywhere, and well below what any version of Python or msgspec can follow.
NESTING_LIMIT = 500
_ELEMENTS_LIMIT = 2_000_000  # of an array that is taken apart to find one of them
_FIELDS_LIMIT = 100_000  # of an object that becomes a line


class JsonDisassembler:
    """For documents of one type. `split` overrides what a file looks like."""

    def __init__(self, type_: str, promoter: Promoter[Path], split: Split | None = None) -> None:
        self._type = type_
        self._promoter = promoter
        self._split = split
        self._fields = _Fields(promoter.promotions)

    def disassemble(self, content: bytes, *, piece: bool = False) -> Iterator[Document]:
        body = content.removeprefix(_BOM)
        if not body.strip(_BLANK):
            raise DocumentError("the file is empty" if not content else "the file holds no message")
        match "document" if piece else self._split or _looks_like(body):
            case "array":
                for number, element in enumerate(_elements(body), start=1):
                    yield self._document(element, element, "element", number)
            case "lines":
                for number, line in enumerate(lines_of(body), start=1):
                    if stripped := line.strip(_BLANK):
                        yield self._document(stripped, stripped, "line", number)
            case _:
                yield self._document(content, body, "the file")

    def together(self, content: bytes, start: int | None = None) -> DocumentColumns | None:
        """The documents of a file of lines, or of whole lines from `start` on; None if one needs a closer look."""
        body = content if start else content.removeprefix(_BOM)
        if (start is None and self.by_lines(body) is None) or has_too_many_lines(body):
            return None
        lines = [stripped for line in lines_of(body) if (stripped := line.strip(_BLANK))]
        texts = self._fields.read_lines(body, lines) if lines else None
        try:
            return None if texts is None else DocumentColumns(lines, self._type, *self._promoter.columns(texts))
        except PromotionError:
            return None

    def by_lines(self, head: bytes) -> LineReader | None:
        """How to read a file that begins so line by line; None if it is not one of lines."""
        lines = self._split == "lines" or (self._split is None and _looks_like(head.removeprefix(_BOM)) == "lines")
        return self._lines if lines else None

    def _lines(self, content: bytes, start: int) -> Iterator[Document]:
        for line in lines_of(content):
            if stripped := (line if start else line.removeprefix(_BOM)).strip(_BLANK):
                yield self._document(stripped, stripped, "the line at byte", start + 1)
            start += len(line) + 1

    def _document(self, content: bytes, body: bytes, place: str, number: int | None = None) -> Document:
        try:
            texts = self._fields.read(body)
            if texts is None:
                problem = _problem(body, place if number is None else f"{place} {number}")
                if problem is not None:
                    return Document(content, self._type).failed(problem)
                promoted, written = self._promoter.promote(partial(find, body))
            else:
                promoted, written = self._promoter.values(texts)
        except PromotionError as error:
            return Document(content, self._type).failed(error)
        promoted["BTS.MessageType"] = self._type
        return Document(content, self._type, promoted, written)


class _Fields:
    """Reads all fields of an ordinary document in one go: an object in which every path leads through objects."""

    def __init__(self, promotions: Sequence[Promotion[Path]]) -> None:
        tree: dict[str, Any] = {}
        usable = bool(promotions) and all(_grow(tree, each.path, each.type) for each in promotions)
        self._typed = msgspec.json.Decoder(_struct(tree, typed=True)) if usable else None
        self._untyped = msgspec.json.Decoder(_struct(tree, typed=False)) if usable else None
        self._places = [_places(tree, each.path) for each in promotions] if usable else []
        flat = len(self._places) > 1 and all(len(places) == 1 for places in self._places)
        self._all = attrgetter(*(places[0] for places in self._places)) if flat else None

    def read(self, body: bytes) -> list[str | None] | None:
        """The text of each field; None if this document has to be looked at more closely."""
        if self._untyped is None or _may_be_too_deep(body):
            return None
        try:
            body.decode()
            found = self._decoded(body)
            values = self._all(found) if self._all else [_follow(found, places) for places in self._places]
            return [value if value.__class__ is str else text_of(value) for value in values]
        except (UnicodeDecodeError, msgspec.DecodeError, PromotionError):
            return None

    def read_lines(self, body: bytes, lines: Sequence[bytes]) -> list[list[str | None]] | None:
        """The texts of each field in all documents, one in each line; None as above."""
        # Where one line ends an object and the next begins one, no value goes over from one to the other.
        objects = all(line[0] == _OPEN and line[-1] == _CLOSE for line in lines)
        if self._untyped is None or not objects or any(map(_may_be_too_deep, lines)):
            return None
        try:
            body.decode()
            found = self._decoded(body, lines=True)
            return [_column(found, places) for places in self._places] if len(found) == len(lines) else None
        except (UnicodeDecodeError, msgspec.DecodeError, PromotionError):
            return None

    def _decoded(self, body: bytes, *, lines: bool = False) -> Any:
        assert self._untyped is not None
        if self._typed is not None:
            try:
                return self._typed.decode_lines(body) if lines else self._typed.decode(body)
            except msgspec.ValidationError:
                self._typed = None  # these documents write text as numbers, or the like
        return self._untyped.decode_lines(body) if lines else self._untyped.decode(body)


def _grow(tree: dict[str, Any], path: Path, type_: PropertyType) -> bool:
    """Add a path of names; False if it has numbers in it, or goes through the end of another."""
    for step in path[:-1]:
        if isinstance(step, int) or not isinstance(tree.get(step, {}), dict):
            return False
        tree = tree.setdefault(step, {})
    last = path[-1]
    if isinstance(last, int) or last in tree:
        return False
    tree[last] = type_
    return True


def _struct(tree: Mapping[str, Any], *, typed: bool) -> type[msgspec.Struct]:
    """A type with just these fields, called f0, f1 and so on; what else a document holds is skipped."""
    fields = []
    for number, (name, below) in enumerate(tree.items()):
        if isinstance(below, dict):
            kind: Any = _struct(below, typed=typed) | None
        else:
            kind = str | None if typed and below is PropertyType.TEXT else msgspec.Raw
        fields.append((f"f{number}", kind | msgspec.UnsetType, msgspec.field(name=name, default=msgspec.UNSET)))
    return msgspec.defstruct("Fields", fields, gc=False)


def _places(tree: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """A path by the names that `_struct` gives to its steps."""
    places = []
    for step in path:
        assert isinstance(step, str)
        places.append(f"f{list(tree).index(step)}")
        tree = tree[step] if isinstance(tree[step], dict) else {}
    return tuple(places)


def _follow(found: Any, places: Sequence[str]) -> Any:
    for place in places:
        if found is None or found is msgspec.UNSET:
            return None
        found = getattr(found, place)
    return found


def _column(found: Sequence[Any], places: Sequence[str]) -> list[str | None]:
    """The text of one field in each of these."""
    follow = attrgetter(places[0]) if len(places) == 1 else partial(_follow, places=places)
    values: list[Any] = list(map(follow, found))
    if set(map(type, values)) == {msgspec.Raw}:
        together = b"\n".join(values)
        if not together.translate(None, _NUMBER_SIGNS):  # all of them are numbers
            return cast(list[str | None], together.decode().split("\n"))
    return [value if value.__class__ is str else text_of(value) for value in values]


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
        try:
            value = _element(value, step) if isinstance(step, int) else member(value, step)
        except (msgspec.ValidationError, LookupError):
            return None
        except (msgspec.DecodeError, RecursionError) as error:
            raise PromotionError(f"it cannot be read: {error}") from error
    return text_of(value)


def _element(array: msgspec.Raw, place: int) -> msgspec.Raw:
    content = bytes(array)
    if content.count(b",") >= _ELEMENTS_LIMIT and nesting(content).commas >= _ELEMENTS_LIMIT:
        raise PromotionError(f"it is in an array of more than {_ELEMENTS_LIMIT:,} elements")
    return msgspec.json.decode(content, type=list[msgspec.Raw])[place]


def check_json(body: bytes) -> bytes:
    """One JSON value, as it is but for a byte order mark. Raises DocumentError if it is none."""
    content = body.removeprefix(_BOM)
    problem = _problem(content, "the body")
    if problem is not None:
        raise problem
    return content


def object_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object, for `text_of`. Raises DocumentError."""
    content = check_json(body)
    if content.count(b",") >= _FIELDS_LIMIT and nesting(content).commas >= _FIELDS_LIMIT:
        raise DocumentError(f"the body has more than {_FIELDS_LIMIT:,} fields")
    try:
        return msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise DocumentError("the body is not a JSON object") from error


def text_of(value: Any) -> str | None:
    """The text of a value: of a string its characters, of anything else what is written; None for null."""
    if value is None or value is msgspec.UNSET:
        return None
    if type(value) is str:
        return value
    text = bytes(value).strip(_BLANK)
    if text == b"null":
        return None
    if text[:1] == b'"':
        return msgspec.json.decode(text, type=str)
    if text[:1] in (b"{", b"["):
        raise PromotionError("it is an object or an array, and a property has one value")
    return text.decode()


def _looks_like(body: bytes) -> Split:
    start = _NOT_BLANK.search(body)
    if start is None or start[0] == b"[":
        return "document" if start is None else "array"
    end = body.find(b"\n", start.start())
    more = end >= 0 and _NOT_BLANK.search(body, end) is not None
    return "lines" if more and _problem(body[start.start() : end].strip(_BLANK), "") is None else "document"


def _elements(body: bytes) -> Iterator[bytes]:
    problem = _unreadable(body, "the file")
    if problem is not None:
        raise problem
    # Before it is taken apart, which needs more memory for each element than the element has bytes.
    if body.count(b",") >= MESSAGES_LIMIT and nesting(body).commas >= MESSAGES_LIMIT:
        raise too_many()
    try:
        elements = msgspec.json.decode(body, type=list[msgspec.Raw])
    except msgspec.ValidationError as error:
        raise DocumentError("the file is not a JSON array") from error
    if not elements:
        raise DocumentError("the file is an empty array and holds no message")
    return (bytes(element).strip(_BLANK) for element in elements)


def _problem(body: bytes, place: str) -> DocumentError | None:
    """Why these bytes are not one JSON value that can be worked with; None if they are."""
    return _unreadable(body, place) or _too_deep(body, place)


def _may_be_too_deep(body: bytes) -> bool:
    """Whether there are brackets enough. A nested object takes five bytes at least, so small documents are quick."""
    arrays = body.count(b"[")
    return arrays + len(body) // 5 > NESTING_LIMIT and arrays + body.count(b"{") > NESTING_LIMIT


def _too_deep(body: bytes, place: str) -> DocumentError | None:
    if not _may_be_too_deep(body):
        return None
    return DocumentError(f"{place} is nested too deeply") if nesting(body).deepest > NESTING_LIMIT else None


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
