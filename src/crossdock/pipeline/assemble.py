"""Assembling: the body of a message as JSON, XML or a line. Nothing is written anew that is right as it is."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lxml import etree
from msgspec import Raw

from crossdock.errors import DocumentError, PromotionError
from crossdock.pipeline.decode import to_utf8
from crossdock.pipeline.document import Document
from crossdock.pipeline.flat import Record, line_text
from crossdock.pipeline.json import check_json, object_fields, text_of
from crossdock.pipeline.well_formed import check_document
from crossdock.pipeline.xml import parse_document

Assembler = Callable[[Document], bytes]

_DECLARED = re.compile(rb"<\?xml\s")
_DECLARATION = '<?xml version="1.0" encoding="{}"?>\n'


def assemble_json(document: Document) -> bytes:
    """The body as it is, without a byte order mark, if it is JSON."""
    return check_json(document.body)


@dataclass(frozen=True, slots=True)
class XmlAssembler:
    """The body as it is, if it is XML. With `declaration` it begins with one; with `charset` it is written in that."""

    declaration: bool = False
    charset: str | None = None

    def __call__(self, document: Document) -> bytes:
        if self.charset is not None:
            return _written_in(self.charset, parse_document(document.body))
        check_document(document.body)
        content = to_utf8(document.body).removeprefix(codecs.BOM_UTF8)
        if not self.declaration or _DECLARED.match(content):
            return document.body
        return _DECLARATION.format("UTF-8").encode() + content


def _written_in(charset: str, root: etree._Element) -> bytes:
    """Characters that the character set does not have are written as references, where XML takes them."""
    document: str = etree.tostring(root.getroottree(), encoding="unicode")
    text = _DECLARATION.format(_registered_name(charset)) + document
    try:
        return text.encode(charset)
    except UnicodeEncodeError as error:
        written = text.encode(charset, "xmlcharrefreplace")
        # Names, comments and CDATA have no references: what stands there now would mean something else.
        if _same(written, root):
            return written
        character = text[error.start]
        raise DocumentError(
            f"the document has {character!r} where XML takes no reference, and {charset} does not have it"
        ) from error


def _same(written: bytes, root: etree._Element) -> bool:
    try:
        read = parse_document(written)
    except DocumentError:
        return False
    return bool(etree.tostring(read.getroottree(), method="c14n") == etree.tostring(root.getroottree(), method="c14n"))


def _registered_name(charset: str) -> str:
    """As a declaration has it: Python calls some character sets by names of its own."""
    name = codecs.lookup(charset).name.removesuffix("-sig")
    name = re.sub(r"^iso8859-(\d+)$", r"iso-8859-\1", name)
    return re.sub(r"^cp(125\d)$", r"windows-\1", name).replace("_", "-").upper()


@dataclass(frozen=True, slots=True)
class FlatAssembler:
    """Writes a JSON object as a line of `record`; a body that is such a line goes out as it is."""

    type: str
    record: Record

    def __call__(self, document: Document) -> bytes:
        fields = self._fields(document)
        if fields is None:
            self.record.values(line_text(document.body))
            return document.body
        unknown = next((name for name in fields if name not in self.record.names), None)
        if unknown is not None:
            raise DocumentError(f"{unknown!r} is no column of {self.type} ({', '.join(self.record.names)})")
        return self.record.join([_column(fields, name) for name in self.record.names]).encode()

    def _fields(self, document: Document) -> Mapping[str, Raw] | None:
        """Of a JSON object; None of a line, which may well look like one."""
        is_line = document.type == self.type
        if not document.body.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
            return None
        try:
            fields = object_fields(document.body)
        except DocumentError:
            if is_line:
                return None
            raise
        return None if is_line and fields.keys().isdisjoint(self.record.names) else fields


def _column(fields: Mapping[str, Raw], name: str) -> str:
    try:
        return (text_of(fields[name]) if name in fields else None) or ""
    except PromotionError as error:
        raise DocumentError(f"the column {name!r} is an object or an array, and has to be one value") from error
