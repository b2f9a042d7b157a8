"""Whether bytes are an XML document, found without holding a tree of very many nodes."""

from __future__ import annotations

from lxml import etree

from crossdock.pipeline.tree_size import may_have_too_many_nodes
from crossdock.pipeline.xml import events, forget, parse_document, refuse_doctype, unreadable


def check_document(content: bytes) -> None:
    """Raises DocumentError as `parse_document` does."""
    if not may_have_too_many_nodes(content):
        parse_document(content)
        return
    try:
        for number, (event, element) in enumerate(events(content)):
            if number == 0:
                refuse_doctype(element)
            if event == "end":
                forget(element)
    except etree.XMLSyntaxError as error:
        raise unreadable("the document", error) from error
