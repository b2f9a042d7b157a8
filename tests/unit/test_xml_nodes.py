"""XML of very many nodes: it is not held as a tree, which would take many times the memory of its bytes."""

from __future__ import annotations

import pytest

from crossdock.pipeline import xml
from crossdock.pipeline.definition import SchemaDefinition
from crossdock.pipeline.tree_size import MOST_NODES, may_have_too_many_nodes
from pipelines import WHOLE, execute, only, xml_schema

POST = xml_schema("Post", body="/Post")
LETTER = xml_schema("Letter")
MANY = MOST_NODES + 1
DECLARED = b"<?xml version='1.0' encoding='%b'?>"


@pytest.mark.parametrize("node", [b"<!---->", b"<?a?>"])
def test_document_with_too_many_comments_or_instructions_is_kept_back(node: bytes) -> None:
    content = b"<Letter>%b</Letter>" % (node * MANY)

    document = only(content, LETTER, large_bytes=WHOLE)

    assert document.body == content
    assert "too many comments and processing instructions, and 500,000 is the most" in str(document.error)


@pytest.mark.parametrize("node", [b"<a/>", b"<a b='' c=''/>"])
def test_envelope_with_a_message_of_too_many_nodes_is_kept_back(node: bytes) -> None:
    content = b"<Post><Letter>%b</Letter></Post>" % (node * (MANY // (node.count(b"=") + 1) + 1))

    document = only(content, POST, LETTER, large_bytes=WHOLE)

    assert document.body == content
    assert "too many elements and attributes, and 500,000 is the most" in str(document.error)


@pytest.mark.parametrize("schema", [LETTER, POST])
def test_large_document_with_far_too_many_elements_is_kept_back(
    schema: SchemaDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xml, "MOST_ELEMENTS", 1_000)
    content = b"<Post><Letter>1</Letter>%b</Post>" % (b"<a/>" * 1_000)

    document = only(content, schema, large_bytes=100)

    assert document.body == content
    assert "the document has too many elements, and 1,000 is the most" in str(document.error)


def test_field_is_found_in_a_large_document_whatever_lies_deeper_beside_it() -> None:
    deep = b"<a>" * 200 + b"<Letter><Id>wrong</Id></Letter>" + b"</a>" * 200
    content = b"<Letter>%b<Id>right</Id>%b</Letter>" % (deep, deep)

    document = only(content, xml_schema("Letter", Id=("text", "/Letter/Id")), large_bytes=100)

    assert (document.promoted["Id"], document.error) == ("right", None)


def test_nodes_are_counted_for_each_message_of_an_envelope() -> None:
    letter = b"<Letter>%b</Letter>" % (b"<a/>" * (MOST_NODES // 2))

    documents = list(execute(b"<Post>%b</Post>" % (letter * 3), POST, LETTER, large_bytes=WHOLE))

    assert [(document.body, document.error) for document in documents] == [(letter, None)] * 3


@pytest.mark.parametrize(
    ("content", "too_many"),
    [
        (b"<a>" + b"x" * 4 * MANY + b"</a>", False),
        (b"<a>" + b"<b/>" * MANY + b"</a>", True),
        (b"<a " + b"b=''" * MANY + b"/>", True),
        (("<a>" + "<b/>" * MANY).encode("utf-16"), True),
        (DECLARED % b"ISO-8859-1" + b"x" * 4 * MANY, False),
        (DECLARED % b"UTF-7" + b"x" * 4 * MANY, True),
        (("<a>" + "<b/>" * MANY).encode("cp037"), True),
        (DECLARED % b"UTF-7" + b"x" * MOST_NODES, False),
    ],
)
def test_nodes_are_estimated_by_the_bytes_whatever_the_encoding(content: bytes, too_many: bool) -> None:
    assert may_have_too_many_nodes(content) is too_many
