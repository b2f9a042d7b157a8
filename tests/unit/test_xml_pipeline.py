"""XML: types, paths, envelopes, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest

from crossdock.errors import ApplicationError
from crossdock.pipeline.xml import parse_xpath
from pipelines import BATCH, NAMESPACES, ORDER, STREAMED, WHOLE, execute, only, xml_schema

AN_ORDER = b'<Order xmlns="urn:orders" id="7"><amount> 12.50 </amount><region>NO</region></Order>'


def batch(*orders: bytes, after: bytes = b"") -> bytes:
    head = b'<?xml version="1.0"?><b:Batch xmlns:b="urn:orders"><b:sender>ACME</b:sender><b:orders>'
    return head + b"\n".join(orders) + b"</b:orders>" + after + b"</b:Batch>"


def test_document_keeps_its_bytes_and_gets_the_type_of_its_root() -> None:
    document = only(AN_ORDER, ORDER)

    assert (document.body, document.type, document.error) == (AN_ORDER, "urn:orders#Order", None)
    assert document.promoted == {
        "BTS.MessageType": "urn:orders#Order", "Id": "7", "Amount": Decimal("12.50"), "Region": "NO",
    }  # fmt: skip


def test_document_without_a_namespace_has_the_name_of_its_root_as_type() -> None:
    schema = xml_schema("Order", Id=("text", "/Order/id"))

    assert only(b"<Order><id>a</id></Order>", schema).promoted == {"BTS.MessageType": "Order", "Id": "a"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/o:Order/o:lines/o:line[2]/@sku", "b"),
        ("//o:line[@sku='a']/o:count", "3"),
        ("/*[local-name()='Order' and namespace-uri()='urn:orders']/*[local-name()='note' and namespace-uri()='urn:orders']", "see & sign"),
        ("/*[local-name()='Order']/*[local-name()='note']", "see & sign"),
        ("/o:Order/o:nothing", None),
        ("/o:Order/o:nil", None),
        ("/o:Order/o:empty", ""),
        ("/o:Order/o:commented", "in two"),
        ("/o:Other/o:note", None),
    ],
)  # fmt: skip
def test_field_is_found_by_its_path(path: str, value: str | None) -> None:
    content = (
        b'<Order xmlns="urn:orders" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><note>see &amp; sign</note>'
        b'<lines><line sku="a"><count>3</count></line><line sku="b"/></lines><nil i:nil="true"/><empty/>'
        b"<commented>in<!-- not this --> two</commented></Order>"
    )
    document = only(content, xml_schema("urn:orders#Order", Found=("text", path)))

    assert (document.error, document.promoted.get("Found")) == (None, value)


def test_field_that_is_there_twice_or_has_elements_in_it_is_an_error() -> None:
    content = b'<Order xmlns="urn:orders"><region>NO</region><region>SE</region><amount><x/></amount></Order>'

    assert (
        only(content, ORDER).error
        == "property 'Amount' is decimal, and in /o:Order/o:amount it has elements in it, and a property has one value"
    )
    twice = only(content.replace(b"<x/>", b"1"), ORDER)
    assert (
        twice.error
        == "property 'Region' is text, and in /o:Order/o:region there are 2 of it, and a property has one value"
    )


def test_value_that_does_not_fit_its_type_is_an_error_that_names_the_place() -> None:
    document = only(AN_ORDER.replace(b"12.50", b"much"), ORDER)

    assert document.error == "property 'Amount' is decimal, and in /o:Order/o:amount 'much' is not a decimal"
    assert document.promoted == {}


def test_envelope_gives_each_of_its_messages_what_it_has_itself() -> None:
    documents = execute(batch(AN_ORDER, AN_ORDER.replace(b"NO", b"SE")), BATCH, ORDER)

    assert [document.promoted["Region"] for document in documents] == ["NO", "SE"]
    assert {document.promoted["Sender"] for document in documents} == {"ACME"}
    assert {document.type for document in documents} == {"urn:orders#Order"}
    [first, _] = documents
    again = only(first.body, ORDER)
    assert (again.promoted["Id"], again.error) == ("7", None)


def test_bad_message_in_an_envelope_does_not_hold_up_the_others_unless_the_interchange_is_standard() -> None:
    content = batch(AN_ORDER, AN_ORDER.replace(b"12.50", b"much"), b"<other/>")

    errors = [document.error for document in execute(content, BATCH, ORDER)]

    assert errors[0] is None
    assert "'much' is not a decimal" in str(errors[1])
    assert (
        errors[2] == "there is no schema for documents of type 'other' (declared: urn:orders#Batch, urn:orders#Order)"
    )
    [whole] = execute(content, BATCH, ORDER, standard=True)
    assert (whole.body, "its interchange is standard" in str(whole.error)) == (content, True)


def test_envelope_in_an_envelope_is_taken_apart_too() -> None:
    outer = xml_schema("Post", body="/Post", Day=("text", "/Post/@day"))
    content = b'<Post day="Monday">' + batch(AN_ORDER, AN_ORDER)[21:] + AN_ORDER + b"</Post>"

    documents = execute(content, outer, BATCH, ORDER)

    assert [document.promoted.get("Sender") for document in documents] == ["ACME", "ACME", None]
    assert {document.promoted["Day"] for document in documents} == {"Monday"}


CLIMBING = "urn:orders}region/../../{urn:orders}Order[2]/{urn:orders"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/o:Order/following-sibling::*/o:region", None),
        ("/o:Order/preceding::*", None),
        ("/o:Order/../*[2]/o:region", None),
        ("/o:Order/ancestor::*/@secret", None),
        ("/o:Batch/o:orders/o:Order[2]/o:region", None),
        ("/o:Batch/o:sender", None),
        ("//o:sender", None),
        ("//o:Order[2]/o:region", None),
        ("/comment() | /processing-instruction() | //comment()", None),
        ("//o:region", "own"),
        ("/o:Order/namespace::b", "urn:orders"),
        ("/o:Order/climbing:region", None),
        (f"/o:Order/*[local-name()='region' and namespace-uri()='{CLIMBING}']", None),
    ],
)
def test_path_of_a_message_sees_nothing_of_its_envelope_but_the_message(
    path: str, found: str | None, large: bool
) -> None:
    namespaces = {**NAMESPACES, "climbing": CLIMBING}
    plain = xml_schema("urn:orders#Order", Seen=("text", path), Own=("text", "/o:Order/@id"))
    order = plain.model_copy(update={"namespaces": namespaces})
    other = b'<Order xmlns="urn:orders" id="8"><region>theirs</region></Order><!-- theirs --><?theirs theirs?>'
    mine = b'<Order xmlns="urn:orders" id="7"><region>own</region></Order>'

    content = batch(other, other.replace(b"8", b"6"), mine, other)
    documents = execute(content, BATCH, order, large_bytes=STREAMED if large else WHOLE)

    [document] = [each for each in documents if b">own<" in each.body]
    assert (document.error, document.promoted.get("Own"), document.promoted.get("Seen")) == (None, "7", found)


@pytest.mark.parametrize("large", [False, True])
def test_envelope_with_several_bodies_gives_the_messages_of_all(large: bool) -> None:
    large_bytes = STREAMED if large else WHOLE
    content = batch(AN_ORDER, after=b"<b:orders>" + AN_ORDER + AN_ORDER + b"</b:orders>")

    assert [document.error for document in execute(content, BATCH, ORDER, large_bytes=large_bytes)] == [None] * 3


@pytest.mark.parametrize("content", [batch(), batch(b"<!-- nothing -->"), b'<Batch xmlns="urn:orders"/>'])
def test_envelope_without_messages_is_an_error(content: bytes) -> None:
    assert only(content, BATCH, ORDER).error == "the envelope urn:orders#Batch holds no message"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"  \n", "the file holds no message"),
        (b"<a><b></a>", "the file is not XML: Opening and ending tag mismatch"),
        (b"<a/><b/>", "the file is not XML: Extra content at the end of the document"),
        (b"not xml", "the file is not XML: Start tag expected"),
        (b'<?xml version="1.0" encoding="UTF-8"?><a>\xff</a>', "the file is not XML"),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "document type declaration"),
        (b'<!DOCTYPE a SYSTEM "http://example.com/a.dtd"><a/>', "document type declaration"),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "document type declaration"),
        (b"<a>" * 1000 + b"</a>" * 1000, "the file is not XML: Excessive depth"),
        (b"<a>" + b"x" * 11_000_000 + b"</a>", "the file is not XML"),
        (b'<a b="' + b"x" * 11_000_000 + b'"/>', "the file is not XML"),
    ],
    ids=["empty", "blank", "mismatch", "two roots", "text", "encoding", "entity", "dtd", "external", "deep", "huge text", "huge attribute"],
)  # fmt: skip
def test_hostile_or_broken_document_is_refused_in_one_sentence(content: bytes, problem: str, large: bool) -> None:
    document = only(content, xml_schema("a"), large_bytes=STREAMED if large else WHOLE)

    assert (document.body, document.piece) == (content, False)
    assert problem in str(document.error)
    assert "\n" not in str(document.error)
    assert "XML_PARSE_HUGE" not in str(document.error)  # nobody can set it, and it is the limit


def test_expanding_entities_take_neither_time_nor_memory() -> None:
    lines = [b'<!ENTITY a0 "ha">', *(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 12))]
    bomb = b"<!DOCTYPE a [" + b"".join(lines) + b']><a b="&a11;">&a11;</a>'

    tracemalloc.start()
    document = only(bomb, xml_schema("a"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert document.error is not None
    assert peak < 5_000_000


def test_utf_16_and_declared_encodings_are_read() -> None:
    text = '<?xml version="1.0" encoding="{}"?><Order xmlns="urn:orders" id="é"/>'
    for encoding in ("utf-16", "iso-8859-1", "utf-8"):
        assert only(text.format(encoding).encode(encoding), ORDER).promoted["Id"] == "é"


@pytest.mark.parametrize("path", ["/o:Order/o:amount", "/o:Order/@id", "/o:Order/o:lines/o:line/@sku"])
def test_plain_path_finds_the_same_in_a_document_that_is_streamed(path: str) -> None:
    content = b'<Order xmlns="urn:orders" id="7"><amount>1<!-- x -->2</amount><lines><line sku="a"/></lines></Order>'
    schema = xml_schema("urn:orders#Order", Found=("text", path))
    whole = only(content, schema)

    assert only(content, schema, large_bytes=STREAMED) == whole
    assert whole.promoted["Found"] in ("12", "7", "a")


def test_streamed_envelope_gives_what_one_that_is_parsed_whole_gives() -> None:
    content = batch(*(AN_ORDER.replace(b"7", b"%d" % n) for n in range(50)), after=b"<b:x/>")
    whole = execute(content, BATCH, ORDER)

    streamed = execute(content, BATCH, ORDER, large_bytes=STREAMED)

    assert [(each.promoted, each.error) for each in streamed] == [(each.promoted, each.error) for each in whole]
    assert [only(each.body, ORDER).promoted["Id"] for each in streamed] == [f"{n}" for n in range(50)]


ENVELOPE_XSD = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="urn:orders" targetNamespace="urn:orders"
  elementFormDefault="qualified"><xs:element name="Batch"><xs:complexType><xs:sequence>
  <xs:element name="sender" minOccurs="0"><xs:simpleType><xs:restriction base="xs:string"><xs:maxLength value="4"/></xs:restriction></xs:simpleType></xs:element>
  <xs:element name="orders"><xs:complexType><xs:sequence><xs:any processContents="skip" maxOccurs="unbounded"/></xs:sequence></xs:complexType></xs:element>
  <xs:element name="count" type="xs:integer" minOccurs="0"/></xs:sequence></xs:complexType></xs:element></xs:schema>"""
