"""How much of an XML document may be in memory as a tree, which takes up to forty times the bytes of the document."""

from __future__ import annotations

import re

from crossdock.errors import DocumentError

MOST_NODES = 500_000
MOST_ELEMENTS = 10_000_000  # of a document that is read element by element, which takes some microseconds for each

_BYTES_PER_NODE = 2  # at least: `<a` and `b=`
_DECLARED = re.compile(rb"""encoding\s*=\s*['"]""")
_PLAIN = re.compile(
    rb"""encoding\s*=\s*['"](utf-?8|utf-?16|us-ascii|iso-8859-|latin|windows-125|cp125)""", re.IGNORECASE
)
_DECLARATION_BYTES = 400


def may_have_too_many_nodes(content: bytes) -> bool:
    """Whether a tree of it may have more than MOST_NODES elements, attributes, comments and instructions."""
    if len(content) <= MOST_NODES * _BYTES_PER_NODE:
        return False
    start = content[:_DECLARATION_BYTES].replace(b"\0", b"")  # UTF-16 has them between the letters
    if b"<" not in start or (_DECLARED.search(start) and not _PLAIN.search(start)):
        return True  # in UTF-7 or EBCDIC the bytes do not show it
    return content.count(b"<") + content.count(b"=") > MOST_NODES


class NodeCount:
    """Counts what is in memory at once while a document is read, or all of it."""

    def __init__(self, what: str, most: int = MOST_NODES) -> None:
        self._what = what
        self._most = most
        self._count = 0

    def add(self, nodes: int = 1) -> None:
        """DocumentError once there are too many."""
        self._count += nodes
        if self._count > self._most:
            raise DocumentError(f"{self._what}, and {self._most:,} is the most")

    def begin(self) -> None:
        """What was counted is not in memory any more."""
        self._count = 0
