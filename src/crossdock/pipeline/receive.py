"""The receive pipeline: takes a file apart into documents, gives each its type and promotes its properties.

A recoverable interchange keeps the good documents and reports the bad ones; a standard one is all or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crossdock.errors import DocumentError, PromotionError
from crossdock.message.property import PropertyType, Value, parse_value
from crossdock.pipeline import json


@dataclass(frozen=True, slots=True)
class Document:
    """One message to be: its own bytes, and what was promoted from it, or why it cannot be routed."""

    body: bytes
    promoted: Mapping[str, Value]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Promotion:
    """Take the field at `path` as the value of a property."""

    property: str
    type: PropertyType
    field: str
    path: json.Path


@dataclass(frozen=True, slots=True)
class ReceivePipeline:
    """For JSON of one schema. `text_limit` is the longest promoted text, in characters."""

    message_type: str
    promotions: tuple[Promotion, ...]
    text_limit: int
    split: json.Split | None = None
    standard: bool = False

    def execute(self, content: bytes) -> list[Document]:
        documents = [self._document(body, error) for body, error in json.disassemble(content, self.split)]
        failed = next((document for document in documents if document.error is not None), None)
        if failed is None or not self.standard or len(documents) == 1:
            return documents
        return [Document(content, {}, f"{failed.error} (all of the file is kept back: its interchange is standard)")]

    def _document(self, body: bytes, error: DocumentError | None) -> Document:
        if error is not None:
            return Document(body, {}, str(error))
        try:
            return Document(body, {"BTS.MessageType": self.message_type, **self._promote(body)})
        except PromotionError as problem:
            return Document(body, {}, str(problem))

    def _promote(self, body: bytes) -> dict[str, Value]:
        promoted: dict[str, Value] = {}
        for promotion in self.promotions:
            try:
                text = json.find(body, promotion.path)
                if text is not None:
                    promoted[promotion.property] = self._limited(parse_value(promotion.type, text))
            except PromotionError as error:
                raise PromotionError(
                    f"property {promotion.property!r} is {promotion.type}, and in {promotion.field} {error}"
                ) from error
        return promoted

    def _limited(self, value: Value) -> Value:
        if isinstance(value, str) and len(value) > self.text_limit:
            raise PromotionError(f"the text has {len(value)} characters, and {self.text_limit} is the most")
        return value
