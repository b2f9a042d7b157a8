"""XML: documents and envelopes taken apart, and fields found by XPath.

Nothing outside the document is ever read: a document type declaration is refused, and with it every entity. A document
of ordinary size is parsed whole; a large one is streamed, and then only plain paths can be promoted from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import chain
from typing import Any

from lxml import etree

from crossdock.errors import ApplicationError, DocumentError, PromotionError
from crossdock.message.property import Value
from crossdock.pipeline.document import Document, Promoter, Promotion
from crossdock.pipeline.envelope import Source, check_namespace, check_nested, serialised
from crossdock.pipeline.tree_size import MOST_ELEMENTS, MOST_NODES, NodeCount, may_have_too_many_nodes

_LARGE_BYTES = 4 * 1024 * 1024
_OPTIONS: Mapping[str, Any] = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "dtd_validation": False,
    "attribute_defaults": False,
    "huge_tree": False,
    "strip_cdata": False,
}
_ADVICE = re.compile(r",?\s*(?:use|try)\s+XML_PARSE_HUGE(?:\s+option)?\s*")
_DOES_NOT_FIT = range(1800, 1900)  # what libxml2 has for documents that are not valid
_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_NAME = r"[A-Za-z_\u0080-\uffff][\w.\-\u0080-\uffff]*"
_STEP = re.compile(
    rf"""/(?P<attribute>@?)(?:
        (?:(?P<prefix>{_NAME}):)?(?P<name>{_NAME})
      | \*\[\s*local-name\(\)\s*=\s*(?P<quote>['"])(?P<local>{_NAME})(?P=quote)
            (?:\s*and\s*namespace-uri\(\)\s*=\s*(?P<mark>['"])(?P<uri>[^'"]*)(?P=mark))?\s*\]
    )(?=/|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class XmlPath:
    """A path to one field. `steps` are the tags of its elements and `attribute` the last one, if it is that plain."""

    text: str
    namespaces: Mapping[str, str]
    steps: tuple[str, ...] | None
    attribute: str | None
    query: Any

    def find(self, root: Any) -> str | None:
        """The text of the field below `root`, the root of a message; None if it is absent."""
        if self.steps is None:
            return _single(self.query(_alone(root)))
        found = root.findall("/".join(self.steps[1:])) if len(self.steps) > 1 else [root]
        if not self.steps or root.tag != self.steps[0]:
            return None
        if self.attribute is not None:
            found = [value for element in found if (value := element.get(self.attribute)) is not None]
        return _single(found)


def parse_xpath(path: str, namespaces: Mapping[str, str]) -> XmlPath:
    """A path from the root of a message, such as `/o:Order/o:id` or `/Order/@id`. Raises ApplicationError."""
    if not path.startswith("/"):
        raise ApplicationError(f"{path!r} is not a path from the root; write it as /Order/id or /o:Order/@id")
    try:
        query = etree.XPath(path, namespaces=dict(namespaces), smart_strings=False)
        query(etree.ElementTree(etree.Element("nothing")))
    except etree.XPathError as error:
        raise ApplicationError(f"{path!r} is not an XPath that can be used here: {error}") from error
    return XmlPath(path, namespaces, *_plain(path, namespaces), query)


def _plain(path: str, namespaces: Mapping[str, str]) -> tuple[tuple[str, ...] | None, str | None]:
    """The tags of a path that only goes down; None where it does more than that."""
    steps: list[str] = []
    position = 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None or (found["local"] and found["uri"] is None):
            return None, None
        uri = found["uri"] if found["local"] else namespaces.get(found["prefix"] or "", "") if found["prefix"] else ""
        if "{" in uri or "}" in uri:  # in a tag it would read as steps, which may leave the message
            return None, None
        tag = f"{{{uri}}}{found['local'] or found['name']}" if uri else found["local"] or found["name"]
        position = found.end()
        if found["attribute"]:
            return (tuple(steps), tag) if position == len(path) and steps else (None, None)
        steps.append(tag)
    return tuple(steps), None


class Xsd:
    """A schema that documents have to fit. Threads share it."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def check(self, content: bytes) -> None:
        """Raises DocumentError if it does not fit, or is no document."""
        try:
            # While it is parsed: in a tree, libxml2 counts for every mistake all the elements beside it.
            refuse_doctype(etree.fromstring(content, etree.XMLParser(schema=self.schema, **_OPTIONS)))
        except etree.XMLSyntaxError as error:
            parse_document(content)  # which says what is wrong with one that is no XML at all
            raise DocumentError(f"it does not fit its schema: {error.msg}") from error


@dataclass(frozen=True)
class XmlShape:
    """A type of document; an envelope has a `body`, the path of the element whose children are the messages.

    It has to be an envelope that the XSD `schema` takes, if there is one.
    """

    type: str
    promoter: Promoter[XmlPath]
    body: tuple[str, ...] | None = None
    schema: Xsd | None = None

    def promote(self, root: Any) -> tuple[dict[str, Value], dict[str, Value]]:
        """(promoted, written) of a message."""
        texts = None if self.children is None else _texts(root, self.children)
        return self.promoter.promote(lambda path: path.find(root)) if texts is None else self.promoter.values(texts)

    @cached_property
    def children(self) -> tuple[str, ...] | None:
        """The tags of all fields, in their order, if each is a child of the root, as in most messages."""
        steps = [each.path.steps for each in self.promoter.promotions if each.path.attribute is None]
        tags = tuple(
            each[1] for each in steps if each is not None and len(each) == 2 and message_type(each[0]) == self.type
        )
        return tags if tags and len(set(tags)) == len(self.promoter.promotions) else None


def _texts(root: Any, tags: Sequence[str]) -> list[str | None] | None:
    """The text of each child; None if one of them is there twice, or is more than its text."""
    found: dict[str, str] = {}
    for child in root.iterchildren(*tags):
        tag = child.tag
        if tag in found or len(child) or child.get(_NIL) is not None:
            return None
        found[tag] = child.text or ""
    return list(map(found.get, tags))


@dataclass(frozen=True, slots=True)
class XmlDisassembler:
    """Takes XML apart by the type of its root: `namespace#root`, or `root` where there is no namespace.

    A document of more than `large_bytes`, or of very many nodes, is not held as a tree.
    """

    shapes: Mapping[str, XmlShape]
    large_bytes: int = _LARGE_BYTES

    def disassemble(self, content: bytes, *, piece: bool = False) -> Iterator[Document]:  # noqa: ARG002 - each is whole
        if not content.strip():
            raise DocumentError("the file is empty" if not content else "the file holds no message")
        try:
            if len(content) > self.large_bytes or may_have_too_many_nodes(content):
                yield from self._streamed(content)
            else:
                yield from self._message(_parse(content), Source(content), {}, {})
        except etree.XMLSyntaxError as error:
            raise unreadable("the file", error) from error

    def _message(
        self, root: Any, source: Source, promoted: Mapping[str, Value], written: Mapping[str, Value], inside: int = 0
    ) -> Iterator[Document]:
        """A message, or the messages in an envelope `inside` others, which inherit what is promoted from it."""
        source.check(root)
        type_ = message_type(root.tag)
        shape = self.shapes.get(type_)
        if shape is None:
            yield self._unknown(source.body(root), type_)
            return
        if shape.body is not None:
            check_nested(inside)
        try:
            if shape.schema is not None:
                shape.schema.check(source.envelope(root))
            mine, distinguished = shape.promote(root)
        except (DocumentError, PromotionError) as error:
            yield Document(source.body(root), type_).failed(error)
            return
        promoted, written = {**promoted, **mine}, {**written, **distinguished}
        if shape.body is None:
            yield Document(source.body(root), type_, {**promoted, "BTS.MessageType": type_}, written)
            return
        bodies = [root] if shape.body == (root.tag,) else root.findall("/".join(shape.body[1:]))
        empty = True
        for child in chain.from_iterable(each.iterchildren(etree.Element) for each in bodies):
            empty = False
            yield from self._message(child, source, promoted, written, inside + 1)
        if empty:
            yield Document(source.body(root), type_, error=f"the envelope {type_} holds no message")

    def _unknown(self, body: bytes, type_: str) -> Document:
        known = ", ".join(self.shapes) or "none"
        return Document(body, type_, error=f"there is no schema for documents of type {type_!r} (declared: {known})")

    # Large documents

    def _streamed(self, content: bytes) -> Iterator[Document]:
        """Element by element, forgetting each once it has been looked at."""
        _, root = next(events(content))
        refuse_doctype(root)
        type_ = message_type(root.tag)
        shape = self.shapes.get(type_)
        if shape is None:
            for _, element in events(content):
                forget(element)
            yield self._unknown(content, type_)
            return
        try:
            promoted, written = _collected(shape, content, self.large_bytes)
        except (DocumentError, PromotionError) as error:
            yield Document(content, type_).failed(error)
            return
        if shape.body is None:
            yield Document(content, type_, {**promoted, "BTS.MessageType": type_}, written)
            return
        empty = True
        source = Source(content)
        for child in _messages(shape.body, content):
            empty = False
            yield from self._message(child, source, promoted, written, 1)
        if empty:
            yield Document(content, type_, error=f"the envelope {type_} holds no message")


def events(content: bytes, xsd: Xsd | None = None) -> Iterator[tuple[str, Any]]:
    schema = None if xsd is None else xsd.schema
    # Comments and instructions stay in memory until an element after them ends.
    beside = NodeCount("the document has too many comments and processing instructions")
    elements = NodeCount("the document has too many elements", MOST_ELEMENTS)
    for event, node in etree.iterparse(
        BytesIO(content), events=("start", "end", "start-ns", "comment", "pi"), schema=schema, **_OPTIONS
    ):
        if event == "start":
            elements.add()
            yield event, node
        elif event == "end":
            yield event, node
        elif event == "start-ns":
            check_namespace(node[1])
        else:
            beside.add()


def _messages(body: Sequence[str], content: bytes) -> Iterator[Any]:
    """The children of the body of a large envelope, one after the other."""
    path: list[str] = []
    wanted = list(body)
    child = None
    nodes = NodeCount("a message of the envelope has too many elements and attributes")
    for event, element in events(content):
        if event == "start":
            if child is None and path == wanted:
                child = element
                nodes.begin()
            if child is not None:
                nodes.add(1 + len(element.attrib))
            path.append(element.tag)
            continue
        path.pop()
        if element is child:
            yield element
            child = None
        if child is None:
            forget(element)


def _collected(shape: XmlShape, content: bytes, large_bytes: int) -> tuple[dict[str, Value], dict[str, Value]]:
    """What is promoted from a large document, wherever in it that stands. Of an envelope, its schema is kept too."""
    if shape.body is not None and shape.schema is None and not shape.promoter.promotions:
        return {}, {}
    walk = _Walk(shape.promoter.promotions, large_bytes)
    try:
        for event, element in events(content, shape.schema):
            if event == "start":
                walk.begin(element)
            else:
                walk.end(element)
                forget(element)
    except etree.XMLSyntaxError as error:
        if error.code in _DOES_NOT_FIT:
            raise DocumentError(f"it does not fit its schema: {error.msg}") from error
        for _, element in events(content):  # which tells better what is wrong
            forget(element)
        raise
    return shape.promoter.promote(walk.find)


class _Walk:
    """Collects fields on the way through a large document."""

    def __init__(self, promotions: Sequence[Promotion[XmlPath]], large_bytes: int) -> None:
        self._path: list[str] = []
        self._found: dict[int, _Found] = {}
        self._elements: dict[tuple[str, ...], list[int]] = {}
        self._attributes: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        for path in (promotion.path for promotion in promotions):
            if path.steps is None:
                raise DocumentError(
                    f"the document has more than {large_bytes:,} bytes, or more than {MOST_NODES:,} elements and "
                    f"attributes, and from one that large only plain paths can be promoted; {path.text} is not"
                )
            self._found[id(path)] = _Found()
            if path.attribute is None:
                self._elements.setdefault(path.steps, []).append(id(path))
            else:
                self._attributes.setdefault(path.steps, []).append((id(path), path.attribute))
        self._deepest = max(map(len, (*self._elements, *self._attributes)), default=0)

    def find(self, path: XmlPath) -> str | None:
        """What was found at the path, as `XmlPath.find` gives it."""
        return self._found[id(path)].single()

    def begin(self, element: Any) -> None:
        self._path.append(element.tag)
        for number, attribute in self._attributes.get(self._place(), ()):
            if (value := element.get(attribute)) is not None:
                self._found[number].add(value)

    def end(self, element: Any) -> None:
        for number in self._elements.get(self._place(), ()):
            self._found[number].add(element)
        self._path.pop()

    def _place(self) -> tuple[str, ...]:
        """As far as a path may go, and one step more: a sender chooses how deep its elements are."""
        return tuple(self._path[: self._deepest + 1])


class _Found:
    """What is at one path. Of the others after the first it is enough how many they are: there may be millions."""

    def __init__(self) -> None:
        self._count = 0
        self._first: str | PromotionError | None = None

    def add(self, value: Any) -> None:
        """The text of an attribute, or an element, which is looked at while it is there."""
        self._count += 1
        if self._count == 1:
            try:
                self._first = _single([value])
            except PromotionError as error:  # said if it stays the only one
                self._first = error

    def single(self) -> str | None:
        if self._count > 1:
            raise _not_single(self._count)
        if isinstance(self._first, PromotionError):
            raise self._first
        return self._first


def message_type(tag: str) -> str:
    """`{namespace}root` as the type of a message."""
    return tag[1:].replace("}", "#", 1) if tag.startswith("{") else tag


def parse_document(content: bytes) -> Any:
    """The root element of a document that nothing can be smuggled into. Raises DocumentError."""
    try:
        return _parse(content)
    except etree.XMLSyntaxError as error:
        raise unreadable("the document", error) from error


def unreadable(what: str, error: Any) -> DocumentError:
    """Without the advice to set an option of the parser, which is the limit."""
    problem = _ADVICE.sub("", error.msg or "").strip()
    return DocumentError(f"{what} is not XML: {problem or 'it cannot be read'}")


def _parse(content: bytes) -> Any:
    root = etree.fromstring(content, etree.XMLParser(**_OPTIONS))
    refuse_doctype(root)
    return root


def refuse_doctype(root: Any) -> None:
    if root.getroottree().docinfo.internalDTD is not None:
        raise DocumentError("the document has a document type declaration, which is not taken")


def _alone(root: Any) -> Any:
    """A tree in which `root` is the root: an absolute path must not leave the message."""
    return root.getroottree() if root.getparent() is None else etree.ElementTree(_parse(serialised(root)))


def forget(element: Any) -> None:
    """Free an element that has been looked at, and those before it."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]


def _single(found: Any) -> str | None:
    """The one value that was found. XPath gives a list of nodes, or a value of its own."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, float):
        return repr(int(found)) if found.is_integer() else repr(found)
    if isinstance(found, str):
        return found
    values: Sequence[Any] = found
    if not values:
        return None
    if len(values) > 1:
        raise _not_single(len(values))
    if isinstance(values[0], tuple):  # a namespace: its prefix and its URI
        return str(values[0][1])
    if values[0] is None or isinstance(values[0], str):
        return values[0]
    return None if values[0].get(_NIL) in ("true", "1") else _text(values[0])


def _not_single(count: int) -> PromotionError:
    return PromotionError(f"there are {count} of it, and a property has one value")


def _text(element: Any) -> str:
    if not len(element):
        return element.text or ""
    if next(element.iterchildren(etree.Element), None) is not None:
        raise PromotionError("it has elements in it, and a property has one value")
    return "".join([element.text or "", *(node.tail or "" for node in element)])
