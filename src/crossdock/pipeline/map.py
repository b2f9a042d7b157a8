"""Maps: turn a document of one type into another, by an XSLT or by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lxml import etree

from crossdock.errors import ApplicationError, DocumentError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.pipeline.validate import parse_with_files
from crossdock.pipeline.xml import parse_document

Transform = Callable[[bytes], bytes]


def xslt_map(files: Mapping[str, str]) -> Transform:
    """A stylesheet that reads and writes nothing but the document. Raises ApplicationError if it is wrong."""
    name = next(iter(files))
    try:
        stylesheet = etree.XSLT(parse_with_files(files), access_control=etree.XSLTAccessControl.DENY_ALL)
    except (etree.LxmlError, OSError) as error:
        raise ApplicationError(f"{name} is not an XSLT that can be used: {error}") from error

    def transform(body: bytes) -> bytes:
        try:
            return bytes(stylesheet(parse_document(body)))
        except etree.XSLTError as error:
            raise DocumentError(f"the map {name} fails on it: {error}") from error

    return transform


def function_map(name: str, called: Callable[[bytes], bytes]) -> Transform:
    """A function from bytes to bytes."""

    def transform(body: bytes) -> bytes:
        try:
            with FOREIGN_CODE:
                made = called(body)
        except DocumentError:
            raise
        except Exception as error:
            raise DocumentError(f"the map {name} fails on it: {described(error)}") from error
        if not isinstance(made, bytes):
            raise DocumentError(f"the map {name} gives {type(made).__name__} instead of bytes")
        return made

    return transform