LONG_SENDER = "it does not fit its schema: Element '{urn:orders}sender'"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (batch(AN_ORDER, AN_ORDER), None),
        (batch(AN_ORDER).replace(b"ACME", b"ACME Ltd"), LONG_SENDER),
        (batch(AN_ORDER, after=b"<b:count>many</b:count>"), "it does not fit its schema: Element '{urn:orders}count'"),
        (batch(AN_ORDER, after=b"<b:other/>"), "it does not fit its schema: Element '{urn:orders}other'"),
        (batch(AN_ORDER)[:-3], "the file is not XML: "),
    ],
    ids=["good", "before the messages", "after the messages", "unknown", "cut"],
)
def test_envelope_is_validated_before_anything_in_it_is_a_message(
    content: bytes, problem: str | None, large: bool
) -> None:
    large_bytes = STREAMED if large else WHOLE
    validated = BATCH.model_copy(update={"validate_with": {"batch.xsd": ENVELOPE_XSD}})
    execute(
        batch(AN_ORDER).replace(b"ACME", b"ACME Ltd"), validated, ORDER, large_bytes=large_bytes
    )  # what was wrong before does not matter

    documents = execute(content, validated, ORDER, large_bytes=large_bytes)

    if problem is None:
        assert [document.error for document in documents] == [None, None]
    else:
        [failed] = documents
        assert failed.body == content
        assert str(failed.error).startswith(problem)
        assert "b'" not in str(failed.error)


