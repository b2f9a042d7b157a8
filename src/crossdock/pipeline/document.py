"""A document: one message to be, with its own bytes, its type, and what was promoted from it.

Where the documents of a source have one type and nothing is wrong with any, they are a run: columns, not objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct, field, structs

from crossdock.errors import DocumentError, PromotionError, TerminalError
from crossdock.message.columns import Columns
from crossdock.message.context import WRITTEN_TEXT_LIMIT
from crossdock.message.property import PARSERS, PropertyType, Value, parse_values

Path = TypeVar("Path")


class Document(Struct, frozen=True):
    """`error` says why it cannot be routed; then nothing is promoted from it and its bytes are kept as they came.

    `code` is that of the error.

    A `piece` was found inside a source; it is not the source as it came.
    """

    body: bytes
    type: str | None = None
    promoted: Mapping[str, Value] = field(default_factory=dict)
    written: Mapping[str, Value] = field(default_factory=dict)
    error: str | None = None
    piece: bool = True
    code: str = DocumentError.code

    def changed(self, **changes: Any) -> Document:
        """The same but for this: body, type, promoted, written."""
        return structs.replace(self, **changes)

    def failed(self, reason: str | TerminalError) -> Document:
        """The same bytes, with the reason why they cannot be routed. An error brings its code."""
        code = reason.code if isinstance(reason, TerminalError) else DocumentError.code
        return Document(self.body, self.type, error=str(reason), piece=self.piece, code=code)


@dataclass(frozen=True, slots=True)
class DocumentColumns(Sequence[Document]):
    """Documents without an error. A column holds what each of them has of a property, or None."""

    bodies: Sequence[bytes]
    type: str
    promoted: Columns
    written: Columns

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, position: int) -> Document: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Document]: ...
    def __getitem__(self, position: int | slice) -> Document | Sequence[Document]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        promoted = {"BTS.MessageType": self.type, **_row(self.promoted, position)}
        return Document(self.bodies[position], self.type, promoted, _row(self.written, position))


def _row(columns: Columns, position: int) -> dict[str, Value]:
    return {name: value for name, column in columns.items() if (value := column[position]) is not None}


# Takes whole lines apart, given where in their file they begin.
LineReader = Callable[[bytes, int], Iterator[Document]]


@dataclass(frozen=True, slots=True)
class Promotion(Generic[Path]):
    """Take the field at `path` as the value of a property; a distinguished field is only written.

    The value of a personal one is not quoted where it does not fit: viewers read the reason.
    """

    property: str
    type: PropertyType
    field: str
    path: Path
    distinguished: bool = False
    personal: bool = False


class Promoter(Generic[Path]):
    """Promotes the fields of a kind of document. `text_limit` is the longest promoted text, in characters.

    A distinguished one may be longer, up to what a context keeps of one text.
    """

    def __init__(self, promotions: Sequence[Promotion[Path]], text_limit: int) -> None:
        self.promotions = promotions
        limits = text_limit, max(text_limit, WRITTEN_TEXT_LIMIT)
        self._plan = [
            (each, limits[each.distinguished] if each.type is PropertyType.TEXT else None, PARSERS[each.type])
            for each in promotions
        ]

    def promote(self, find: Callable[[Path], str | None]) -> tuple[dict[str, Value], dict[str, Value]]:
        """(promoted, written). A value that does not fit is a PromotionError that names the property and the field."""
        return self.values([self._found(promotion, find) for promotion in self.promotions])

    def values(self, texts: Sequence[str | None]) -> tuple[dict[str, Value], dict[str, Value]]:
        """The same from the text of every field, in the order of the promotions."""
        promoted: dict[str, Value] = {}
        written: dict[str, Value] = {}
        for (promotion, limit, parse), text in zip(self._plan, texts, strict=True):
            if text is None:
                continue
            value: Value = text
            if limit is None:
                try:
                    value = parse(text)
                except PromotionError as error:
                    raise _unfit(promotion, error) from None
            elif len(text) > limit:
                raise _placed(promotion, _too_long(text, limit))
            (written if promotion.distinguished else promoted)[promotion.property] = value
        return promoted, written

    def columns(self, texts: Sequence[Sequence[str | None]]) -> tuple[Columns, Columns]:
        """The same for many documents at once, from the texts of each field. What does not fit is found one by one."""
        promoted: dict[str, Sequence[Value | None]] = {}
        written: dict[str, Sequence[Value | None]] = {}
        for (promotion, limit, _), column in zip(self._plan, texts, strict=True):
            values: Sequence[Value | None] = column
            if limit is None:
                values = parse_values(promotion.type, column)
            elif max(map(len, filter(None, column)), default=0) > limit:
                raise _placed(promotion, PromotionError("a text is too long"))
            (written if promotion.distinguished else promoted)[promotion.property] = values
        return promoted, written

    def _found(self, promotion: Promotion[Path], find: Callable[[Path], str | None]) -> str | None:
        try:
            return find(promotion.path)
        except PromotionError as error:
            raise _placed(promotion, error) from error


def _too_long(text: str, limit: int) -> PromotionError:
    return PromotionError(f"the text has {len(text)} characters, and {limit} is the most")


def _unfit(promotion: Promotion[Path], error: PromotionError) -> PromotionError:
    hidden = PromotionError(f"there is no {promotion.type}, but a value that is personal and not shown")
    return _placed(promotion, hidden if promotion.personal else error)


def _placed(promotion: Promotion[Path], error: PromotionError) -> PromotionError:
    return PromotionError(f"property {promotion.property!r} is {promotion.type}, and in {promotion.field} {error}")
