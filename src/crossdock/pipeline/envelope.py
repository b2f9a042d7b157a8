"""What is taken out of the envelopes of one XML source, and how much that may be.

A message that is taken out declares the namespaces around it again. A small file must not become gigabytes of messages.
"""

from __future__ import annotations

from typing import Any

from lxml import etree

from crossdock.errors import DocumentError

BEYOND_BYTES = 64 * 1024 * 1024
NAMESPACES_LIMIT = 256
NAMESPACE_CHARACTERS = 2_000
ENVELOPES_LIMIT = 8


class Source:
    """A source that is being taken apart. What raises DocumentError here keeps back all of it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._taken = 0
        self._checked = 0
        self._around: Any = None

    def check(self, element: Any) -> None:
        """Whether the messages beside this element can be taken out: each takes the square of what is declared."""
        around = element.getparent()
        if around is self._around:
            return
        self._around = around
        if around is not None and (declared := len(around.nsmap)) > NAMESPACES_LIMIT:
            raise DocumentError(
                f"the envelope declares {declared:,} namespaces around its messages, and {NAMESPACES_LIMIT} is the most"
            )
        for uri in () if around is None else around.nsmap.values():
            check_namespace(uri or "")

    def body(self, element: Any) -> bytes:
        """The bytes of a message: the source itself, or what is taken out of it."""
        if element.getparent() is None:
            return self._content
        body = serialised(element)
        self._taken += len(body)
        self._bound(self._taken, len(self._content), "messages in its envelope")
        return body

    def envelope(self, element: Any) -> bytes:
        """The bytes of an envelope, to be checked against its schema. One inside another is in both."""
        if element.getparent() is None:
            return self._content
        body = serialised(element)
        self._checked += len(body)
        self._bound(self._checked, ENVELOPES_LIMIT * len(self._content), "envelopes in it")
        return body

    def _bound(self, taken: int, own: int, what: str) -> None:
        if taken > own + BEYOND_BYTES:
            raise DocumentError(
                f"the {what} have more than {BEYOND_BYTES:,} bytes beyond the {len(self._content):,} of the file, "
                "since each repeats the namespaces around it; send it in parts"
            )


def check_namespace(uri: str) -> None:
    """Whether elements may be in it: each of them has it in its tag, which is made anew for each."""
    if len(uri) > NAMESPACE_CHARACTERS:
        raise DocumentError(
            f"the document has a namespace of {len(uri):,} characters, and {NAMESPACE_CHARACTERS:,} is the most"
        )


def check_nested(envelopes: int) -> None:
    """Whether there may be an envelope inside so many others."""
    if envelopes >= ENVELOPES_LIMIT:
        raise DocumentError(f"it has envelopes in envelopes more than {ENVELOPES_LIMIT} deep")


def serialised(element: Any) -> bytes:
    """An element as a document of its own."""
    return bytes(etree.tostring(element, encoding="utf-8", with_tail=False))