def test_envelope_in_an_envelope_is_validated_too() -> None:
    outer = xml_schema("Post", body="/Post")
    validated = BATCH.model_copy(update={"validate_with": {"batch.xsd": ENVELOPE_XSD}})
    content = b"<Post>" + batch(AN_ORDER)[21:].replace(b"ACME", b"ACME Ltd") + AN_ORDER + b"</Post>"

    [failed, good] = execute(content, outer, validated, ORDER)

    assert str(failed.error).startswith(LONG_SENDER)
    assert good.error is None


@pytest.mark.parametrize(
    "content",
    [
        batch(AN_ORDER, after=b"<b:sender>Other</b:sender>"),
        batch(AN_ORDER).replace(b"<b:sender>ACME</b:sender>", b""),
        batch(AN_ORDER, after=b"<b:sender>Last</b:sender>").replace(b"<b:sender>ACME</b:sender>", b""),
        batch(AN_ORDER).replace(b"ACME", b"<b:x/>"),
        batch(AN_ORDER).replace(b"ACME", b"ACME" * 100),
        batch(AN_ORDER.replace(b"12.50", b"<x/>"), AN_ORDER, b"<other/>"),
        batch(),
        b'<Batch xmlns="urn:orders"/>',
    ],
    ids=["twice", "absent", "after the messages", "elements", "too long", "bad message", "no messages", "no body"],
)
def test_envelope_routes_the_same_however_large_it_is(content: bytes) -> None:
    into = xml_schema(
        "urn:orders#Batch",
        body="/o:Batch/o:orders",
        Sender=("text", "/o:Batch/o:sender"),
        Inner=("text", "/o:Batch/o:orders/o:Order/@id"),
    )
    for envelope in (BATCH, into):
        whole = execute(content, envelope, ORDER, large_bytes=WHOLE)

        assert execute(content, envelope, ORDER, large_bytes=STREAMED) == whole


def test_path_that_is_not_plain_is_refused_where_the_document_is_large() -> None:
    document = only(AN_ORDER, xml_schema("urn:orders#Order", Id=("text", "//@id")), large_bytes=10)

    assert "from one that large only plain paths can be promoted; //@id is not" in str(document.error)


@pytest.mark.parametrize(
    ("path", "problem"),
    [("Order/id", "not a path from the root"), ("/x:Order", "Undefined namespace prefix"), ("/Order[", "not an XPath"), ("/f(1)", "not an XPath")],
)  # fmt: skip
def test_wrong_path_is_refused(path: str, problem: str) -> None:
    with pytest.raises(ApplicationError, match=problem):
        parse_xpath(path, NAMESPACES)


GROWTH = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from pipelines import ORDER, only

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

line = b"<line><sku>abc</sku><count>12</count></line>"
content = b'<Order xmlns="urn:orders" id="7"><amount>5</amount><lines>' + line * 1_000_000 + b"</lines></Order>"
before = most()
document = only(content, ORDER)
assert document.error is None and document.promoted["Amount"] == 5, document.error
print(len(content), most() - before)
"""


@pytest.mark.slow
def test_large_document_takes_little_more_memory_than_its_bytes() -> None:
    command = [sys.executable, "-c", GROWTH, str(Path(__file__).parents[1] / "support")]

    size, growth = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())

    assert size > 40_000_000
    assert growth < 20_000_000  # parsed whole it would take several times its size
